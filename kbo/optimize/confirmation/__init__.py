"""What new evaluations of the best trials say: which of a few candidates is the best, without a model.

The statement holds however the candidates were chosen, since only the new values count (docs/theory/confirm.md).

* ``confirmation.py``: ``confirm`` and its outcome
* ``race.py``: bounds of the candidates, and who is evaluated next
"""
