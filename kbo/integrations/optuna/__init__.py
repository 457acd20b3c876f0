"""kbo in Optuna: a sampler, and search spaces in both directions."""

from kbo._base.extras import require

require("kbo.integrations.optuna", "optuna", "optuna")

from kbo.integrations.optuna.sampler import KBOSampler
from kbo.integrations.optuna.space import from_distributions, suggest, to_distributions

__all__ = ["KBOSampler", "from_distributions", "suggest", "to_distributions"]
