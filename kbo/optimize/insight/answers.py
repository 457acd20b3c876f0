"""Answers of a run in the units of its objective, from the model of the practical setting: no guarantee."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kbo.errors import InvalidInput
from kbo.optimize.constraints.feasibility import ConstraintSurrogate
from kbo.optimize.insight.comparison import N_DRAWS, Estimate, estimate
from kbo.optimize.insight.credible_sets import Effect, effects, open_choices
from kbo.optimize.insight.expected_gain import (
    N_MORE,
    STOP,
    UNDECIDED,
    decision,
    expected_gain,
    gains,
)
from kbo.optimize.insight.importance import importance
from kbo.optimize.insight.optima import optima
from kbo.optimize.run.trials import Trial
from kbo.optimize.search.options import hardly_tried, only_failed
from kbo.optimize.surrogates.surrogate import Surrogate
from kbo.space import Space

_N_BEST = 64
"""Trials with the best means, one of which may be recommended after further trials."""

_N_RANDOM = 256
"""Random points with which the recommended one is compared."""


@dataclass(frozen=True)
class Answers:
    """The answers of a run about its objective, by the model: no guarantee.

    Attributes:
        start: The gain of the recommended parameters over those of the first trial; None if these are the same.
        more: The expected gain of 20 more trials, by which the parameters that are recommended after them are better
            than those recommended now, at least 0; and the 90% interval of this gain.
        decision: "stop" if the expected gain is at most the tolerance, and of each ``Choice`` with a visible effect one
            option alone may be the best, as the others have hardly been tried near the best trials, and no option with
            parameters of its own has hardly been tried; "go on" if the gain is above the tolerance with a probability
            of 90%; else "undecided".
        seconds: The duration of these trials, from the durations so far; None if they are not known.
        tolerance: The loss that counts as none: 5% of the difference between the recommended and random parameters, or
            as given.
        effects: The parameters, the one with the largest share first.
        inside: The number of trials whose value is inside the 90% interval that the others predict, and the number of
            trials with such an interval.
        beyond_zero: Whether the interval of the gain leads beyond 0 although all values were on the other side, and no
            declared range excludes it.
        hardly_tried: The options with parameters of their own that have had fewer trials than these are, plus 3, and
            have not only failed: the model knows too little about them.
    """

    start: Estimate | None
    more: Estimate
    decision: str
    seconds: float | None
    tolerance: float
    effects: Sequence[Effect]
    inside: tuple[int, int]
    beyond_zero: bool = False
    hardly_tried: Sequence[str] = ()


@torch.no_grad()
def answers(
    space: Space,
    surrogate: Surrogate,
    constraints: Sequence[ConstraintSurrogate],
    trials: Sequence[Trial],
    ended: Sequence[Trial],
    best: Trial,
    generator: torch.Generator,
    tolerance: float | None,
    with_effects: bool = True,
) -> Answers | None:
    """Return the answers of a run.

    Args:
        space: The search space.
        surrogate: The surrogate of its objective, larger values better.
        constraints: The constraints with their surrogates.
        trials: The completed trials, those that keep all constraints.
        ended: All trials that have ended, without those outside of a space that has changed.
        best: The recommended one.
        generator: Source of randomness.
        tolerance: The loss that counts as none; None for 5% of the difference to random parameters.
        with_effects: Whether the effects of the parameters are computed, which take most of the time.

    Returns:
        The answers; None where there is no prior of the objective to draw from.
    """
    try:
        functions = surrogate.functions(N_DRAWS, generator)
    except InvalidInput:  # the kernel has no random features
        return None
    if functions is None:
        return None
    evaluated = _best_units(space, surrogate, trials, best)
    peaks = optima(space, functions, constraints, evaluated, generator)
    gain_draws = gains(
        surrogate, space.features(evaluated), space.features(peaks.units[:N_MORE]), generator
    )
    more = expected_gain(gain_draws, surrogate.noiseless)
    first = space.unit(trials[0].params).unsqueeze(0)
    random = torch.rand(_N_RANDOM, space.dimension, generator=generator, dtype=torch.float64)
    values = functions(space.features(torch.cat([evaluated[:1], first, random]))).cpu()
    at_recommended = values[:, 0]
    if tolerance is None:
        tolerance = _usual_loss(at_recommended, values[:, 2:])
    found = []
    if with_effects:
        shares = importance(space, surrogate)
        found = effects(space, functions, peaks, shares, constraints, best.params, tolerance)
    decided = decision(gain_draws, tolerance)
    options = []
    failed = [trial.params for trial in ended if trial.status == "failed"]
    succeeded = [trial.params for trial in ended if trial.status in ("complete", "pruned")]
    failing = only_failed(space, space.units(failed), space.units(succeeded))
    for parent, option in hardly_tried(space, space.units([trial.params for trial in ended])):
        if (parent, option) not in failing:
            options.append(f"{parent} = {option}")
    if decided == STOP and (options or open_choices(found)):
        decided = UNDECIDED
    is_below_zero = all((evaluation.value or 0.0) < 0 for evaluation in surrogate.values)
    _, mean, _ = surrogate.interval(space.features(evaluated[:1]))
    best_possible = float(mean) + more.upper
    start = None
    if trials[0].number == 0 and trials[0].params != best.params:
        start = estimate(at_recommended - values[:, 1])
    return Answers(
        start=start,
        more=more,
        decision=decided,
        seconds=_seconds(trials),
        tolerance=tolerance,
        effects=found,
        inside=surrogate.leave_one_out(),
        beyond_zero=is_below_zero and best_possible > 0 and surrogate.transform.largest > 0,
        hardly_tried=options,
    )


def _best_units(space: Space, surrogate: Surrogate, trials: Sequence[Trial], best: Trial) -> Tensor:
    """Return points [n P] of the trials with the best means, the recommended one first."""
    units = space.units([trial.params for trial in trials])
    means = surrogate.posterior.predict(space.features(units))[0].cpu()
    order = means.topk(min(_N_BEST, len(means))).indices
    return torch.cat([space.unit(best.params).unsqueeze(0), units[order]])


def _usual_loss(at_recommended: Tensor, at_random: Tensor) -> float:
    """Return 5% of the median difference between the recommended [s] and random points [s r]; at least 0."""
    difference = at_recommended - at_random.median(1).values
    return 0.05 * max(float(difference.median()), 0.0)


def _seconds(trials: Sequence[Trial]) -> float | None:
    """Return the duration of ``N_MORE`` trials, from those that are known; None without any."""
    known = [trial.seconds for trial in trials if trial.seconds is not None]
    if not known:
        return None
    return N_MORE * sum(known) / len(known)
