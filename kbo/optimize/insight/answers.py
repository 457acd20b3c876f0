"""Answers in the units of the objective: what more trials would bring, what matters, and which parameters are as good.

They rest on joint draws of the objective, without noise, from the model of the practical setting, and are no guarantee.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kbo.optimize.insight.sensitivity import DRAWS, importance
from kbo.optimize.run.trials import Trial
from kbo.optimize.search.subspace import Subspace
from kbo.optimize.surrogates.surrogate import Surrogate
from kbo.optimize.table import by_name
from kbo.space import Choice, Params, Space
from kbo.space.parameters import Parameter

MORE = 20
"""Further trials of which the gain is told."""

_DRAWS = 500
"""Joint draws of the objective."""

_ANYWHERE, _NEAR, _TRIALS = 256, 128, 64
"""Points where an optimum may be: random ones, ones near the recommended one, and the best trials."""

_STEPS = 33
"""Values of a number that are compared with the recommended one."""

_VISIBLE, _WORSE = 0.05, 0.975
"""A parameter has a visible effect if its share of the variance is at least that, and one of its values is worse than
the recommended one with that probability."""

_SURE = 0.8
"""Probability with which a value is as good, or an edge the best side."""

_RIVAL = 0.95
"""Probability of not being better with which a trial is left out of a confirmation."""

_LONG = 10.0
"""Seconds from which on the duration of further trials is told."""

_EDGE = 0.02
"""Part of a range that counts as its edge."""


class Estimate(NamedTuple):
    """A number and its 90% interval by the model."""

    value: float
    lower: float
    upper: float


class Comparison(NamedTuple):
    """By how much parameters are better than others, its 90% interval by the model, and the probability of "better"."""

    value: float
    lower: float
    upper: float
    probability: float


class _Values(NamedTuple):
    """The probability that some value is worse than the recommended one; the others as in ``Effect``."""

    worse: float = 1.0
    good: tuple[Any, ...] = ()
    all: bool = False
    edge: str = ""


@dataclass(frozen=True)
class Effect:
    """The answers of a run about a parameter.

    Attributes:
        name: The parameter.
        share: Its share of the variance of the model over the space, interactions included: the total index (Sobol
            2001).
        visible: Whether it is at least 5%, and a value is worse than the recommended one with a probability of 97.5%.
        good: Its values, the others unchanged, at which the objective is within the tolerance of that at the
            recommended ones with a probability of 80%: the ends of a range, or options. None where it is not active.
        ranged: Whether ``good`` is a range.
        all: Whether these are all values.
        edge: "lower" or "upper" where the recommended value is at that bound and better ones may lie beyond it.
        interval: The 90% interval of the share by draws of the model; None without draws.
    """

    name: str
    share: float
    visible: bool
    good: tuple[Any, ...]
    ranged: bool
    all: bool
    edge: str
    interval: tuple[float, float] | None = None

    @property
    def weight(self) -> str:
        """The share and its interval, in words."""
        if self.interval is None or self.interval[0] == self.interval[1]:
            return f"{self.name} {self.share:.0%}"
        return f"{self.name} {self.share:.0%} [{self.interval[0]:.0%}, {self.interval[1]:.0%}]"

    def __str__(self) -> str:
        if self.all:
            return f"any {self.name}"
        shown = [
            f"{value:.4g}" if isinstance(value, float) else str(value)
            for value in dict.fromkeys(self.good)
        ]
        return f"{self.name} {(' to ' if self.ranged else ' or ').join(shown)}"


@dataclass(frozen=True)
class Answers:
    """The answers of a run about its objective, by the model: no guarantee.

    Attributes:
        start: By how much the recommended parameters are better than those of the first trial; None if these are the
            same.
        more: By how much 20 more trials would improve on the recommended parameters: where draws of the objective are
            best, each evaluated once, with noise.
        seconds: How long these would take, from the durations so far; None if they are not known.
        tolerance: The loss that counts as none: 5% of the difference between the recommended and random parameters, or
            as given.
        effects: The parameters, the one with the largest effect first.
        inside: Of how many trials the value is inside the 90% interval that the others predict, and of how many that is
            known.
        beyond_zero: Whether the gain leads beyond 0 although all values were on the other side.
    """

    start: Estimate | None
    more: Estimate
    seconds: float | None
    tolerance: float
    effects: Sequence[Effect]
    inside: tuple[int, int]
    beyond_zero: bool = False

    def entries(self) -> dict[str, str]:
        """Return sentences by label."""
        more = self.more.value > self.tolerance
        close = (
            ", but it is close" if self.tolerance / 2 < self.more.value < 2 * self.tolerance else ""
        )
        loss = f"{'more' if more else 'less'} than {self.tolerance:.2g}, which counts as none: "
        loss += f"go on{close}" if more else f"stop{close}; the optimum may still be further away"
        if self.beyond_zero:
            loss += "; that is beyond 0, where no value was: if none can be, give value_range"
        time = (
            ""
            if self.seconds is None or self.seconds < _LONG
            else f", in about {_duration(self.seconds)}"
        )
        visible = [one.weight for one in self.effects if one.visible]
        hidden = [one.name for one in self.effects if not one.visible]
        matters = [f"{', '.join(visible)} of the variation, interactions counted for each"] * bool(
            visible
        )
        matters += [f"no effect is visible yet of {', '.join(hidden)}"] * bool(hidden)
        good = [str(one) for one in self.effects if one.visible and one.good]
        edges = [f"{one.name} is at its {one.edge} bound" for one in self.effects if one.edge]
        ranged = any(one.visible and one.ranged for one in self.effects)
        inside = "no recommended value is where a wider range may be better" if ranged else ""
        within, known = self.inside
        share = within / max(known, 1)
        told = {
            "first trial": "" if self.start is None else _compared(self.start),
            f"{MORE} more trials": f"expected gain {_shown(self.more)}{time}; {loss}",
            "what matters": "; ".join(matters),
            "as good": f"with 80%, one changed at a time: {', '.join(good)}" if good else "",
            "at an edge": f"{', '.join(edges)}: better values may lie beyond, widen it if you can"
            if edges
            else inside,
            "model check": f"{within} of {known} values ({share:.0%}) lie in the 90% interval that the others predict"
            if known
            else "",
        }
        return {label: text for label, text in told.items() if text}


def _shown(found: Estimate) -> str:
    value, lower, upper = (f"{number:.2g}" for number in found)
    return value if lower == upper else f"{value}  [{lower}, {upper}]"


def _compared(found: Estimate) -> str:
    """Return in words by how much the first trial is worse than the recommended parameters."""
    if found.lower <= 0 <= found.upper:
        return "not visibly different from the recommended parameters"
    if found.lower > 0:
        return f"worse than the recommended parameters, by {_shown(found)}"
    return f"better than the recommended parameters, by {_shown(Estimate(-found.value, -found.upper, -found.lower))}"


def _duration(seconds: float) -> str:
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def answers(
    space: Space,
    belief: Surrogate,
    trials: Sequence[Trial],
    best: Trial,
    generator: torch.Generator,
    tolerance: float | None,
    likely: Callable[[Tensor], Tensor],
    intervals: bool = True,
) -> Answers | None:
    """Return the answers of a run.

    Args:
        space: The search space.
        belief: The description of its objective, larger values better.
        trials: The completed trials, those that keep all constraints.
        best: The recommended one.
        generator: Source of randomness.
        tolerance: The loss that counts as none; None for 5% of the difference to random parameters.
        likely: Returns at which points [n P] of the unit cube all constraints are likely to be kept, [n].
        intervals: Whether the shares of the variance have intervals, which take most of the time.

    Returns:
        The answers; None where there is no prior of the objective to draw from.
    """
    units, chosen = space.units([trial.params for trial in trials]), trials.index(best)
    means = belief.posterior.predict(space.features(units))[0].cpu()
    known = units[
        torch.cat([torch.tensor([chosen, 0]), means.topk(min(_TRIALS, len(means))).indices])
    ]
    points = torch.cat([known, _candidates(space, known[0], generator)])
    values = belief.draws(space.features(points), MORE + _DRAWS, generator)
    if values is None:
        return None
    values = values.cpu()
    allowed = likely(points).index_fill(0, torch.tensor([0]), True)
    # Thompson sampling (Kandasamy et al. 2018, for a batch); other draws judge these points.
    tried, judges = values[:MORE].masked_fill(~allowed, -torch.inf).argmax(1), values[MORE:]
    here, first, random = judges[:, 0], judges[:, 1], judges[:, len(known) : len(known) + _ANYWHERE]
    if tolerance is None:
        tolerance = 0.05 * max(float((here - random.median(1).values).median()), 0.0)
    noise = 0.0 if belief.noiseless else belief.assumptions()["noise_std"]
    seconds = [trial.seconds for trial in trials if trial.seconds is not None]
    more = _gain(
        judges[:, allowed],
        int(allowed[: len(known)].sum()),
        allowed.cumsum(0)[tried] - 1,
        noise,
        generator,
    )
    below_zero = all((one.value or 0.0) < 0 for one in belief.values)
    return Answers(
        start=None
        if trials[0].number or trials[0].params == best.params
        else _estimate(here - first),
        more=more,
        seconds=MORE * sum(seconds) / len(seconds) if seconds else None,
        tolerance=tolerance,
        effects=_effects(space, belief, best.params, likely, tolerance, generator, intervals),
        inside=belief.leave_one_out(),
        beyond_zero=below_zero and float(here.mean()) + more.value > 0,
    )


def compared(belief: Surrogate, features: Tensor, generator: torch.Generator) -> Comparison | None:
    """Return by how much the first of two points with features [2 D] is better; None where there is no prior."""
    values = belief.draws(features, MORE * _DRAWS, generator)
    if values is None:
        return None
    better = (values[:, 0] - values[:, 1]).cpu()
    probability = float((better > 0).double().mean() + (better == 0).double().mean() / 2)
    return Comparison(*_estimate(better), probability)


def rivals(belief: Surrogate, features: Tensor, generator: torch.Generator) -> list[int]:
    """Return which points with features [n D] may be better than the first one with 5%, the likeliest first.

    Where there is no prior, those whose upper bound reaches the lower bound of the first one.
    """
    values = belief.draws(features, _DRAWS, generator)
    if values is None:
        lower, _, upper = belief.interval(features)
        score, least = upper, lower[0]
    else:
        score, least = (values > values[:, :1]).double().mean(0), 1 - _RIVAL
    found = (score >= least).nonzero().flatten()
    return [int(i) for i in found[score[found].argsort(descending=True, stable=True)] if i]


def _gain(
    values: Tensor, n: int, tried: Tensor, noise_std: float, generator: torch.Generator
) -> Estimate:
    """Return how much better the point of the largest mean is, after one evaluation of each of some points.

    This is the knowledge gradient of a batch (Wu & Frazier 2016), with means and covariances of draws.

    Args:
        values: Draws of the objective [s m]; the recommended point is the first one.
        n: The number of points that have been evaluated, which come first.
        tried: The points [k] that are evaluated, with noise.
        noise_std: Its level.
        generator: Source of randomness.
    """
    peak = float(values.abs().max()) or 1.0  # squares of very large values would overflow
    values, noise_std = values / peak, noise_std / peak
    among = torch.cat([torch.arange(n), tried])
    mean = values.mean(0)
    covariance = (values - mean)[:, among].T @ (values - mean)[:, tried] / len(values)
    added = noise_std**2 + 1e-6 * float(covariance[n:].diagonal().mean())
    spread = covariance[n:] + added * torch.eye(len(tried), dtype=covariance.dtype)
    noise = noise_std * torch.randn(
        len(values), len(tried), generator=generator, dtype=values.dtype
    )
    surprise = values[:, tried] + noise - mean[tried]
    found = mean[among] + surprise @ torch.linalg.pinv(spread, hermitian=True) @ covariance.T
    gained = values.gather(1, among[found.argmax(1)].unsqueeze(1)).squeeze(1) - values[:, 0]
    return Estimate(*(peak * end for end in _estimate(gained)))


def _candidates(space: Space, best: Tensor, generator: torch.Generator) -> Tensor:
    """Return points [n P] where the optimum may be."""
    region = Subspace(space)
    if region.choices is not None:
        return region.choices[
            torch.randperm(len(region.choices), generator=generator)[: _ANYWHERE + _NEAR]
        ]
    scales = torch.logspace(-2.5, -0.5, _NEAR, dtype=torch.float64).unsqueeze(1)
    moved = best + scales * torch.randn(_NEAR, len(best), generator=generator, dtype=torch.float64)
    near = region.place(moved.clamp(0, 1))
    return torch.cat([region.draw(_ANYWHERE, generator), near[region.satisfies(near)]])


def _effects(
    space: Space,
    belief: Surrogate,
    best: Params,
    likely: Callable[[Tensor], Tensor],
    tolerance: float,
    generator: torch.Generator,
    intervals: bool,
) -> Sequence[Effect]:
    """Return the effects of the parameters; arguments as for ``answers``."""
    none_visible = "effects" in belief.account()
    found = []
    for one in importance(space, belief, DRAWS if intervals else 0):
        lower, share, upper = one.total
        parameter = space.parameters[one.name]
        values = _Values()
        if one.name in by_name(best):
            units, points = _along(space, best, one.name)
            drawn = belief.draws(space.features(points), _DRAWS, generator)
            assert drawn is not None
            values = _values(parameter, units, drawn.cpu(), likely(points[1:]), tolerance)
        visible = share >= _VISIBLE and values.worse >= _WORSE and not none_visible
        edge, ranged = values.edge if visible else "", not isinstance(parameter, Choice)
        found.append(
            Effect(one.name, share, visible, values.good, ranged, values.all, edge, (lower, upper))
        )
    return found


def _along(space: Space, best: Params, name: str) -> tuple[Tensor, Tensor]:
    """Return values [v] of a parameter in the unit interval, and points [1 + v, P]: the best one, and it with these."""
    parameter, unit = space.parameters[name], space.unit(best)
    known, place = parameter.options, torch.tensor([list(space.parameters).index(name)])
    if known and (len(known) <= _STEPS or isinstance(parameter, Choice)):
        grid = parameter.middles(torch.arange(len(known)))
    else:
        grid = torch.linspace(0, 1, _STEPS, dtype=torch.float64)
    others = unit.repeat(len(grid), 1).index_copy_(1, place, grid.unsqueeze(1))
    return torch.cat([unit[place], grid]), torch.cat([unit.unsqueeze(0), others])


def _values(
    parameter: Parameter, units: Tensor, values: Tensor, likely: Tensor, tolerance: float
) -> _Values:
    """Return what is known of the values of a parameter, the others as recommended.

    Args:
        parameter: The parameter.
        units: Its values [1 + v] in the unit interval, the recommended one first.
        values: Draws of the objective [s, 1 + v] with these.
        likely: At which values [v] all constraints are likely to be kept.
        tolerance: The loss that counts as none.
    """
    unit, grid = units[0], units[1:]
    worse = float((values[:, 1:] < values[:, :1]).double().mean(0).max())
    fine = ((values[:, 1:] >= values[:, :1] - tolerance).double().mean(0) >= _SURE) & likely
    here, last = int((grid - unit).abs().argmin()), len(grid) - 1
    fine[here] = True
    if isinstance(parameter, Choice):
        options = tuple(
            value for value, good in zip(parameter.options, fine.tolist(), strict=True) if good
        )
        return _Values(worse, options, bool(fine.all()))
    low = here - int(fine[: here + 1].flip(0).long().cumprod(0).sum()) + 1
    high = here + int(fine[here:].long().cumprod(0).sum()) - 1
    ends = [min(float(grid[low]), float(unit)), max(float(grid[high]), float(unit))]
    at = (here == 0, here == last) if parameter.options else (unit <= _EDGE, unit >= 1 - _EDGE)
    side = "lower" if at[0] else "upper" if at[1] else ""
    inside = max(1, last // 10) if side == "lower" else last - max(1, last // 10)
    better = float((values[:, 0] > values[:, 1 + inside]).double().mean()) >= _SURE
    good = tuple(parameter.value(u) for u in ends)
    return _Values(worse, good, low == 0 and high == last, side if better else "")


def _estimate(values: Tensor) -> Estimate:
    """Return mean and 90% interval of draws [s]."""
    low, high = values.quantile(0.05), values.quantile(0.95)
    return Estimate(float(values.mean()), float(low), float(high))
