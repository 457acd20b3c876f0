"""The quantities that the trials of a run measure: their surrogates, and the recommended trial.

* ``quantities.py``: all quantities of a run; ``quantity.py``: one quantity
* ``new_quantities.py``: the quantities before the first trial
* ``journal_header.py``: the description of the problem in a journal
* ``learning_curves.py``: predicted values of trials that were stopped early
* ``places.py``: points and features of trials
* ``distinct.py``: trials with different parameters; ``front_trials.py``: the trials of the front
* ``run_search.py``: the search of the space from the best trials
"""
