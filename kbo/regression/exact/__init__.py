"""Exact kernel ridge regression.

* ``observations.py``: the data, grouped into rows of equal location
* ``kernel_ridge.py``: ``KernelRidge``, by a Cholesky factor at each ridge
* ``eigenbasis.py``: all ridges, from one eigendecomposition
* ``columns.py``: mean and variance at fixed points, updated row by row
"""
