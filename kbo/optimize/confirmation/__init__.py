"""The best of a few candidates, by new evaluations and without a model (docs/theory/confirm.md).

* ``confirm.py``: evaluations until enough is known
* ``race.py``: bounds, and the next candidate
* ``confirmation.py``: the outcome, also in words
"""
