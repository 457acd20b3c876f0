"""Pages from the templates of this folder: every value is escaped, and pictures are part of the page."""

from __future__ import annotations

import base64
import io
import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import jinja2

from kbo.terminal import printable

_MANY_POINTS = 300  # scattered points from which an image of them is smaller than their outlines


@dataclass(frozen=True)
class Picture:
    """Picture as a data address, with its size in pixels."""

    source: str
    width: int
    height: int


def render(template: str, **values: Any) -> str:
    """Return the page of a template of this folder."""
    return _environment().get_template(template).render(**values)


def embed(figure: Any) -> Picture:
    """Return a matplotlib figure as SVG.

    Its text is outlines, so that it looks the same everywhere, and it holds no date, so that equal runs give equal
    pages.
    """
    import matplotlib
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        text.set_parse_math(False)  # names come from the run: a dollar is a dollar
    for axes in figure.axes:
        for collection in axes.collections:
            if len(collection.get_offsets()) > _MANY_POINTS:
                collection.set_rasterized(True)
    file = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "kbo", "svg.fonttype": "path"}):
        figure.savefig(file, format="svg", dpi=200, metadata={"Date": None, "Creator": None})
    width, height = (round(96 * inches) for inches in figure.get_size_inches())
    return Picture(f"data:image/svg+xml;base64,{base64.b64encode(file.getvalue()).decode()}", width, height)


def number(value: Any) -> str:
    """Return a value as text: floats with five digits, None and NaN as a dash."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    return f"{value:.5g}" if isinstance(value, float) else str(value)


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("kbo.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_visible,
    )
    environment.filters["number"] = number
    environment.tests["numeric"] = _numeric
    return environment


def _visible(value: Any) -> Any:
    """Return text with its control characters as escape sequences; pages of others are passed on."""
    return printable(value) if type(value) is str else value


def _numeric(value: Any) -> bool:
    """Whether a value is aligned to the right of its column."""
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))
