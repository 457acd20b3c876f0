"""The parameters of the next trial, and of the best point in a context, from what is known so far.

* ``next_params.py``: asks the strategies of a run in turn; ``begin_search.py``: the search that they get
* ``best_params.py``: the best points and the safe points, by pessimistic bounds
"""
