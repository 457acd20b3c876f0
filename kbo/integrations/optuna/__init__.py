"""kbo in Optuna: a sampler, and a candidates function for Optuna's ``BoTorchSampler``."""

from kbo.extras import require

require("kbo.integrations.optuna", "optuna", "optuna")

from kbo.integrations.optuna.candidates import kbo_candidates_func
from kbo.integrations.optuna.sampler import KBOSampler

__all__ = ["KBOSampler", "kbo_candidates_func"]
