"""HTML pages from the templates of this package. Every value is escaped, and pictures are embedded."""

from __future__ import annotations

import base64
import io
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from kbo._base.extras import require

require("kbo.report", "cli", "jinja2", "matplotlib")

import jinja2
import matplotlib
from markupsafe import Markup, escape

from kbo._base.plotting import BLUE, GREEN, GREY, ORANGE, RED
from kbo._base.terminal import printable

POLL = 3.0
"""Seconds after which an open page of a running optimisation asks for a newer one."""

_MANY_POINTS = 300
"""From this number of points or lines on, an image of them is smaller than their outlines."""

_DARK = {
    "#000000": "#e6e9ed",
    "#ffffff": "#14171b",
    "#b0b0b0": "#4b535e",
    BLUE: "#56b4e9",
    RED: "#ff8a45",
    GREEN: "#2cc79b",
    GREY: "#9aa1a9",
    ORANGE: "#f0c04a",
}
"""Colours of figures on a dark page, by the colour on a light page; other colours are the same on both."""


def _variables(colours: Mapping[str, str]) -> str:
    """Return the CSS variables for the colours of a figure."""
    variables = "".join(f"--{name[1:]}:{colour};" for name, colour in colours.items())
    return f"svg{{{variables}fill:var(--000000)}}"


_LIGHT_STYLE = _variables({colour: colour for colour in _DARK})
_STYLE = f"{_LIGHT_STYLE} @media (prefers-color-scheme: dark) {{{_variables(_DARK)}}}"


@dataclass(frozen=True)
class Picture:
    """A picture as a data URL, with width and height in pixels."""

    source: str
    width: int
    height: int


class Hint(NamedTuple):
    """A text in a table, with details that appear while the pointer is over it."""

    text: str
    details: str


def render(template: str, **values: Any) -> str:
    """Return the page of a template, filled with values."""
    return _environment().get_template(template).render(**values)


def embed(figure: Any) -> Picture:
    """Return a matplotlib figure as an SVG picture, whose colours follow the light or dark page.

    Text is drawn as outlines, so it looks the same everywhere. There is no date, so equal runs give equal pages.
    """
    figure.set_facecolor("none")
    for axes in figure.axes:
        axes.set_facecolor("none")
        for collection in axes.collections:
            n_marks = max(len(collection.get_offsets()), len(collection.get_paths()))
            if n_marks > _MANY_POINTS:
                collection.set_rasterized(True)
    file = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "kbo", "svg.fonttype": "path"}):
        figure.savefig(file, format="svg", dpi=200, metadata={"Date": None, "Creator": None})
    text = file.getvalue().decode()
    for colour in _DARK:
        text = text.replace(colour, f"var(--{colour[1:]})")
    text = text.replace("<defs>", f"<style>{_STYLE}</style>\n <defs>", 1)
    content = base64.b64encode(text.encode()).decode()
    width, height = figure.get_size_inches()
    return Picture(f"data:image/svg+xml;base64,{content}", round(96 * width), round(96 * height))


def number(value: Any) -> str:
    """Return a value as text: a float with five digits, None and NaN as a dash."""
    if value is None:
        return "-"
    if not isinstance(value, float):
        return str(value)
    if math.isnan(value):
        return "-"
    return f"{value:.5g}"


def prose(value: Any) -> Markup:
    """Return a value as text, escaped, in which the commands between backticks are code."""
    text = str(escape(printable(number(value))))
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", text))


@cache
def _environment() -> jinja2.Environment:
    """Return the environment of the templates, with the filters and tests that they use."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("kbo.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_visible,
    )
    environment.filters["number"] = number
    environment.filters["prose"] = prose
    environment.tests["hint"] = _is_hint
    environment.tests["numeric"] = _is_numeric
    environment.globals["poll"] = POLL
    return environment


def _visible(value: Any) -> Any:
    """Return a text with escape sequences for its control characters; markup is returned unchanged."""
    if type(value) is str:
        return printable(value)
    return value


def _is_hint(value: Any) -> bool:
    """Return whether the value of a cell has details."""
    return isinstance(value, Hint)


def _is_numeric(value: Any) -> bool:
    """Return whether a value is a number or None, which are aligned to the right."""
    if isinstance(value, bool):
        return False
    return value is None or isinstance(value, (int, float))
