"""The quantities that the trials of a run measure: their surrogates, and the recommended trial.

* ``problem.py``: the quantities before the first trial, and the description of the problem in a journal
* ``quantities.py``: all quantities of a run; ``quantity.py``: one quantity
* ``recommendation.py``: the recommended trial, and the trials of the front
* ``learning_curves.py``: predicted values of trials that were stopped early
* ``places.py``: points and features of trials
"""
