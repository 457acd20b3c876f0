"""Exact kernel ridge regression.

* ``observations.py``: the data, grouped into rows of equal location
* ``kernel_ridge.py``: ``KernelRidge``, by a Cholesky factor at each ridge, also at fixed points
* ``eigenbasis.py``: all ridges, from one eigendecomposition
"""
