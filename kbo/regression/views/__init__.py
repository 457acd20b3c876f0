"""Views: posteriors that change a few numbers of another posterior.

* ``view.py``: ``View``, the base class
* ``prior_mean.py``: a known prior mean
* ``adaptive_ridge.py``: a ridge that follows the data
* ``fixed_points.py``: faster at fixed points, such as arms; a batch chosen among them
* ``hypothetical.py``: pending points, fantasies, batches
"""
