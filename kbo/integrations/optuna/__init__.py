"""kbo in Optuna: a sampler, and search spaces in both directions.

``space``: distributions of Optuna and spaces of kbo. ``ranges``: ranges that change from trial to trial. ``study``:
trials of a study as data. ``proposal``: the next parameters. ``sampler``: ``KBOSampler``.
"""

from kbo._base.extras import require

require("kbo.integrations.optuna", "optuna", "optuna")

from kbo.integrations.optuna.sampler import KBOSampler
from kbo.integrations.optuna.space import from_distributions, suggest, to_distributions

__all__ = ["KBOSampler", "from_distributions", "suggest", "to_distributions"]
