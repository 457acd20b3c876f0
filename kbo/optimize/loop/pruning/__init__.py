"""Early stopping of trials by what they report: by curves, or by Optuna's pruners."""
