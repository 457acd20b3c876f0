"""Random sequences of calls on posteriors, models and runs, for functions that are known.

``functions``: the functions. ``play``: one sequence. ``posteriors``, ``models`` and ``settings``: its possible calls.
"""
