"""Reports: a run as one HTML page, and its parts.

``write`` makes the page, and ``plot`` figures of it. ``history`` replays a run, and the functions named ``draw_...``
draw on given axes, for example in a notebook::

    figure, axes = kbo.report.picture()
    kbo.report.draw_band(axes, result, "learning_rate")
    kbo.report.finish(figure).savefig("band.png")
"""

from kbo._base.extras import require

require("kbo.report", "cli", "jinja2", "matplotlib", "pandas")

from kbo.optimize.sensitivity import Importance
from kbo.report.figures import (
    Slice,
    draw_band,
    draw_contour,
    draw_curves,
    draw_history,
    draw_importance,
    draw_miscoverage,
    draw_parallel,
    draw_quantity,
    draw_timeline,
    draw_width,
    finish,
    picture,
    slice_of,
)
from kbo.report.live import Live
from kbo.report.plots import plot
from kbo.report.record import History, Record
from kbo.report.replay import Moment, history, miscoverage
from kbo.report.sensitivity import importance
from kbo.report.writing import write

__all__ = [
    "History",
    "Importance",
    "Live",
    "Moment",
    "Record",
    "Slice",
    "draw_band",
    "draw_contour",
    "draw_curves",
    "draw_history",
    "draw_importance",
    "draw_miscoverage",
    "draw_parallel",
    "draw_quantity",
    "draw_timeline",
    "draw_width",
    "finish",
    "history",
    "importance",
    "miscoverage",
    "picture",
    "plot",
    "slice_of",
    "write",
]
