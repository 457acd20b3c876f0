"""Proofs about a run: the largest lead of the optimum, and that no point keeps all limits.

Proofs over boxes use branch and bound, which needs a norm bound (docs/theory/gaps.md).

* ``gap.py``: ``Gap``, and the largest of several gaps
* ``run_gap.py``: the gap of a run; ``front_gap.py``: that of the front of several objectives
* ``branch_and_bound.py``, with ``cells.py``: a proved upper bound of a function over a space
* ``infeasibility.py``: the certificate that no point keeps all limits
"""
