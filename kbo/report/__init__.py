"""Reports: a run as one HTML page, and its parts.

``write`` makes the page. ``history`` replays a run, and the functions named ``draw_...`` draw on given axes, for
example in a notebook::

    figure, axes = kbo.report.picture()
    kbo.report.draw_band(axes, optimizer, "learning_rate")
    kbo.report.finish(figure).savefig("band.png")
"""

from kbo.extras import require

require("kbo.report", "cli", "jinja2", "matplotlib", "pandas")

from kbo.report.figures import (
    Slice,
    draw_band,
    draw_miscoverage,
    draw_quantity,
    draw_recommended,
    draw_values,
    draw_width,
    finish,
    picture,
    slice_of,
)
from kbo.report.record import Record
from kbo.report.replay import Moment, history, miscoverage
from kbo.report.writing import write

__all__ = [
    "Moment",
    "Record",
    "Slice",
    "draw_band",
    "draw_miscoverage",
    "draw_quantity",
    "draw_recommended",
    "draw_values",
    "draw_width",
    "finish",
    "history",
    "miscoverage",
    "picture",
    "slice_of",
    "write",
]
