"""The sketched posterior (DTC, Nystrom), spanned by inducing points.

* ``nystrom.py``: ``NystromRidge``, the posterior; ``dtc.py``: its variance
* ``data.py``: what happens to an observation; ``rows.py``: the distinct locations
* ``features.py``: the features of the inducing points
* ``inverse_root.py``: ``M^-1``, which follows the data
* ``dictionary.py``, ``leverage.py``: the choice of the inducing points, greedy or random
* ``error.py``: bounds of the error of the approximation
* ``columns.py``: mean and variance at fixed points, updated row by row
"""
