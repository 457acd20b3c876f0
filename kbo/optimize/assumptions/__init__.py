"""Assumptions of a user about a measured quantity: kernel, noise level and norm bound.

* ``hypotheses.py``: ``Hypothesis``; ``measured.py``: a quantity with its assumptions
* ``fingerprint.py``: kernels in a journal; ``same_kernel.py``: kernels after a change of the space
"""
