"""The line of every method in pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# A method looks the same in every picture: colours of Okabe and Ito, which colour-blind readers can tell apart.
_STYLES = {
    name: style
    for style, names in {
        ("#d55e00", "-"): ["cmm-ucb", "dmm-ucb-adaptive", "chaining-ucb", "mixture", "SoR"],
        ("#0072b2", "--"): ["dmm-ucb", "chaining-ucb-rigorous"],
        ("#009e73", "-"): ["amm-ucb", "c-bbkb, C = 3"],
        ("#cc79a7", "-"): ["ay-gp-ucb"],
        ("#e69f00", "-."): ["igp-ucb"],
        ("#56b4e9", "-"): ["gp-ucb"],
        ("#7f7f7f", ":"): ["random", "kernel-ts"],
        ("#000000", "-"): ["exact", "k-ucb", "kernel-ucb-oracle", "kernel-ts-oracle"],
        ("#d55e00", "--"): ["ek-ucb", "Lemma 3"],
        ("#e69f00", "-"): [
            "ek-ucb, gamma 1",
            "kernel-ucb-adaptive, paper",
            "kernel-ts-adaptive, paper",
            "paper",
        ],
        ("#56b4e9", (0, (1, 1.5))): ["c-bkb"],
        ("#0072b2", "-"): [
            "c-bbkb",
            "kernel-ucb-adaptive",
            "kernel-ts-adaptive",
            "tight+grid",
            "Theorem 1",
        ],
        ("#cc79a7", "-."): [
            "supk-ucb",
            "kernel-ucb-fixed",
            "kernel-ts-fixed",
            "paper, fixed ridge",
        ],
        ("#8c564b", (0, (4, 1, 1, 1))): ["greedy"],
        ("#e69f00", "--"): ["cmm-ucb-adaptive"],
        ("#56b4e9", "--"): ["kernel-ucb-adaptive, tight", "tight", "DTC (kbo)"],
        ("#cc79a7", ":"): ["paper, fixed ridge and gain"],
        ("#7f7f7f", "-"): ["effective dimension"],
    }.items()
    for name in names
}
_COLOURS = ("#000000", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c564b")
_DASHES = ("-", "--", ":")


def styles_of(methods: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Line styles of methods; those without a style of their own take unused colours, as long as there are any."""
    chosen: dict[str, tuple[Any, Any]] = {
        name: _STYLES[name] for name in methods if name in _STYLES
    }
    for name in methods:
        if name not in chosen:
            free = [(c, d) for d in _DASHES for c in _COLOURS if (c, d) not in chosen.values()]
            used = {colour for colour, _ in chosen.values()}
            chosen[name] = next(
                (style for style in free if style[0] not in used),
                (free or [(_COLOURS[0], "-.")])[0],
            )
    return {name: {"color": chosen[name][0], "ls": chosen[name][1]} for name in methods}
