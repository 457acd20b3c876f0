"""What a run did and what it rests on, as one page that needs nothing else.

``write`` makes the page. Its parts are of use by themselves: ``history`` replays a run, and the functions named
``draw_...`` draw on axes that they are given, for example in a notebook::

    figure, axes = kbo.report.picture()
    kbo.report.draw_band(axes, optimizer, "learning_rate")
    kbo.report.finish(figure).savefig("band.png")
"""

from kbo.report.pictures import (
    draw_band,
    draw_dictionary,
    draw_noise,
    draw_norm,
    draw_recommended,
    draw_ridge,
    draw_surprises,
    draw_values,
    draw_width,
    finish,
    picture,
)
from kbo.report.record import Record
from kbo.report.replay import Moment, history, surprises
from kbo.report.slices import Slice, slice_of
from kbo.report.writing import write

__all__ = [
    "Moment",
    "Record",
    "Slice",
    "draw_band",
    "draw_dictionary",
    "draw_noise",
    "draw_norm",
    "draw_recommended",
    "draw_ridge",
    "draw_surprises",
    "draw_values",
    "draw_width",
    "finish",
    "history",
    "picture",
    "slice_of",
    "surprises",
    "write",
]
