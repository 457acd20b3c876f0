"""Figures of a tuning run, each drawn on given axes."""

from kbo._base.extras import require

require("kbo.report", "cli", "matplotlib")

from kbo.report.figures.axes import finish, picture
from kbo.report.figures.bounds import draw_miscoverage, draw_quantity, draw_width
from kbo.report.figures.curves import draw_curves
from kbo.report.figures.history import draw_history
from kbo.report.figures.importance import draw_importance
from kbo.report.figures.limits import draw_limit
from kbo.report.figures.parallel import draw_parallel
from kbo.report.figures.slices import Slice, draw_band, draw_contour, slice_of
from kbo.report.figures.timeline import draw_timeline, lanes

__all__ = [
    "Slice",
    "draw_band",
    "draw_contour",
    "draw_curves",
    "draw_history",
    "draw_importance",
    "draw_limit",
    "draw_miscoverage",
    "draw_parallel",
    "draw_quantity",
    "draw_timeline",
    "draw_width",
    "finish",
    "lanes",
    "picture",
    "slice_of",
]
