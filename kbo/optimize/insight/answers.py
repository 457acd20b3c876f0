"""Answers of a run in the units of its objective, from the model of the practical setting: no guarantee."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from kbo.optimize.feasibility import ConstraintSurrogate
from kbo.optimize.insight.comparison import Estimate, estimate
from kbo.optimize.insight.credible_sets import Effect, effects
from kbo.optimize.insight.expected_gain import N_MORE, Draws, expected_gain, joint_draws
from kbo.optimize.run.trials import Trial
from kbo.optimize.surrogates.surrogate import Surrogate
from kbo.space import Space

_LONG = 10.0
"""Seconds from which on the duration of further trials is reported."""


@dataclass(frozen=True)
class Answers:
    """The answers of a run about its objective, by the model: no guarantee.

    Attributes:
        start: The gain of the recommended parameters over those of the first trial; None if these are the same.
        more: The expected gain of 20 more trials over the recommended parameters, each evaluated once with noise where
            draws of the objective are best.
        seconds: The duration of these, from the durations so far; None if they are not known.
        tolerance: The loss that counts as none: 5% of the difference between the recommended and random parameters, or
            as given.
        effects: The parameters, the one with the largest effect first.
        inside: The number of trials whose value is inside the 90% interval that the others predict, and the number of
            trials with such an interval.
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
        return _sentences(self)


def answers(
    space: Space,
    surrogate: Surrogate,
    constraints: Sequence[ConstraintSurrogate],
    trials: Sequence[Trial],
    best: Trial,
    generator: torch.Generator,
    tolerance: float | None,
    intervals: bool = True,
) -> Answers | None:
    """Return the answers of a run.

    Args:
        space: The search space.
        surrogate: The surrogate of its objective, larger values better.
        constraints: The constraints with their surrogates.
        trials: The completed trials, those that keep all constraints.
        best: The recommended one.
        generator: Source of randomness.
        tolerance: The loss that counts as none; None for 5% of the difference to random parameters.
        intervals: Whether the shares of the variance have intervals, which take most of the time.

    Returns:
        The answers; None where there is no prior of the objective to draw from.
    """
    draws = joint_draws(space, surrogate, constraints, trials, best, generator)
    if draws is None:
        return None
    if tolerance is None:
        tolerance = _usual_loss(draws)
    noise_std = 0.0 if surrogate.noiseless else surrogate.assumptions()["noise_std"]
    more = expected_gain(draws, noise_std, generator)
    is_below_zero = all((evaluation.value or 0.0) < 0 for evaluation in surrogate.values)
    best_possible = float(draws.at_recommended.mean()) + more.value
    return Answers(
        start=_gain_since_start(draws, trials, best),
        more=more,
        seconds=_seconds(trials),
        tolerance=tolerance,
        effects=effects(
            space, surrogate, constraints, best.params, tolerance, generator, intervals
        ),
        inside=surrogate.leave_one_out(),
        beyond_zero=is_below_zero and best_possible > 0,
    )


def _usual_loss(draws: Draws) -> float:
    """Return 5% of the median difference between the recommended and random points; 0 if these are no worse."""
    difference = draws.at_recommended - draws.at_random.median(1).values
    return 0.05 * max(float(difference.median()), 0.0)


def _gain_since_start(draws: Draws, trials: Sequence[Trial], best: Trial) -> Estimate | None:
    """Return the gain since the first trial; None if it is no completed one, or has the recommended parameters."""
    first = trials[0]
    if first.number or first.params == best.params:
        return None
    return estimate(draws.at_recommended - draws.at_first_trial)


def _seconds(trials: Sequence[Trial]) -> float | None:
    """Return the duration of ``N_MORE`` trials, from those that are known; None without any."""
    known = [trial.seconds for trial in trials if trial.seconds is not None]
    if not known:
        return None
    return N_MORE * sum(known) / len(known)


def _sentences(answers: Answers) -> dict[str, str]:
    """Return the sentences of the answers by label, without empty ones."""
    sentences = {
        "first trial": _on_first_trial(answers.start),
        f"{N_MORE} more trials": _on_more_trials(answers),
        "what matters": _on_importance(answers.effects),
        "as good": _on_good_values(answers.effects),
        "at an edge": _on_edges(answers.effects),
        "model check": _on_predictions(*answers.inside),
    }
    return {label: text for label, text in sentences.items() if text}


def _on_first_trial(gain: Estimate | None) -> str:
    if gain is None:
        return ""
    if gain.lower > 0:
        return f"worse than the recommended parameters, by {_shown(gain)}"
    if gain.upper < 0:
        loss = Estimate(-gain.value, -gain.upper, -gain.lower)
        return f"better than the recommended parameters, by {_shown(loss)}"
    return "not visibly different from the recommended parameters"


def _on_more_trials(answers: Answers) -> str:
    text = f"expected gain {_shown(answers.more)}"
    if answers.seconds is not None and answers.seconds >= _LONG:
        text += f", in about {_duration(answers.seconds)}"
    text += f"; {_advice(answers.more.value, answers.tolerance)}"
    if answers.beyond_zero:
        text += "; that is beyond 0, where no value was: if none can be, give value_range"
    return text


def _advice(gain: float, tolerance: float) -> str:
    """Return the comparison of an expected gain with the loss that counts as none, and the decision."""
    close = ""
    if tolerance / 2 < gain < 2 * tolerance:
        close = ", but it is close"
    if gain > tolerance:
        return f"more than {tolerance:.2g}, which counts as none: go on{close}"
    return f"less than {tolerance:.2g}, which counts as none: stop{close}; the optimum may still be further away"


def _on_importance(effects: Sequence[Effect]) -> str:
    shares = ", ".join(_share(effect) for effect in effects if effect.visible)
    hidden = ", ".join(effect.name for effect in effects if not effect.visible)
    parts = []
    if shares:
        parts.append(f"{shares} of the variation, interactions counted for each")
    if hidden:
        parts.append(f"no effect is visible yet of {hidden}")
    return "; ".join(parts)


def _share(effect: Effect) -> str:
    if effect.interval is None or effect.interval[0] == effect.interval[1]:
        return f"{effect.name} {effect.share:.0%}"
    lower, upper = effect.interval
    return f"{effect.name} {effect.share:.0%} [{lower:.0%}, {upper:.0%}]"


def _on_good_values(effects: Sequence[Effect]) -> str:
    good = ", ".join(str(effect) for effect in effects if effect.visible and effect.good)
    if not good:
        return ""
    return f"with 80%, one changed at a time: {good}"


def _on_edges(effects: Sequence[Effect]) -> str:
    edges = [f"{effect.name} is at its {effect.edge} bound" for effect in effects if effect.edge]
    if edges:
        return f"{', '.join(edges)}: better values may lie beyond, widen it if you can"
    if any(effect.visible and effect.ranged for effect in effects):
        return "no recommended value is where a wider range may be better"
    return ""


def _on_predictions(n_inside: int, n_known: int) -> str:
    if not n_known:
        return ""
    share = n_inside / n_known
    return f"{n_inside} of {n_known} values ({share:.0%}) lie in the 90% interval that the others predict"


def _shown(estimate: Estimate) -> str:
    value = f"{estimate.value:.2g}"
    lower = f"{estimate.lower:.2g}"
    upper = f"{estimate.upper:.2g}"
    if lower == upper:
        return value
    return f"{value}  [{lower}, {upper}]"


def _duration(seconds: float) -> str:
    for unit, name in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} s"
