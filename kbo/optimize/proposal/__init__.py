"""From what is known to parameters: of the next trial, and of the best point of a context.

* ``next_params.py``: the strategies of a run, asked in turn; ``begin_search.py``: the search that they are given
* ``best_params.py``: the best and the safe points by pessimistic bounds
"""
