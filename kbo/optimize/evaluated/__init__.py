"""Results that are known before a run begins, and points to try first.

* ``given.py``: results as they were given; ``table.py``, ``journal.py``: those of a table, and of another journal
* ``results.py``: those that a run can learn from
* ``first_points.py``: the points to try first
"""
