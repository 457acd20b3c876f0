"""The objective along one parameter, and along two, by the model."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kbo._base import checks
from kbo._base.drawing import BLUE, GREY, RING, dot_size, plain_numbers
from kbo._base.surroundings import fixed
from kbo.errors import InvalidInput
from kbo.optimize import Optimizer, Trial
from kbo.optimize.table import by_name
from kbo.report.figures.axes import NO_BOUND, VALUE, frame, shortened, whole_numbers
from kbo.report.record import Record, Run
from kbo.space import Float, Int, Params

OUTSIDE = "violates a constraint"

_POINTS, _GRID = 161, 41
"""Points along a number, and along each of two; fewer where there are fewer whole numbers."""


@dataclass(frozen=True)
class Along:
    """Points along a parameter.

    Attributes:
        name: The parameter.
        values: Its values: increasing numbers, or options.
        options: Whether the values are options.
        log: Whether they are on a logarithmic scale.
    """

    name: str
    values: list[Any]
    options: bool
    log: bool

    @property
    def places(self) -> list[Any]:
        """The coordinates of the values in a figure."""
        return list(range(len(self.values))) if self.options else self.values

    def place_of(self, trial: Trial) -> Any:
        """Return the coordinate of a trial; None if it has no value of the parameter."""
        params = by_name(trial.params)
        if self.name not in params:
            return None
        return self.values.index(params[self.name]) if self.options else params[self.name]


@dataclass(frozen=True)
class Slice(Along):
    """Bounds along a parameter, in units of the objective.

    Attributes:
        lower, mean, upper: The interval at each value.
        allowed: Whether each value satisfies the constraints of the space.
        whole: Whether the parameter is the only one, so that the slice is the whole function.
    """

    lower: list[float]
    mean: list[float]
    upper: list[float]
    allowed: list[bool]
    whole: bool

    @property
    def outside(self) -> list[tuple[float, float]]:
        """The intervals of the coordinates around values that violate a constraint."""
        places = self.places
        between = [(a + b) / 2 for a, b in itertools.pairwise(places)]
        edges = [places[0] - 0.5 * self.options, *between, places[-1] + 0.5 * self.options]
        runs = [
            list(run)
            for allowed, run in itertools.groupby(range(len(places)), self.allowed.__getitem__)
            if not allowed
        ]
        return [(edges[run[0]], edges[run[-1] + 1]) for run in runs]


@fixed
def slice_of(run: Run, parameter: str, at: Params | None = None) -> Slice:
    """Return the bounds along a parameter.

    Args:
        run: The run.
        parameter: Name of the parameter; "x0", "x1", ... where the bounds are a list.
        at: Values of the other parameters; by default those of the recommended setting.

    Raises:
        InvalidInput: There is no such parameter, it is not active there, or there is no bound yet.
        RefutedAssumptions: In the certified setting, no function satisfies the assumptions.
    """
    optimizer = Record.of(run).reopened()
    along, units = _along(optimizer, parameter, _POINTS)
    points = _centre(optimizer, at, parameter).repeat(len(units), 1)
    points[:, list(optimizer.space.parameters).index(parameter)] = units
    bounds = (bound.tolist() for bound in _interval(optimizer, points))
    allowed = optimizer.space.satisfies(points).tolist()
    return Slice(*vars(along).values(), *bounds, allowed, whole=optimizer.space.dimension == 1)


@fixed
def draw_band(axes: Any, run: Run, parameter: str, at: Params | None = None) -> None:
    """Draw the bounds along one parameter, the others at the recommended setting, and the trials.

    Args:
        axes: Where to draw.
        run: The run.
        parameter: Name of the parameter; "x0", "x1", ... where the bounds are a list.
        at: Other values of the other parameters.

    Raises:
        InvalidInput: There is no such parameter, it is not active there, or there is no bound yet.
    """
    record = Record.of(run)
    found, chosen, complete = (
        slice_of(record, parameter, at),
        record.recommended(),
        record.with_status("complete"),
    )
    assert chosen is not None
    if found.options or len(found.values) < 12:
        below = [m - low for m, low in zip(found.mean, found.lower, strict=True)]
        above = [high - m for m, high in zip(found.mean, found.upper, strict=True)]
        style = {"fmt": "s", "ms": 5, "color": BLUE, "capsize": 5, "lw": 1.6}
        axes.errorbar(found.places, found.mean, [below, above], label="mean, interval", **style)
    else:
        axes.fill_between(
            found.places, found.lower, found.upper, color=BLUE, alpha=0.2, lw=0, label="interval"
        )
        axes.plot(found.places, found.mean, color=BLUE, lw=1.6, label="posterior mean")
    dots = [
        (x, trial.value or 0.0) for trial in complete if (x := found.place_of(trial)) is not None
    ]
    label = "trials (noisy)" if found.whole else "trials, others differ"
    axes.scatter(
        *zip(*dots, strict=True),
        s=dot_size(len(dots)),
        color=GREY,
        alpha=0.8,
        lw=0,
        label=label,
        zorder=2.5,
    )
    axes.scatter(found.place_of(chosen), chosen.value, label="recommended", **RING)
    for number, (start, end) in enumerate(found.outside):
        axes.axvspan(
            start, end, color=GREY, alpha=0.25, lw=0, zorder=0, label=None if number else OUTSIDE
        )
    values = [value for _, value in dots]
    frame(axes, values, [*found.mean, chosen.value or 0.0], [*found.lower, *found.upper])
    axes.set_ylabel(VALUE)
    _label(axes, axes.xaxis, found)


@fixed
def draw_contour(axes: Any, run: Run, first: str, second: str, at: Params | None = None) -> None:
    """Draw the posterior mean over two parameters, the others at the recommended setting, and the trials.

    Args:
        axes: Where to draw.
        run: The run.
        first: Name of the horizontal parameter.
        second: Name of the vertical parameter.
        at: Other values of the other parameters.

    Raises:
        InvalidInput: There is no such parameter, it is not active there, or there is no bound yet.
    """
    record = Record.of(run)
    optimizer, names = record.reopened(), list(record.space.parameters)
    if first == second:
        raise InvalidInput(f"a contour needs two different parameters, got {first!r} twice.")
    (x, u), (y, v) = (_along(optimizer, name, _GRID) for name in (first, second))
    points = _centre(optimizer, at, first, second).repeat(len(u) * len(v), 1)
    points[:, names.index(first)], points[:, names.index(second)] = (
        u.repeat(len(v)),
        v.repeat_interleave(len(u)),
    )
    mean = _interval(optimizer, points)[1].reshape(len(v), len(u))
    mesh = axes.pcolormesh(
        x.places, y.places, mean, shading="nearest", cmap="viridis", rasterized=True
    )
    outside = ~optimizer.space.satisfies(points).reshape(mean.shape)
    if bool(outside.any()):
        grey = torch.where(outside, 1.0, torch.nan)
        axes.pcolormesh(
            x.places,
            y.places,
            grey,
            shading="nearest",
            cmap="Greys",
            vmin=0,
            vmax=2,
            rasterized=True,
        )
        axes.scatter([], [], marker="s", color="0.6", label=OUTSIDE)
    axes.grid(visible=False)
    bar = axes.figure.colorbar(mesh, ax=axes, label="posterior mean")
    bar.outline.set_visible(False)
    complete, chosen = record.with_status("complete"), record.recommended()
    assert chosen is not None
    places = [[along.place_of(trial) for along in (x, y)] for trial in complete]
    dots = zip(*(place for place in places if None not in place), strict=True)
    axes.scatter(*dots, s=dot_size(len(places)), color="black", ec="white", lw=0.5, label="trials")
    axes.scatter(*(along.place_of(chosen) for along in (x, y)), label="recommended", **RING)
    _label(axes, axes.xaxis, x)
    _label(axes, axes.yaxis, y)


def _along(optimizer: Optimizer, parameter: str, most: int) -> tuple[Along, Tensor]:
    """Return points along a parameter, and their unit coordinates."""
    parameters = optimizer.space.parameters
    described = parameters[checks.one_of("the parameter", parameter, parameters)]
    known, unordered = described.options, not isinstance(described, (Float, Int))
    if not known or (len(known) > most and not unordered):
        units = torch.linspace(0, 1, most, dtype=torch.float64)
    else:
        units = described.middles(torch.arange(len(known)))
    return Along(
        parameter, [described.value(u) for u in units.tolist()], unordered, described.log
    ), units


def _centre(optimizer: Optimizer, at: Params | None, *parameters: str) -> Tensor:
    """Return the point [P] of the unit cube through which slices along some parameters go."""
    best = optimizer.recommended()
    if best is None or optimizer.interval(best.params) is None:
        raise InvalidInput(NO_BOUND)
    params = optimizer.space.canonical(best.params if at is None else at)
    for parameter in set(parameters) - set(by_name(params)):
        raise InvalidInput(
            f"{parameter!r} is not active at {checks.shown(params)}: pass at=, the params of a trial with it."
        )
    return optimizer.space.unit(params)


def _interval(optimizer: Optimizer, points: Tensor) -> tuple[Tensor, ...]:
    """Return lower bound, mean and upper bound [n] of the objective at points [n P] of the unit cube."""
    found = optimizer.intervals(points)
    assert found is not None
    return tuple(bound.cpu() for bound in found)


def _label(axes: Any, axis: Any, along: Along) -> None:
    """Write the name of a parameter and its scale beside an axis."""
    horizontal = axis is axes.xaxis
    if along.options:
        names = [shortened(str(value), 14) for value in along.values]
        turned = horizontal and sum(map(len, names)) >= 30
        axis.set_ticks(along.places, names, **({"rotation": 30, "ha": "right"} if turned else {}))
        (axes.set_xlim if horizontal else axes.set_ylim)(-0.6, len(names) - 0.4)
    elif along.log:
        (axes.set_xscale if horizontal else axes.set_yscale)("log")
        plain_numbers(axis)
    elif all(isinstance(value, int) for value in along.values):
        whole_numbers(axis)
    axis.set_label_text(shortened(along.name, 40) + " (logarithmic)" * along.log)
