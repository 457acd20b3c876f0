"""Answers about a run in units of its objective, by the model of the practical setting, without a guarantee."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kbo._base.terminal import significant
from kbo.errors import InvalidInput
from kbo.optimize.insight.comparison import N_DRAWS, Estimate, estimate
from kbo.optimize.insight.credible_sets import Effect, open_choices, with_sets
from kbo.optimize.insight.expected_gain import N_MORE, decision, expected_gain, gains
from kbo.optimize.insight.importance import importance
from kbo.optimize.insight.optima import DrawnObjective, optima
from kbo.optimize.quantities.quantities import Quantities
from kbo.optimize.run.trials import Trial
from kbo.optimize.search.options import hardly_tried, only_failed
from kbo.optimize.surrogates.surrogate import Surrogate
from kbo.space import Space

_N_BEST = 64
"""Number of trials with the best means that may be recommended after further trials."""

_N_RANDOM = 256
"""Number of random points with which the recommended point is compared."""


@dataclass(frozen=True)
class Answers:
    """The answers of the model about a run, in units of its objective, without a guarantee.

    Attributes:
        gain_over_first: The improvement of the recommended parameters on those of trial 0, with its 90% interval. None
            if both are the same, and if trial 0 has no value or breaks a limit.
        gain: The expected gain of 20 more trials, at least 0, with its 90% interval: the improvement of the parameters
            recommended after them on those recommended now.
        decision: Whether more trials are worth it. "stop" if the expected gain is at most the tolerance,
            ``hardly_tried`` is empty, and in every ``Choice`` with a visible effect only one option may be the best.
            (If the interval of the gain ends at 0, several may be: they are equally good.) "go on" if the gain is above
            the tolerance with a probability of 90%. Otherwise "undecided".
        seconds: The expected duration of these 20 trials, from the durations so far; None if no duration is known.
        tolerance: The loss that does not matter, in units of the objective: as given, or 5% of the difference between
            the recommended and random parameters.
        effects: The effects of the parameters, largest share first; empty if they were not requested.
        n_inside: Two numbers: the trials whose value is inside the 90% interval that the other trials predict, and all
            trials with such an interval.
        beyond_zero: Whether the gain may lead beyond 0, although all values so far are on the other side of 0. False if
            a declared range excludes it.
        hardly_tried: The options, as "name = option", about which the model knows too little: those with own parameters
            and fewer trials than the number of these parameters plus 3. Options that have only failed are left out.
    """

    gain_over_first: Estimate | None
    gain: Estimate
    decision: str
    seconds: float | None
    tolerance: float
    effects: Sequence[Effect]
    n_inside: tuple[int, int]
    beyond_zero: bool = False
    hardly_tried: Sequence[str] = ()

    def __str__(self) -> str:
        enough = significant(self.tolerance, 2)
        gain = f"{N_MORE} more trials are expected to gain {self.gain} (90%)"
        lines = [f"{self.decision}: {gain}; {enough} or less does not matter"]
        lines += [str(effect) for effect in self.effects]
        return "\n".join(lines)


@torch.no_grad()
def answers(
    quantities: Quantities,
    surrogate: Surrogate,
    best: Trial,
    generator: torch.Generator,
    tolerance: float | None,
    with_effects: bool = True,
) -> Answers | None:
    """Return the answers about a run; None where the objective has no prior to draw from.

    Args:
        quantities: The quantities of the run; at least one trial must keep all limits as measured.
        surrogate: The surrogate of the objective for reports, larger values better.
        best: The recommended trial.
        generator: Source of randomness.
        tolerance: The loss that does not matter; None for 5% of the difference to random parameters.
        with_effects: Whether the effects of the parameters are computed, which takes most of the time.
    """
    try:
        functions = surrogate.functions(N_DRAWS, generator)
    except InvalidInput:  # the kernel has no random features
        return None
    if functions is None:
        return None
    space = quantities.space
    objective = DrawnObjective(space, functions, quantities.limits())
    trials = quantities.within_limits(best)
    evaluated = _best_units(space, surrogate, trials, best)
    peaks = optima(objective, evaluated, generator)
    gain_draws = gains(
        surrogate, space.features(evaluated), space.features(peaks.units[:N_MORE]), generator
    )
    first = space.unit(trials[0].params).unsqueeze(0)
    random = torch.rand(_N_RANDOM, space.dimension, generator=generator, dtype=torch.float64)
    values = objective.values(torch.cat([evaluated[:1], first, random]))
    gain = expected_gain(gain_draws, surrogate.noiseless, float(values.abs().median()))
    at_recommended = values[:, 0]
    if tolerance is None:
        tolerance = _usual_loss(at_recommended, values[:, 2:])
    effects = []
    if with_effects:
        effects = [
            with_sets(effect, objective, peaks, best.params, tolerance)
            for effect in importance(space, surrogate)
        ]
    unknown_options = _unknown_options(quantities)
    is_open = bool(open_choices(effects)) and gain.upper > 0  # else the options are equally good
    n_inside = (0, 0)
    if surrogate.predictive is not None:
        n_inside = surrogate.predictive.left_out()
    return Answers(
        gain_over_first=_gain_over_first(trials[0], best, at_recommended - values[:, 1]),
        gain=gain,
        decision=decision(gain_draws, tolerance, is_open or bool(unknown_options)),
        seconds=_seconds(trials),
        tolerance=tolerance,
        effects=effects,
        n_inside=n_inside,
        beyond_zero=_is_beyond_zero(surrogate, space.features(evaluated[:1]), gain),
        hardly_tried=unknown_options,
    )


def _best_units(space: Space, surrogate: Surrogate, trials: Sequence[Trial], best: Trial) -> Tensor:
    """Return the points [1 + n, P] of the recommended trial and of the n trials with the best means."""
    units = space.units([trial.params for trial in trials])
    means = surrogate.posterior.predict(space.features(units))[0].cpu()
    order = means.topk(min(_N_BEST, len(means))).indices
    return torch.cat([space.unit(best.params).unsqueeze(0), units[order]])


def _gain_over_first(first: Trial, best: Trial, gain_draws: Tensor) -> Estimate | None:
    """Return the gain over trial 0, by draws [s]; None if ``first`` is another trial or has the same parameters."""
    if first.number != 0 or first.params == best.params:
        return None
    return estimate(gain_draws)


def _usual_loss(at_recommended: Tensor, at_random: Tensor) -> float:
    """Return 5% of the median difference of draws at the recommended [s] and at random points [s r], at least 0."""
    difference = at_recommended - at_random.median(1).values
    return 0.05 * max(float(difference.median()), 0.0)


def _unknown_options(quantities: Quantities) -> list[str]:
    """Return the options that have hardly been tried, as "name = option", without those that have only failed."""
    space = quantities.space
    ended = [trial for trial in quantities.trials.finished if space.contains(trial.params)]
    failed = [trial.params for trial in ended if trial.status == "failed"]
    succeeded = [trial.params for trial in ended if trial.status in ("complete", "pruned")]
    failing = only_failed(space, space.units(failed), space.units(succeeded))
    tried = space.units([trial.params for trial in ended])
    return [
        f"{parent} = {option}"
        for parent, option in hardly_tried(space, tried)
        if (parent, option) not in failing
    ]


def _is_beyond_zero(surrogate: Surrogate, recommended: Tensor, gain: Estimate) -> bool:
    """Return whether more trials may lead beyond 0 from recommended features [1 D], all values being on the other side.

    False if a declared range excludes it.
    """
    is_below_zero = all((evaluation.value or 0.0) < 0 for evaluation in surrogate.values)
    _, mean, _ = surrogate.interval(recommended)
    best_possible = float(mean) + gain.upper
    return is_below_zero and best_possible > 0 and surrogate.transform.largest > 0


def _seconds(trials: Sequence[Trial]) -> float | None:
    """Return the expected seconds of ``N_MORE`` trials, from the mean of the recorded durations; None without any."""
    durations = [trial.seconds for trial in trials if trial.seconds is not None]
    if not durations:
        return None
    return N_MORE * sum(durations) / len(durations)
