"""Records of runs in other tools, to pass as ``on_trial`` of ``minimize``.

* ``tracker.py``: the base; ``mlflow.py``, ``wandb.py``: the tools
"""

from kbo.optimize.tracking.mlflow import MLflow
from kbo.optimize.tracking.wandb import WandB

__all__ = ["MLflow", "WandB"]
