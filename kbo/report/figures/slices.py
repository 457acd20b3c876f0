"""Figures of the model along one parameter and over two parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kbo._base import checks
from kbo._base.isolation import isolated
from kbo._base.plotting import BLUE, GREEN, GREY, RING, dot_size, plain_numbers
from kbo.errors import InvalidInput
from kbo.optimize import Optimizer, Trial
from kbo.optimize.insight.credible_sets import CredibleSet
from kbo.optimize.run.table import by_name
from kbo.report.figures.axes import NO_BOUND, VALUE, frame, shortened, whole_numbers
from kbo.report.record import Record, Run
from kbo.space import Float, Int

OUTSIDE = "violates a constraint"

_POINTS = 161
"""Number of points along a numeric parameter; fewer if it has fewer values."""

_GRID = 41
"""Number of points along each of two numeric parameters."""

_LEAST_CURVE = 12
"""From this number of values on, intervals are drawn as a band, otherwise as bars."""


@dataclass(frozen=True)
class Along:
    """Points along a parameter, the coordinates of a figure.

    Attributes:
        name: The name of the parameter.
        values: The values of the parameter: increasing numbers, or options.
        options: Whether the values are options.
        log: Whether the scale is logarithmic.
    """

    name: str
    values: list[Any]
    options: bool
    log: bool

    @property
    def places(self) -> list[Any]:
        """The coordinates of the values in a figure."""
        if self.options:
            return list(range(len(self.values)))
        return self.values

    def place_of(self, trial: Trial) -> Any:
        """Return the coordinate of a trial; None if it has no value of the parameter."""
        params = by_name(trial.params)
        value = params.get(self.name)
        if self.name not in params or not self._has(value):
            return None
        if self.options:
            return self.values.index(value)
        return value

    def _has(self, value: Any) -> bool:
        """Return whether the axis has a place for a value; the space may have changed since the trial."""
        if self.options:
            return value in self.values
        return isinstance(value, (int, float)) and self.values[0] <= value <= self.values[-1]


@dataclass(frozen=True)
class Slice(Along):
    """Bounds along a parameter, in units of the objective.

    Attributes:
        lower, mean, upper: The interval at each value.
        allowed: Whether each value satisfies the constraints of the space.
    """

    lower: list[float]
    mean: list[float]
    upper: list[float]
    allowed: list[bool]


@isolated
def slice_of(run: Run, parameter: str) -> Slice:
    """Return the bounds of the objective along a parameter, the other parameters as recommended.

    Args:
        run: The run.
        parameter: The name of the parameter; "x0", "x1", ... if the bounds are a list.

    Raises:
        InvalidInput: There is no such parameter, it is not active there, or there is no bound yet.
        RefutedAssumptions: In the certified setting, no function satisfies the assumptions.
    """
    optimizer = Record.of(run).reopened()
    space = optimizer.space
    along, units = _along(optimizer, parameter, _POINTS)
    points = _centre(optimizer, parameter).repeat(len(units), 1)
    points[:, list(space.parameters).index(parameter)] = units
    lower, mean, upper = _interval(optimizer, points)
    return Slice(
        **vars(along),
        lower=lower.tolist(),
        mean=mean.tolist(),
        upper=upper.tolist(),
        allowed=space.satisfies(points).tolist(),
    )


@isolated
def draw_band(
    axes: Any,
    run: Run,
    parameter: str,
    best_range: CredibleSet | None = None,
) -> None:
    """Draw the bounds of the objective along a parameter, the other parameters as recommended, and the trials.

    Args:
        axes: The axes to draw on.
        run: The run.
        parameter: The name of the parameter; "x0", "x1", ... if the bounds are a list.
        best_range: The values of the parameter that may be optimal. They are shaded, unless they are all values.

    Raises:
        InvalidInput: There is no such parameter, it is not active there, or there is no bound yet.
    """
    record = Record.of(run)
    band = slice_of(record, parameter)
    _shade(axes, band, best_range)  # first: matplotlib cannot place a span beside values of 1e308
    _draw_bounds(axes, band)
    places = []
    values = []
    for trial in record.with_status("complete"):
        place = band.place_of(trial)
        if place is not None:
            places.append(place)
            values.append(trial.value)
    label = "trials, others differ"
    if record.space.dimension == 1:
        label = "trials (noisy)"
    style = {"color": GREY, "alpha": 0.8, "lw": 0, "zorder": 2.5}
    axes.scatter(places, values, s=dot_size(len(places)), label=label, **style)
    needed = list(band.mean)
    recommended = record.recommended()
    if recommended is not None and recommended.value is not None:
        place = band.place_of(recommended)
        axes.scatter([place], [recommended.value], label="recommended", **RING)
        needed.append(recommended.value)
    frame(axes, values, needed, [*band.lower, *band.upper])
    axes.set_ylabel(VALUE)
    _label(axes, axes.xaxis, band)


def _shade(axes: Any, band: Slice, best_range: CredibleSet | None) -> None:
    """Shade the values that violate a constraint, and the values that may be optimal."""
    _shade_violations(axes, band)
    if best_range is None or best_range.has_all:
        return
    label = "best setting, 90%"
    places = list(best_range.values)
    if band.options:
        places = [band.values.index(value) for value in places]
    margin = 0.0
    if band.options or len(band.values) < _LEAST_CURVE:
        margin = 0.3
    spans = [(place - margin, place + margin) for place in places]
    if best_range.ranged:
        spans = [(places[0] - margin, places[-1] + margin)]
    for start, end in spans:
        axes.axvspan(start, end, color=GREEN, alpha=0.12, lw=0, zorder=0, label=label)
        label = ""  # one entry in the legend


def _shade_violations(axes: Any, band: Slice) -> None:
    """Shade the values that violate a constraint."""
    if all(band.allowed):
        return
    style = {"color": GREY, "alpha": 0.25, "lw": 0, "zorder": 0}
    if not band.options and len(band.values) >= _LEAST_CURVE:
        violates = [not allowed for allowed in band.allowed]
        transform = axes.get_xaxis_transform()
        style |= {"where": violates, "step": "mid", "transform": transform}
        axes.fill_between(band.places, 0, 1, label=OUTSIDE, **style)
        return
    label = OUTSIDE
    for place, allowed in zip(band.places, band.allowed, strict=True):
        if not allowed:
            axes.axvspan(place - 0.5, place + 0.5, label=label, **style)
            label = ""  # one entry in the legend


def _draw_bounds(axes: Any, band: Slice) -> None:
    """Draw mean and interval: as bars for options and for few numbers, otherwise as a band."""
    if band.options or len(band.values) < _LEAST_CURVE:
        mean = torch.tensor(band.mean)
        ends = [mean - torch.tensor(band.lower), torch.tensor(band.upper) - mean]
        style = {"fmt": "s", "ms": 5, "color": BLUE, "capsize": 5, "lw": 1.6}
        axes.errorbar(band.places, band.mean, ends, label="mean, interval", **style)
        return
    style = {"color": BLUE, "alpha": 0.2, "lw": 0}
    axes.fill_between(band.places, band.lower, band.upper, label="interval", **style)
    axes.plot(band.places, band.mean, color=BLUE, lw=1.6, label="posterior mean")


@isolated
def draw_contour(axes: Any, run: Run, first: str, second: str) -> None:
    """Draw the posterior mean over two parameters, the other parameters as recommended, and the trials.

    Args:
        axes: The axes to draw on.
        run: The run.
        first: The name of the horizontal parameter.
        second: The name of the vertical parameter.

    Raises:
        InvalidInput: There is no such parameter, it is not active there, or there is no bound yet.
    """
    record = Record.of(run)
    optimizer = record.reopened()
    space = optimizer.space
    if first == second:
        raise InvalidInput(f"a contour needs two different parameters, got {first!r} twice.")
    x, x_units = _along(optimizer, first, _GRID)
    y, y_units = _along(optimizer, second, _GRID)
    names = list(space.parameters)
    points = _centre(optimizer, first, second).repeat(len(y_units), len(x_units), 1)
    points[:, :, names.index(first)] = x_units
    points[:, :, names.index(second)] = y_units.unsqueeze(-1)
    _, mean, _ = _interval(optimizer, points.flatten(0, 1))
    is_allowed = space.satisfies(points.flatten(0, 1))
    shape = points.shape[:2]
    _draw_surface(axes, x, y, mean.reshape(shape), is_allowed.reshape(shape))
    _draw_trials(axes, record, x, y)
    _label(axes, axes.xaxis, x)
    _label(axes, axes.yaxis, y)


def _draw_surface(axes: Any, x: Along, y: Along, mean: Tensor, is_allowed: Tensor) -> None:
    """Draw the posterior mean [Y X] as colours; grey where ``is_allowed`` [Y X] is False."""
    style: dict[str, Any] = {"shading": "nearest", "rasterized": True}
    mesh = axes.pcolormesh(x.places, y.places, mean, cmap="viridis", **style)
    if not bool(is_allowed.all()):
        grey = torch.where(is_allowed, torch.nan, 1.0)
        axes.pcolormesh(x.places, y.places, grey, cmap="Greys", vmin=0, vmax=2, **style)
        axes.scatter([], [], marker="s", color="0.6", label=OUTSIDE)
    axes.grid(visible=False)
    bar = axes.figure.colorbar(mesh, ax=axes, label="posterior mean")
    bar.outline.set_visible(False)


def _draw_trials(axes: Any, record: Record, x: Along, y: Along) -> None:
    """Draw the complete trials that have both parameters, and mark the recommended one."""
    complete = record.with_status("complete")
    recommended = record.recommended()
    x_places = []
    y_places = []
    for trial in complete:
        x_place = x.place_of(trial)
        y_place = y.place_of(trial)
        if x_place is None or y_place is None:
            continue
        x_places.append(x_place)
        y_places.append(y_place)
        if trial == recommended:
            axes.scatter([x_place], [y_place], label="recommended", **RING)
    style = {"color": "black", "ec": "white", "lw": 0.5}
    axes.scatter(x_places, y_places, s=dot_size(len(complete)), label="trials", **style)


def _along(optimizer: Optimizer, name: str, most: int) -> tuple[Along, Tensor]:
    """Return n points along a parameter, all its values or ``most`` numbers, and their unit coordinates [n]."""
    parameters = optimizer.space.parameters
    parameter = parameters[checks.one_of("the parameter", name, parameters)]
    is_number = isinstance(parameter, (Float, Int))
    n_options = len(parameter.options or ())
    if n_options == 0 or (is_number and n_options > most):
        units = torch.linspace(0, 1, most, dtype=torch.float64)
    else:
        units = parameter.middles(torch.arange(n_options))
    values = [parameter.value(unit) for unit in units.tolist()]
    return Along(name, values, not is_number, parameter.log), units


def _centre(optimizer: Optimizer, *names: str) -> Tensor:
    """Return the recommended point [P] of the unit cube, through which slices along the named parameters go.

    Raises:
        InvalidInput: There is no bound yet, or a parameter is not active at this point.
    """
    best = optimizer.recommended()
    if best is None or optimizer.interval(best.params) is None:
        raise InvalidInput(NO_BOUND)
    active = by_name(best.params)
    for name in names:
        if name not in active:
            raise InvalidInput(
                f"{name!r} is not active at the recommended parameters: draw one of {checks.shown(list(active))}."
            )
    return optimizer.space.unit(best.params)


def _interval(optimizer: Optimizer, points: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return lower bound, mean and upper bound [n] of the objective at points [n P] of the unit cube."""
    interval = optimizer.insight.intervals(points)
    assert interval is not None
    lower, mean, upper = interval
    return lower.cpu(), mean.cpu(), upper.cpu()


def _label(axes: Any, axis: Any, along: Along) -> None:
    """Set the scale of an axis, its ticks, and the name of the parameter beside it."""
    name = shortened(along.name, 40)
    set_scale = axes.set_yscale
    set_limits = axes.set_ylim
    if axis is axes.xaxis:
        set_scale = axes.set_xscale
        set_limits = axes.set_xlim
    if along.options:
        options = [shortened(str(value), 14) for value in along.values]
        axis.set_ticks(along.places, options)
        if axis is axes.xaxis and sum(map(len, options)) >= 30:
            axis.set_ticks(along.places, options, rotation=30, ha="right")
        set_limits(-0.6, len(options) - 0.4)
    elif along.log:
        set_scale("log")
        plain_numbers(axis)
        name = f"{name} (logarithmic)"
    elif all(isinstance(value, int) for value in along.values):
        whole_numbers(axis)
    axis.set_label_text(name)
