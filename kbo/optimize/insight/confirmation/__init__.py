"""Confirmation: which of a few candidates is the best, by new evaluations alone, without a model.

The statement holds for any choice of the candidates, since only the new values count (docs/theory/confirm.md).

* ``confirm.py``: ``confirm``; ``confirmation.py``: its outcome, also in words
* ``evaluations.py``: the evaluations, as trials of a run with a journal
* ``race.py``: bounds of the candidates, and which one is evaluated next
"""
