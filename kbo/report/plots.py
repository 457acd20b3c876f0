"""The figures of a run by groups, for its page and for ``plot``."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from gpytorch.kernels import Kernel

from kbo._base import checks
from kbo._base.isolation import isolated
from kbo._base.plotting import blank, dress
from kbo.errors import InvalidInput, KboError
from kbo.optimize.insight.answers import Answers
from kbo.optimize.insight.credible_sets import Effect
from kbo.optimize.insight.front import Front
from kbo.optimize.objectives.hypervolume import EXACT
from kbo.optimize.run.table import by_name
from kbo.report import figures
from kbo.report.record import Record, Run
from kbo.report.replay import Moment, history, miscoverage
from kbo.report.sensitivity import Importance, importance

MOST_SLICES = 12
"""Largest number of parameters with a slice; the most important ones have one."""

MOST_PAIRED = 2
"""Number of the most important parameters whose pairs have a contour."""

GROUPS = (
    "front",
    "history",
    "limits",
    "slices",
    "importance",
    "contours",
    "curves",
    "bounds",
    "overview",
)
"""Names of the groups of figures; each is a method of ``Plots``."""


@dataclass(frozen=True)
class Drawing:
    """A figure to be drawn.

    Attributes:
        draw: A function that draws the figure on given axes.
        height: The height of the figure in inches.
    """

    draw: Callable[[Any], None]
    height: float = 3.2


Group = dict[str, Drawing]
"""Figures of one group, by name; empty if there is nothing to draw."""


class Plots:
    """The figures of a run.

    Args:
        record: The run.
        replay: Whether the bounds after earlier trials are computed. This fits the model many times.
        answers: The statistics of the run, if they are known already.
    """

    def __init__(
        self, record: Record, *, replay: bool = True, answers: Answers | None = None
    ) -> None:
        self.record = record
        self._replay = replay
        self._answers = answers

    def group(self, name: str) -> Group:
        """Return the figures of one of ``GROUPS``."""
        return getattr(self, name)()

    @cached_property
    def moments(self) -> list[Moment]:
        """The states of the run after its trials; empty without a replay, or with several objectives."""
        if not self._replay or self.record.optimizer is None or self.record.objectives:
            return []
        return history(self.record)

    @cached_property
    def answers(self) -> Answers | None:
        """The statistics of the run; None without a model, or in the certified setting."""
        if self._answers is not None or self.record.optimizer is None:
            return self._answers
        with suppress(KboError):  # refuted assumptions
            return self.record.optimizer.insight.answers()
        return None

    @cached_property
    def estimated_front(self) -> Front | None:
        """The estimated front of several objectives; None with one objective, or without a model."""
        if self.record.optimizer is None:
            return None
        with suppress(KboError):  # refuted assumptions
            return self.record.optimizer.insight.front()
        return None

    @cached_property
    def effects(self) -> dict[str, Effect]:
        """The effects of the parameters by name, the largest first; empty without ``answers``."""
        if self.answers is None:
            return {}
        return {effect.name: effect for effect in self.answers.effects}

    @cached_property
    def shares(self) -> list[Importance | Effect]:
        """The importance of the parameters, the largest share first; empty while there is no bound."""
        if self._answers is not None:
            return list(self._answers.effects)
        optimizer = self.record.optimizer
        recommended = self.record.recommended()
        if optimizer is None or recommended is None or self.record.objectives:
            return []
        try:
            if optimizer.interval(recommended.params) is None:
                return []
            return list(importance(self.record))
        except KboError:  # refuted assumptions
            return []

    def _ranked(self) -> list[str]:
        """Return the active parameters of the recommended trial, most important first; empty without bounds."""
        recommended = self.record.recommended()
        if recommended is None:
            return []
        active = by_name(recommended.params)
        return [entry.name for entry in self.shares if entry.name in active]

    def front(self) -> Group:
        """Return a figure of the front for each pair of several objectives."""
        front = self.estimated_front
        if front is None:
            return {}
        group = {}
        for first, second in itertools.combinations(front.objectives, 2):
            draw = partial(
                figures.draw_front, run=self.record, front=front, first=first, second=second
            )
            group[f"{first.name} and {second.name}"] = Drawing(draw, height=3.8)
        return group

    def history(self) -> Group:
        """Return the figure of the values by trial, or of the hypervolume with several objectives."""
        if not self.record.with_status("complete"):
            return {}
        draw = partial(figures.draw_history, run=self.record, moments=self.moments)
        if self.record.objectives:
            if self.estimated_front is None or len(self.record.objectives) > EXACT:
                return {}
            draw = partial(figures.draw_volume, run=self.record, front=self.estimated_front)
        return {"history": Drawing(draw)}

    def limits(self) -> Group:
        """Return a figure for each limit, with the measurements by trial."""
        group = {}
        for constraint in self.record.constraints:
            if any(trial.measurement(constraint.name) is not None for trial in self.record.trials):
                draw = partial(figures.draw_limit, run=self.record, constraint=constraint)
                group[str(constraint)] = Drawing(draw)
        return group

    def slices(self) -> Group:
        """Return a figure of the objective along each of the most important parameters."""
        group = {}
        for name in self._ranked()[:MOST_SLICES]:
            draw = partial(figures.draw_band, run=self.record, parameter=name)
            if name in self.effects:
                draw = partial(draw, best_range=self.effects[name].range)
            group[name] = Drawing(draw)
        return group

    def importance(self) -> Group:
        """Return the figure of the parameters' shares in the variation, if there are at least two parameters."""
        entries = self.shares[:MOST_SLICES]
        if len(entries) < 2:
            return {}
        draw = partial(figures.draw_importance, entries=entries)
        return {"importance": Drawing(draw, height=1.3 + 0.42 * len(entries))}

    def contours(self) -> Group:
        """Return a figure of the objective over each pair of the most important parameters."""
        group = {}
        for first, second in itertools.combinations(self._ranked()[:MOST_PAIRED], 2):
            draw = partial(figures.draw_contour, run=self.record, first=first, second=second)
            group[f"{first} and {second}"] = Drawing(draw, height=3.6)
        return group

    def curves(self) -> Group:
        """Return the figure of learning curves, if trials reported any."""
        if not any(trial.reports for trial in self.record.trials):
            return {}
        return {"curves": Drawing(partial(figures.draw_curves, run=self.record))}

    def bounds(self) -> Group:
        """Return the figures of the width of the bounds over the run, and of values outside their expected ranges."""
        group = {}
        if sum(moment.width is not None for moment in self.moments) > 1:
            draw = partial(figures.draw_width, moments=self.moments)
            group["width"] = Drawing(draw)
        _, n_expected = miscoverage(self.moments)
        if n_expected > 0:
            draw = partial(figures.draw_miscoverage, moments=self.moments)
            group["miscoverage"] = Drawing(draw)
        return group

    def overview(self) -> Group:
        """Return the most important figures: history, importance and two slices; with several objectives the front."""
        if self.record.objectives:
            return self.front() | self.history()
        slices = list(self.slices().items())
        return self.history() | self.importance() | dict(slices[:2])


