"""Pages from the templates of this folder: every value is escaped, and pictures are part of the page."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from kbo._base.extras import require

require("kbo.report", "cli", "jinja2", "matplotlib")

import jinja2
import matplotlib

from kbo._base.drawing import BLUE, GREEN, GREY, ORANGE, RED
from kbo._base.terminal import printable

POLL = 3.0
"""Seconds after which an open page of a run that goes on asks for the next one."""

_MANY_POINTS = (
    300  # scattered points, or lines, from which an image of them is smaller than their outlines
)

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
"""Colours of figures on a dark page, by those on a light one; others stay as they are."""


def _variables(colours: Mapping[str, str]) -> str:
    return (
        "svg{"
        + "".join(f"--{name[1:]}:{colour};" for name, colour in colours.items())
        + "fill:var(--000000)}"
    )


_STYLE = f"{_variables({c: c for c in _DARK})} @media (prefers-color-scheme: dark) {{{_variables(_DARK)}}}"


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
    """Return a matplotlib figure as SVG, with the colours of the light or the dark page around it.

    Its text is outlines, so that it looks the same everywhere, and it holds no date, so that equal runs give equal
    pages.
    """
    figure.set_facecolor("none")
    for axes in figure.axes:
        axes.set_facecolor("none")
        for collection in axes.collections:
            if max(len(collection.get_offsets()), len(collection.get_paths())) > _MANY_POINTS:
                collection.set_rasterized(True)
    file = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "kbo", "svg.fonttype": "path"}):
        figure.savefig(file, format="svg", dpi=200, metadata={"Date": None, "Creator": None})
    text = file.getvalue().decode()
    for color in _DARK:
        text = text.replace(color, f"var(--{color[1:]})")
    text = text.replace("<defs>", f"<style>{_STYLE}</style>\n <defs>", 1)
    width, height = (round(96 * inches) for inches in figure.get_size_inches())
    return Picture(
        f"data:image/svg+xml;base64,{base64.b64encode(text.encode()).decode()}", width, height
    )


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
    environment.globals["poll"] = POLL
    return environment


def _visible(value: Any) -> Any:
    """Return text with its control characters as escape sequences; pages of others are passed on."""
    return printable(value) if type(value) is str else value


def _numeric(value: Any) -> bool:
    """Whether a value is aligned to the right of its column."""
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))
