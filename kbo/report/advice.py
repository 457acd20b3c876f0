"""Sentences of the summary on more trials, and on the effects of the parameters; the numbers are ``Answers``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from kbo._base.terminal import rounded_up, significant
from kbo.optimize.insight.comparison import Estimate
from kbo.optimize.insight.credible_sets import open_choices
from kbo.optimize.insight.expected_gain import N_MORE, STOP, UNDECIDED

if TYPE_CHECKING:
    from kbo.optimize.insight.answers import Answers
    from kbo.optimize.insight.credible_sets import Effect
    from kbo.optimize.insight.front import Front
    from kbo.optimize.insight.gap.gap import Gap
    from kbo.optimize.result import Result

_MOST_NAMED = 4
"""Largest number of parameters or trials that a line names; the others are counted."""

_LONG = 10.0
"""The duration of further trials is shown if it is at least this many seconds."""

_TIGHT = 0.7
"""A longer proof is advised if a search found a smaller share of the proved gap."""

_BEYOND_ZERO = (
    "; part of this may be beyond 0: if no value can be there, begin a new run with value_range (--value-range), and "
    "give it these results as evaluated (--evaluated)"
)
"""Advice if the interval of the gain contains values below 0 that may be impossible."""


def more_trials(answers: Answers, has_bounds: bool = True) -> str:
    """Return whether more trials are worth it, as a sentence.

    Args:
        answers: The statistics of the run.
        has_bounds: Whether the bounds are known, as for ``lines``; otherwise no new run is advised.
    """
    trials = f"{N_MORE} more trials"
    if answers.seconds is not None and answers.seconds >= _LONG:
        trials += f" ({duration(answers.seconds)})"
    if answers.decision == STOP:
        return _stop(answers, trials)
    if answers.decision == UNDECIDED:
        sentence = _undecided(answers, trials)
    else:
        gain = significant(answers.gain.value, 2)
        sentence = f"{trials} would improve it by about {gain}: go on"
    if answers.beyond_zero and has_bounds:
        sentence += _BEYOND_ZERO
    return sentence


def _stop(answers: Answers, trials: str) -> str:
    """Return the advice to stop, or to widen the bounds at which the recommended values lie."""
    gain = f"{significant(answers.gain.value, 2)} on average, too little to matter"
    if answers.tolerance:
        gain += f" ({significant(answers.tolerance, 2)} or less)"
    if _at_an_edge(answers):
        trials += " inside these bounds"
    return f"{trials} would improve it by {gain}: {decision(answers)}"


def decision(answers: Answers) -> str:
    """Return the decision about more trials, in a few words: "stop" with the bounds to widen in its place, if any."""
    names = _at_an_edge(answers)
    if answers.decision == STOP and names:
        return f"{STOP}, or widen {listed(names)}"
    return answers.decision


def _at_an_edge(answers: Answers) -> list[str]:
    """Return the names of the parameters whose recommended value is at a bound with better ones beyond."""
    return [effect.name for effect in answers.effects if effect.edge]


def _undecided(answers: Answers, trials: str) -> str:
    """Return the statement that the data do not decide about more trials, and how the reader can decide."""
    gain = significant(answers.gain.value, 2)
    most = significant(answers.gain.upper, 2)
    sentence = f"undecided: {trials} may improve it by nothing or up to {most}, {gain} on average"
    if answers.gain.upper <= 0:
        sentence = f"undecided: by the model {trials} would improve it by nothing"
    elif answers.tolerance:
        sentence += f" ({significant(answers.tolerance, 2)} or less does not matter)"
    if answers.gain.value > answers.tolerance:
        return f"{sentence}; stop if {gain} is not worth them, else go on"
    names = open_choices(answers.effects)
    if names:
        sentence += (
            f"; it is not certain yet which {listed(names)} is best: stop if any of them will do"
        )
    if answers.hardly_tried:
        options = ", ".join(answers.hardly_tried)
        sentence += f"; hardly tried so far: {options}: stop if you can do without"
    return sentence


def guaranteed_gap(result: Result) -> str:
    """Return the guaranteed gap to the optimum, or to the best front, in units of the objectives, as a sentence.

    What a search found is said if it is much less than what is proved, since then a longer proof may help.
    """
    gap = result.gap
    if gap is None:
        if result.feasibility is not None and not result.feasibility.kept:
            return "unknown, since these parameters are not known to keep all limits"
        return ""
    bound = f"the optimum is better by at most {rounded_up(gap.value, 4)}"
    if result.front is not None:
        share = f"{rounded_up(gap.value, 3)} of the front's extents"
        bound = f"{_behind(result.front, gap)} ({share})"
    compared = f"over {gap.points}"
    if not gap.final:
        compared += ", to which others may be added"
    if not gap.proved:
        return f"{bound} ({compared}; not proved: {gap.reason})"
    sentence = f"{bound} ({compared}, proved)"
    if gap.found < _TIGHT * gap.value:
        sentence += (
            f"; a search found only {gap.found / gap.value:.0%} of this, so a longer proof may show less: "
            "optimizer.gap(evaluations=...)"
        )
    return sentence


def more_for_front(front: Front, gap: Gap | None) -> str:
    """Return the largest gain of more trials over a front, by the estimated gap, as a sentence; empty if unknown."""
    if gap is None:
        return ""
    return f"by the models, {_behind(front, gap)}: go on if that matters, else stop"


def _behind(front: Front, gap: Gap) -> str:
    """Return the largest loss of the front against any other setting, in units of the objectives, as a clause."""
    losses = []
    for name, extent in front.extents.items():
        losses.append(f"{rounded_up(gap.value * extent, 3)} worse in {name}")
    settings = "one of these"
    if len(front.points) == 1:
        settings = "this one"
    return f"compared with any other setting, {settings} is at most {' and at most '.join(losses)}"


def what_matters(effects: Sequence[Effect]) -> str:
    """Return the shares of parameters with a visible effect, most important first, and upper bounds for the others."""
    visible = [f"{effect.name} ({_percent(effect.share)})" for effect in effects if effect.visible]
    hidden_effects = [effect for effect in effects if not effect.visible]
    hidden = [f"{effect.name} (at most {effect.share.upper:.0%})" for effect in hidden_effects]
    if not hidden:
        return listed(visible)
    if not visible:
        return "unknown so far"
    return f"{listed(visible)}; not certain yet: {listed(hidden)}"


def ranges(effects: Sequence[Effect], has_bounds: bool = True) -> str:
    """Return the 90% credible sets of the best values, and the parameters of which all values are possible.

    Args:
        effects: The effects of the parameters.
        has_bounds: Whether the bounds of the parameters are known, as for ``lines``.
    """
    narrowed = []
    at_an_edge = []
    open_names = []
    for effect in effects:
        if effect.range is None:
            continue
        if not effect.range.has_all:
            narrowed.append(f"{effect.name} {effect.range}")
        else:
            open_names.append(effect.name)
        if effect.edge and has_bounds:
            at_an_edge.append(f"{effect.name} is at its {effect.edge} bound")
    if not narrowed:
        return "all values of all parameters are still possible"
    sentence = f"the best setting of each, with 90%: {listed(narrowed)}"
    if open_names:
        sentence += f"; all values are still possible for {listed(open_names)}"
    if at_an_edge:
        sentence += f"; {listed(at_an_edge)}, widen it if you can"
    return sentence


def first_trial(gain: Estimate | None) -> str:
    """Return the comparison of the first trial with the recommended parameters, as a sentence."""
    if gain is None:
        return ""
    if gain.lower > 0:
        return f"worse than the recommended parameters, by {gain}"
    if gain.upper < 0:
        loss = Estimate(-gain.upper, -gain.value, -gain.lower)
        return f"better than the recommended parameters, by {loss}"
    return "not visibly different from the recommended parameters"


def _percent(share: Estimate) -> str:
    """Return the interval of a share in percent, such as "31 to 92%", or one number if both ends are equal."""
    lower = f"{100 * share.lower:.0f}"
    upper = f"{100 * share.upper:.0f}"
    if lower == upper:
        return f"{upper}%"
    return f"{lower} to {upper}%"


def good_values(effects: Sequence[Effect]) -> str:
    """Return, for each parameter, the values that are as good as the recommended one, the other parameters fixed."""
    good = [f"{effect.name} {effect.good}" for effect in effects if effect.good is not None]
    if not good:
        return ""
    return f"with 80%, one parameter changed at a time: {', '.join(good)}"


def duration(seconds: float) -> str:
    """Return a duration in the largest unit of which it has at least two, for example "3 hours"."""
    for unit, name in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} s"


def listed(names: Iterable[Any]) -> str:
    """Return the first names of a list, and the number of the others."""
    texts = list(map(str, names))
    if len(texts) <= _MOST_NAMED + 1:
        return ", ".join(texts)
    return f"{', '.join(texts[:_MOST_NAMED])} and {len(texts) - _MOST_NAMED} others"
