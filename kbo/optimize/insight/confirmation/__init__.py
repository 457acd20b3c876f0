"""What new evaluations of the best trials say: which of a few candidates is the best, without a model.

The statement holds however the candidates were chosen, since only the new values count (docs/theory/confirm.md).

* ``confirm.py``: ``confirm``; ``confirmation.py``: its outcome, and what this says in words
* ``evaluations.py``: the evaluations, which are the trials of a run with a journal
* ``race.py``: bounds of the candidates, and who is evaluated next
"""
