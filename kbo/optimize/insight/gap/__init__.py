"""Proofs about a run: the largest lead of the optimum, and that no point keeps all limits.

Proofs over boxes use branch and bound, which needs a norm bound (docs/theory/gaps.md).

* ``gap.py``: ``Gap``; ``run_gap.py``: the gap of a run; ``gap_problem.py``: what it is computed from
* ``recommendation_gap.py``, ``front_gap.py``: the gap of one objective, and of the front of several
* ``branch_and_bound.py``, with ``cells.py`` and ``cell_bound.py``: a proved upper bound of a function over a space
* ``infeasibility.py``: the certificate that no point keeps all limits
"""
