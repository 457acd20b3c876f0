"""The parameters of the next trial, and of the best point in a context, from what is known so far.

* ``trial_search.py``: the search from the best trials so far, and the search for the next trial
* ``params.py``: the parameters that the strategies propose in it, and the best ones by pessimistic bounds
"""
