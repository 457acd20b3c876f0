"""Comparison of kbo with other tuners.

``tuners`` and ``peers``: the tuners. ``suites``: the problems. ``runs``: parts of a run. ``comparison``: a run as a
cell, and tables. ``suite_run``, ``heldout`` and ``ranks``: standings on suites. ``constrained`` and ``infeasible``:
constraints. ``fronts``, ``front_tuners`` and ``front_statistics``: several objectives. ``stopping``: early stops.
"""
