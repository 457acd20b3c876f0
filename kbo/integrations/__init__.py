"""kbo inside other tools: Ax and Optuna. Only these packages import the tools.

``settings``: the setting and method of both. ``replay``: trials of another tool in an optimiser of kbo. ``optuna``: a
sampler. ``ax``: a generation strategy.
"""
