"""The figures of a run, by groups: those of its page, and of ``plot``."""

from __future__ import annotations

import io
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from gpytorch.kernels import Kernel

from kbo._base import checks
from kbo._base.drawing import blank, dress
from kbo._base.surroundings import fixed
from kbo.errors import InvalidInput, KboError
from kbo.optimize.run.trials import quantity
from kbo.report import figures
from kbo.report.record import Record, Run
from kbo.report.replay import Moment, history, miscoverage
from kbo.report.sensitivity import Importance, importance

MOST_SLICES, MOST_PAIRED = 12, 3
"""Parameters with a slice, and those of which each pair has a contour: the most important ones."""

_ROW = 0.42  # inches


@dataclass(frozen=True)
class Drawing:
    """A figure to be drawn.

    Attributes:
        draw: Draws it on given axes.
        height: The height of the figure in inches.
    """

    draw: Callable[[Any], None]
    height: float = 3.2


Group = dict[str, Drawing]
"""Figures of one kind, by name; empty where there is nothing to draw."""


class Plots:
    """The figures of a run; each group is a property.

    Args:
        record: The run.
        replay: Whether to compute the bounds after earlier trials, which takes a fit of the model for many of them.
    """

    def __init__(self, record: Record, *, replay: bool = True) -> None:
        self.record = record
        self._replay = replay

    @cached_property
    def moments(self) -> list[Moment]:
        """The states of the run after its trials."""
        return history(self.record) if self._replay and self.record.optimizer is not None else []

    @cached_property
    def indices(self) -> list[Importance]:
        """The importance of the parameters; empty while there is no bound."""
        optimizer, best = self.record.optimizer, self.record.recommended()
        try:
            known = (
                optimizer is not None
                and best is not None
                and optimizer.interval(best.params) is not None
            )
            return importance(self.record) if known else []
        except KboError:  # of refuted assumptions
            return []

    @property
    def ranked(self) -> list[str]:
        """The parameters that the recommended setting has, the most important first, if there are bounds."""
        best = self.record.recommended()
        space = self.record.space
        return [i.name for i in self.indices if best and (not space.named or i.name in best.params)]

    @property
    def history(self) -> Group:
        """Values in the order of trials."""
        if not self.record.with_status("complete"):
            return {}
        return {
            "history": Drawing(partial(figures.draw_history, run=self.record, moments=self.moments))
        }

    @property
    def limits(self) -> Group:
        """Measured quantities with their limits, in the order of trials."""
        return {
            str(c): Drawing(partial(figures.draw_limit, run=self.record, constraint=c))
            for c in self.record.constraints
            if any(quantity(trial, c) is not None for trial in self.record.trials)
        }

    @property
    def slices(self) -> Group:
        """The objective along each parameter."""
        names = self.ranked[:MOST_SLICES]
        return {
            name: Drawing(partial(figures.draw_band, run=self.record, parameter=name))
            for name in names
        }

    @property
    def importance(self) -> Group:
        """Sobol indices, of two parameters or more."""
        if len(self.indices) < 2:
            return {}
        entries = self.indices[:MOST_SLICES]
        draw = partial(figures.draw_importance, entries=entries)
        return {"importance": Drawing(draw, 1.3 + _ROW * len(entries))}

    @property
    def parallel(self) -> Group:
        """Parallel coordinates, of two parameters or more."""
        rows = self.record.space.dimension
        if not 2 <= rows <= 2 * MOST_SLICES or len(self.record.with_status("complete")) < 2:
            return {}
        return {
            "parallel": Drawing(
                partial(figures.draw_parallel, run=self.record), 1.3 + _ROW * (rows + 1)
            )
        }

    @property
    def contours(self) -> Group:
        """The objective over pairs of parameters."""
        pairs = itertools.combinations(self.ranked[:MOST_PAIRED], 2)
        return {
            f"{first} and {second}": Drawing(
                partial(figures.draw_contour, run=self.record, first=first, second=second), 3.6
            )
            for first, second in pairs
        }

    @property
    def timeline(self) -> Group:
        """Trials in time, if some ran at the same time."""
        rows = 1 + max((piece.lane for piece in figures.lanes(self.record.trials)), default=0)
        draw = partial(figures.draw_timeline, run=self.record)
        return {"timeline": Drawing(draw, 1.4 + 0.25 * rows)} if rows > 1 else {}

    @property
    def curves(self) -> Group:
        """Learning curves, if trials reported any."""
        draw = partial(figures.draw_curves, run=self.record)
        return (
            {"curves": Drawing(draw)} if any(trial.reports for trial in self.record.trials) else {}
        )

    @property
    def bounds(self) -> Group:
        """Quantities in the bounds, over the run, of those that changed; bounds of the noise level always."""
        known = [m for m in self.moments if m.width is not None]
        found: Group = {}
        if len(known) > 1:
            values = {
                name: {getattr(m, name) for m in known} - {None}
                for name in ("noise_std", "norm_bound", "ridge")
            }
            quantities = [
                name for name, each in values.items() if sum(map(math.isfinite, each)) > 1
            ]
            if known[-1].noise_upper is not None:
                quantities = ["noise_bounds", *(name for name in quantities if name != "noise_std")]
            quantities += ["anchors"] * (known[-1].anchors is not None)
            found["width"] = Drawing(partial(figures.draw_width, moments=self.moments))
            found |= {
                name: Drawing(partial(figures.draw_quantity, moments=known, quantity=name))
                for name in quantities
            }
        if miscoverage(self.moments)[1]:
            found["miscoverage"] = Drawing(partial(figures.draw_miscoverage, moments=self.moments))
        return found

    @property
    def overview(self) -> Group:
        """History, importance, and slices of the two most important parameters."""
        return self.history | self.importance | dict(list(self.slices.items())[:2])


GROUPS = tuple(
    name for name, value in vars(Plots).items() if isinstance(value, property) and name != "ranked"
)


@fixed
def plot(run: Run, what: str = "overview", *, kernel: Kernel | None = None) -> Any:
    """Return a figure of matplotlib with the figures of one kind, which notebooks show.

    Args:
        run: The run: a result, an optimiser, or the path of a journal.
        what: "overview", or one of "history" (values and intervals), "limits" (measured
            quantities and their limits), "slices" (the effect of each parameter),
            "importance" (Sobol indices), "parallel" (coordinates), "contours" (pairs of parameters), "timeline" (trials
            that ran at the same time), "curves" (what trials reported) and "bounds".
        kernel: The kernel of a journal in the certified setting.

    Raises:
        InvalidInput: There is no such figure, or nothing to draw.

    Example:
        >>> kbo.report.plot(result, "slices").savefig("slices.png")
    """
    group: Group = getattr(Plots(Record.of(run, kernel)), checks.one_of("what", what, GROUPS))
    if not group:
        raise InvalidInput(
            f"there is nothing to draw for {what!r}: the run has no such data (yet)."
        )
    across = min(2, len(group))
    rows = [list(group.values())[i : i + across] for i in range(0, len(group), across)]
    heights = [max(drawing.height for drawing in row) for row in rows]
    figure = blank(4.6 * across, sum(heights))
    grid = figure.subfigures(len(rows), across, squeeze=False, height_ratios=heights)
    for part, drawing in itertools.zip_longest(grid.flat, group.values()):
        if drawing is not None:
            axes = part.add_subplot()
            dress(axes, "", "", "")
            drawing.draw(axes)
            figures.finish(part)
    setattr(figure, "_repr_png_", partial(_png, figure))  # noqa: B010  (notebooks show it, also without pyplot)
    return figure


def _png(figure: Any) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, dpi=110)
    return file.getvalue()
