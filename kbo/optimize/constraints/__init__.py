"""Limits on measured quantities: as a user states them, and what is known of them at a point.

* ``constraint.py``: ``Constraint``; ``slacks.py``: by how much limits are kept, with bounds
* ``feasibility.py``: limits in the search, the recommendation and the report
* ``safe_points.py``: the points that are certain to keep all limits, for ``kbo.Safe``
"""