@isolated
def plot(run: Run, what: str = "overview", *, kernel: Kernel | None = None) -> Any:
    """Return a figure of matplotlib with all figures of one group. Notebooks show it.

    Args:
        run: The run: a result, an optimiser, or the path of a journal.
        what: "overview", "front" (several objectives), "history" (values and intervals), "limits" (measured quantities
            and their limits), "slices" (the objective along each parameter), "importance" (shares of the variation),
            "contours" (pairs of parameters), "curves" (learning curves) or "bounds" (widths and missed values).
        kernel: The kernel of a journal in the certified setting.

    Raises:
        InvalidInput: There is no such figure, or nothing to draw.

    Example:
        >>> kbo.report.plot(result, "slices").savefig("slices.png")
    """
    checks.one_of("what", what, GROUPS)
    drawings = list(Plots(Record.of(run, kernel)).group(what).values())
    if not drawings:
        raise InvalidInput(
            f"there is nothing to draw for {what!r}: the run has no such data (yet)."
        )
    n_columns = min(2, len(drawings))
    heights = []
    for start in range(0, len(drawings), n_columns):
        row = drawings[start : start + n_columns]
        heights.append(max(drawing.height for drawing in row))
    figure = blank(4.6 * n_columns, sum(heights))
    grid = figure.subfigures(len(heights), n_columns, squeeze=False, height_ratios=heights)
    for subfigure, drawing in zip(grid.flat, drawings, strict=False):
        axes = subfigure.add_subplot()
        dress(axes, "", "", "")
        drawing.draw(axes)
        figures.finish(subfigure)
    setattr(figure, "_repr_png_", partial(_png, figure))  # noqa: B010  (notebooks show it, also without pyplot)
    return figure


def _png(figure: Any) -> bytes:
    """Return a figure as the content of a PNG file."""
    file = io.BytesIO()
    figure.savefig(file, dpi=110)
    return file.getvalue()
