"""Limits on measured quantities.

* ``constraint.py``: as a user states them; ``feasibility.py``: in the search
* ``safe_points.py``: the points that are certain to keep them
"""
