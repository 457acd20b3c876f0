"""Figures of a tuning run, each drawn on given axes.

``axes``: empty figures and limits of axes. ``trials``: values, measurements, learning curves and expected ranges.
``slices``: the objective along one or two parameters. ``importance``: shares of the parameters. ``front``: several
objectives.
"""

from kbo._base.extras import require

require("kbo.report", "cli", "matplotlib")

from kbo.report.figures.axes import finish, picture
from kbo.report.figures.front import draw_front, draw_volume
from kbo.report.figures.importance import Importance, draw_importance, importance
from kbo.report.figures.slices import Slice, draw_band, draw_contour, slice_of
from kbo.report.figures.trials import (
    draw_curves,
    draw_history,
    draw_limit,
    draw_miscoverage,
)

__all__ = [
    "Importance",
    "Slice",
    "draw_band",
    "draw_contour",
    "draw_curves",
    "draw_front",
    "draw_history",
    "draw_importance",
    "draw_limit",
    "draw_miscoverage",
    "draw_volume",
    "finish",
    "importance",
    "picture",
    "slice_of",
]
