"""kbo inside other tools: Ax, Optuna and Ray. Each module imports its tool; nothing else in kbo does."""
