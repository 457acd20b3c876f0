"""The sketched posterior (DTC, Nystrom), spanned by inducing points.

* ``nystrom.py``: ``NystromRidge``, the posterior, also at fixed points
* ``data.py``: what happens to an observation; ``rows.py``: the distinct locations
* ``features.py``: the features of the inducing points
* ``inverse_root.py``: ``M^-1``, which follows the data, and the variance by it
* ``dictionary.py``, ``leverage.py``: the choice of the inducing points, greedy or random
* ``error.py``: bounds of the error of the approximation
"""
