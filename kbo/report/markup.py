"""HTML from plain values: everything that comes from a run is escaped here and nowhere else.

Functions return markup; those that take text escape it, those that take markup say so.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import resources
from string import Template
from typing import Any

_MANY_POINTS = 300
"""Scattered points from which an image of them is smaller than their outlines."""


def page(title: str, lead: str, sections: Iterable[str]) -> str:
    """A whole page; ``lead`` and ``sections`` are markup."""
    template = Template(resources.files("kbo.report").joinpath("page.html").read_text(encoding="utf-8"))
    return template.substitute(title=escape(title), lead=lead, sections="\n".join(filter(None, sections)))


def section(name: str, heading: str, *parts: str) -> str:
    """A part of the page with a heading; ``parts`` are markup. Empty without any."""
    content = "\n".join(filter(None, parts))
    if not content:
        return ""
    return f'<section aria-labelledby="{name}">\n<h2 id="{name}">{escape(heading)}</h2>\n{content}\n</section>'


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph of text."""
    return f"<p{_class(kind)}>{escape(text)}</p>"


def bullets(texts: Iterable[str]) -> str:
    """A list of texts."""
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f"<ul>{items}</ul>" if items else ""


def code(text: str) -> str:
    """Something to type or to copy, in a box that scrolls by itself."""
    return f'<pre tabindex="0"><code>{escape(text)}</code></pre>'


def more(summary: str, content: str) -> str:
    """Markup that is folded away."""
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"


def definitions(entries: Mapping[str, Any]) -> str:
    """Names and what they are."""
    rows = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(number(v))}</dd></div>" for name, v in entries.items())
    return f"<dl>{rows}</dl>" if rows else ""


def definitions_long(entries: Mapping[str, str]) -> str:
    """Names and sentences about them."""
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(words)}</dd>" for name, words in entries.items())
    return f'<dl class="long">{rows}</dl>' if rows else ""


def cards(*contents: str) -> str:
    """Boxes beside each other; ``contents`` are markup."""
    return f'<div class="cards">{"".join(f"<div>{content}</div>" for content in contents if content)}</div>'


def card(heading: str, figure: str, *parts: str) -> str:
    """What stands in a box: a heading, a large figure, both text, and markup."""
    return f'<h3>{escape(heading)}</h3><p class="figure">{escape(figure)}</p>{"".join(parts)}'


def table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], marked: Iterable[int] = ()) -> str:
    """A table that scrolls in a box of its own.

    Args:
        caption: What it shows.
        columns: Their headings.
        rows: Values; numbers are shown with five digits.
        marked: Rows that stand out.
    """
    stand_out, rows = set(marked), list(rows)
    kinds = ["number" if all(_numeric(row[i]) for row in rows) else "" for i in range(len(columns))]
    head = "".join(f'<th scope="col"{_class(kind)}>{escape(c)}</th>' for c, kind in zip(columns, kinds, strict=True))
    body = "".join(
        f"<tr{_class('marked' if i in stand_out else '')}>{''.join(map(_cell, row))}</tr>" for i, row in enumerate(rows)
    )
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def pictures(*figures: str) -> str:
    """Pictures beside each other, markup of ``picture``."""
    content = "".join(filter(None, figures))
    return f'<div class="pictures">{content}</div>' if content else ""


def picture(figure: Any, heading: str, caption: str, alt: str) -> str:
    """A matplotlib figure in the page itself.

    Args:
        figure: The figure.
        heading: What it is.
        caption: How to read it.
        alt: What it shows, for those who cannot see it.
    """
    width, height = (round(96 * inches) for inches in figure.get_size_inches())
    source = base64.b64encode(_svg(figure)).decode()
    return (
        f'<figure><img src="data:image/svg+xml;base64,{source}" alt="{escape(alt)}" width="{width}" height="{height}">'
        f"<figcaption><strong>{escape(heading)}.</strong> {escape(caption)}</figcaption></figure>"
    )


def number(value: Any) -> str:
    """A value as text: numbers with five digits, nothing as a dash."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return "-" if math.isnan(value) else f"{value:.5g}"
    return str(value)


def _svg(figure: Any) -> bytes:
    """Outlines instead of fonts, so that it looks the same everywhere; no date, so that equal runs give equal pages."""
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
    return file.getvalue()


def _numeric(value: Any) -> bool:
    """Whether it stands to the right of its column."""
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))


def _cell(value: Any) -> str:
    return f"<td{_class('number' if _numeric(value) else '')}>{escape(number(value))}</td>"


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""
