"""The quantities that the trials of a run measure: their surrogates, and the trial to recommend.

* ``quantities.py``: all quantities of a run; ``quantity.py``: one of them
* ``new_quantities.py``: those of a run before its first trial
* ``journal_header.py``: their description in a journal
* ``learning_curves.py``: predicted values of trials that were stopped early
* ``places.py``: points and features of trials
* ``distinct.py``: one trial for each of the parameters; ``front_trials.py``: the trials of the front
* ``run_search.py``: the search of the space from the best trials
"""
