"""Assumptions of a user about a measured quantity: kernel, noise level and norm bound.

* ``hypotheses.py``: ``Hypothesis``; ``measured.py``: a quantity with its assumptions
* ``same_kernel.py``: whether a kernel is the same, in a journal and after a change of the space
"""
