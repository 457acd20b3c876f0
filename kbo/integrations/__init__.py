"""kbo inside other tools: Ax and Optuna. Only these packages import the tools.

``replay``: an optimiser inside another tool, and the trials of the tool in it. ``optuna``: a sampler. ``ax``: a
generation strategy.
"""
