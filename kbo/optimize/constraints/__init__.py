"""Limits on measured quantities: as a user states them (``constraint.py``), and in the search (``feasibility.py``)."""
