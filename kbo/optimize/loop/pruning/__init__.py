"""Early stopping of trials by their reports: by curves (``pruning.py``), or by Optuna (``optuna_pruner.py``)."""
