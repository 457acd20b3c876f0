"""The line of every method in pictures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

# Colours of Okabe and Ito, which colour-blind readers can tell apart.
_BLACK = "#000000"
_BLUE = "#0072b2"
_BROWN = "#8c564b"
_GREEN = "#009e73"
_GREY = "#7f7f7f"
_ORANGE = "#e69f00"
_PINK = "#cc79a7"
_RED = "#d55e00"
_SKY = "#56b4e9"

_COLOURS = (_BLACK, _BLUE, _RED, _GREEN, _PINK, _ORANGE, _SKY, _BROWN)
_DASHES = ("-", "--", ":")

_Style = tuple[str, Any]
"""A colour and a dash of matplotlib."""

_STYLES: dict[str, _Style] = {
    "amm-ucb": (_GREEN, "-"),
    "ay-gp-ucb": (_PINK, "-"),
    "c-bbkb": (_BLUE, "-"),
    "c-bbkb, C = 3": (_GREEN, "-"),
    "c-bkb": (_SKY, (0, (1, 1.5))),
    "chaining-ucb": (_RED, "-"),
    "chaining-ucb-rigorous": (_BLUE, "--"),
    "cmm-ucb": (_RED, "-"),
    "cmm-ucb-adaptive": (_ORANGE, "--"),
    "dmm-ucb": (_BLUE, "--"),
    "dmm-ucb-adaptive": (_RED, "-"),
    "DTC (kbo)": (_SKY, "--"),
    "effective dimension": (_GREY, "-"),
    "ek-ucb": (_RED, "--"),
    "ek-ucb, gamma 1": (_ORANGE, "-"),
    "exact": (_BLACK, "-"),
    "gp-ucb": (_SKY, "-"),
    "greedy": (_BROWN, (0, (4, 1, 1, 1))),
    "igp-ucb": (_ORANGE, "-."),
    "k-ucb": (_BLACK, "-"),
    "kernel-ts": (_GREY, ":"),
    "kernel-ts-adaptive": (_BLUE, "-"),
    "kernel-ts-adaptive, paper": (_ORANGE, "-"),
    "kernel-ts-fixed": (_PINK, "-."),
    "kernel-ts-oracle": (_BLACK, "-"),
    "kernel-ucb-adaptive": (_BLUE, "-"),
    "kernel-ucb-adaptive, paper": (_ORANGE, "-"),
    "kernel-ucb-adaptive, tight": (_SKY, "--"),
    "kernel-ucb-fixed": (_PINK, "-."),
    "kernel-ucb-oracle": (_BLACK, "-"),
    "Lemma 3": (_RED, "--"),
    "mixture": (_RED, "-"),
    "paper": (_ORANGE, "-"),
    "paper, fixed ridge": (_PINK, "-."),
    "paper, fixed ridge and gain": (_PINK, ":"),
    "random": (_GREY, ":"),
    "SoR": (_RED, "-"),
    "supk-ucb": (_PINK, "-."),
    "Theorem 1": (_BLUE, "-"),
    "tight": (_SKY, "--"),
    "tight+grid": (_BLUE, "-"),
}
"""The styles of the methods of the papers: a method looks the same in every picture."""


def styles_of(methods: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Line styles of methods, as options of matplotlib.

    A method without its own style gets an unused one, with an unused colour if there is one.
    """
    chosen = {name: _STYLES[name] for name in methods if name in _STYLES}
    for name in methods:
        if name not in chosen:
            chosen[name] = next(_unused(list(chosen.values())), (_BLACK, "-."))
    return {name: {"color": chosen[name][0], "ls": chosen[name][1]} for name in methods}


def _unused(used: Sequence[_Style]) -> Iterator[_Style]:
    """Yield the unused styles; styles with an unused colour come first."""
    free = [(colour, dash) for dash, colour in product(_DASHES, _COLOURS)]
    free = [style for style in free if style not in used]
    used_colours = {colour for colour, _ in used}
    yield from (style for style in free if style[0] not in used_colours)
    yield from free
