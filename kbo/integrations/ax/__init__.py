"""kbo in Ax: a generation strategy, confidence bounds of the outcomes, search spaces, and storage.

    import kbo.integrations.ax as kbo_ax

    client.set_generation_strategy(kbo_ax.generation_strategy(seed=0))
    ...
    lower, mean, upper = kbo_ax.interval(client, {"x1": 0.5, "x2": 1.5})
    print(kbo_ax.guarantee(client))

``space``: search spaces of Ax and kbo. ``history``: trials and data of an experiment. ``records``: values that
were overwritten. ``node``: the strategy. ``storage``: what Ax saves. ``report``: bounds and the guarantee.

The import registers the strategy, models and acquisition functions of kbo with Ax's storage. A process that saves or
loads an experiment needs this import.
"""

from kbo._base.extras import require

require("kbo.integrations.ax", "ax", "ax")

from kbo.integrations.ax.node import generation_strategy
from kbo.integrations.ax.report import feasibility, front, guarantee, interval, recommended
from kbo.integrations.ax.space import from_parameters, to_parameter_constraints, to_parameters
from kbo.integrations.ax.storage import register

__all__ = [
    "feasibility",
    "from_parameters",
    "front",
    "generation_strategy",
    "guarantee",
    "interval",
    "recommended",
    "to_parameter_constraints",
    "to_parameters",
]

register()
