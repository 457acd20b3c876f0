"""The pictures of a tuning run with what to read in them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kbo.optimize import Optimizer
from kbo.report import markup, pictures
from kbo.report.record import Record
from kbo.report.replay import NOISE_MARGIN, Moment, surprises

_MOST_PARAMETERS = 12
"""Parameters along which the bounds are drawn."""


def of_values(record: Record, recommended: int | None) -> str:
    """The values of all trials; empty if there are none."""
    complete, failed = record.with_status("complete"), len(record.with_status("failed"))
    if not complete:
        return ""
    figure, axes = pictures.picture()
    pictures.draw_values(axes, record.trials, maximize=record.maximize, recommended=recommended)
    which = "largest" if record.maximize else "smallest"
    caption = (
        f"Every dot is one evaluation; the line is the {which} value so far, which luck makes look better than it is. "
        + ("The ring is the recommended trial. " if recommended is not None else "")
        + ("Crosses at the top are trials that failed." if failed else "")
    )
    alt = f"Values of {len(complete)} trials in the order of asking, with the best so far; {failed} trials failed."
    return _shown(figure, "Values", caption, alt)


def over_time(moments: Sequence[Moment], certified: bool) -> list[str]:
    """What was known after each trial, as far as there were bounds."""
    bounded = [m for m in moments if m.width is not None]
    if len(bounded) < 2:
        return []
    last = bounded[-1]
    found = [
        _drawn(
            lambda axes: pictures.draw_recommended(axes, moments),
            "What was known of the recommended setting",
            "After each trial: the interval of the objective, without noise, at the setting recommended then. "
            + _promise(certified)
            + " The first intervals may be too wide for the frame. The dashed line is the best observed value.",
            f"The interval at the recommended setting over time; at the end from {last.lower:.4g} to {last.upper:.4g}.",
        ),
        _drawn(
            lambda axes: pictures.draw_width(axes, moments),
            "How much is still open",
            "The width of that interval, and how much better than the recommended setting the optimum could still be. "
            + ("" if certified else "Without a guarantee both are rules of thumb. ")
            + "When they stop falling, more trials of this kind teach little.",
            f"The width of the interval over time; at the end {last.width or 0:.4g}.",
        ),
        _numbers(bounded),
    ]
    return found


def _numbers(bounded: Sequence[Moment]) -> str:
    """What the bounds rest on, as far as it changed."""
    return "".join(_drawn(lambda axes, draw=draw: draw(axes, bounded), *words) for draw, *words in _changed(bounded))


def _changed(bounded: Sequence[Moment]) -> Iterator[tuple[Callable[..., None], str, str, str]]:
    """What to draw, its heading, caption and alternative."""
    last = bounded[-1]
    if last.noise_upper is not None:
        yield (
            pictures.draw_noise,
            "The noise level, bounded online",
            "It lies between the lines if the method's assumptions hold, with the probability of the guarantee. The "
            "upper bound is the level that the intervals are computed with; it can only fall.",
            f"Bounds of the noise level over time; at the end {last.noise_lower:.4g} to {last.noise_upper:.4g}.",
        )
    elif _moves(bounded, "noise_std"):
        yield (
            pictures.draw_noise,
            "The noise level",
            "Fitted to the data, again whenever they have grown by a third or so. Large jumps late in a run "
            "say that the fit is not settled.",
            f"The fitted noise level over time; at the end {last.noise_std:.4g}.",
        )
    if _moves(bounded, "norm_bound"):
        yield (
            pictures.draw_norm,
            "The norm bound",
            "Not given but taken from the data: a multiple of the least norm that they allow. If it keeps growing, the "
            "earlier intervals were too narrow.",
            f"The norm bound over time; at the end {last.norm_bound:.4g}.",
        )
    if _moves(bounded, "ridge"):
        yield (
            pictures.draw_ridge,
            "The ridge",
            "The regulariser of the fit: the smaller, the closer it follows the data. It moves with the noise level.",
            f"The ridge over time; at the end {last.ridge:.4g}.",
        )
    if last.anchors is not None:
        yield (
            pictures.draw_dictionary,
            "The dictionary",
            "The posterior is a sketch: it sees all data through this many points, which also sets what a trial costs.",
            f"The size of the dictionary over time; at the end {last.anchors}.",
        )


def of_surprises(moments: Sequence[Moment]) -> str:
    """What was expected of every value; empty if nothing was."""
    outside, expected = surprises(moments)
    if not expected:
        return ""
    return _drawn(
        lambda axes: pictures.draw_surprises(axes, moments),
        "Expected and observed",
        f"Bars: where each value was expected before it was told, its interval widened by {NOISE_MARGIN:g} noise "
        "levels. Dots: the value. Crosses: values outside their bar.",
        f"Expected ranges and observed values of {expected} trials; {outside} lie outside.",
    )


def along_parameters(optimizer: Optimizer, certified: bool) -> list[str]:
    """The bounds along each of the first parameters, the others at the recommended setting."""
    names = list(optimizer.space.parameters)[:_MOST_PARAMETERS]
    alone = len(optimizer.space.parameters) == 1
    where = "" if alone else "All other parameters are as recommended. "
    dots = "Dots are the trials. " if alone else "Dots are the trials, which have other values of them. "
    found = []
    for name in names:
        caption = f"The objective along {name}: its posterior mean and interval. {where}{dots}{_promise(certified)}"
        alt = f"Posterior mean and interval of the objective along the parameter {name}, with the trials."

        def draw(axes: Any, name: str = name) -> None:
            pictures.draw_band(axes, optimizer, name)

        found.append(_drawn(draw, f"Along {name}", caption, alt))
    return found


def left_out(optimizer: Optimizer) -> int:
    """How many parameters ``along_parameters`` does not draw."""
    return max(0, len(optimizer.space.parameters) - _MOST_PARAMETERS)


def _promise(certified: bool) -> str:
    if certified:
        return "The intervals hold as the guarantee says."
    return "Nothing guarantees the intervals; they may be too narrow."


def _moves(moments: Sequence[Moment], what: str) -> bool:
    values = {getattr(m, what) for m in moments}
    return len({v for v in values if v is not None and math.isfinite(v)}) > 1


def _drawn(draw: Callable[[Any], None], heading: str, caption: str, alt: str) -> str:
    figure, axes = pictures.picture()
    draw(axes)
    return _shown(figure, heading, caption, alt)


def _shown(figure: Any, heading: str, caption: str, alt: str) -> str:
    return markup.picture(pictures.finish(figure), heading, caption.strip(), alt)
