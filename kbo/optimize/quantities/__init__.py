"""The quantities that the trials of a run measure: their surrogates, and the recommended trial.

* ``new_run.py``: the quantities of a new run, and the header of its journal
* ``quantities.py``: all quantities of a run; ``quantity.py``: one quantity
* ``recommendation.py``: the recommended trial; ``front_trials.py``: the trials of the front
* ``learning_curves.py``: predicted values of trials that were stopped early
* ``places.py``: points and features of trials
"""
