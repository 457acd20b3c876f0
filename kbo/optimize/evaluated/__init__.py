"""Results that are known before a run begins, and points to try first.

* ``results.py``: the results that a run can learn from, also of another journal; ``table.py``: those of a table
* ``first_points.py``: the points to try first
"""
