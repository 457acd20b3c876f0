"""The summary of a run: at most nine lines for readers who know no statistics, and the details behind them.

Terminal, notebook, page and audit all show these sentences. The numbers come from ``kbo.optimize.insight``.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR
from typing import TYPE_CHECKING, Any

from kbo._base.terminal import beside, counted, printable, rounded, rounded_up, significant
from kbo.bandit import methods
from kbo.optimize.constraints.constraint import violations
from kbo.optimize.insight.comparison import Estimate
from kbo.optimize.insight.credible_sets import open_choices
from kbo.optimize.insight.expected_gain import N_MORE, STOP, UNDECIDED
from kbo.optimize.result import result_of
from kbo.optimize.run.outcome import with_condition
from kbo.optimize.run.table import format_params

if TYPE_CHECKING:
    from kbo.optimize.insight.answers import Answers
    from kbo.optimize.insight.credible_sets import Effect
    from kbo.optimize.insight.front import Front
    from kbo.optimize.insight.outlier import Outlier
    from kbo.optimize.optimizer import Optimizer
    from kbo.optimize.result import Result
    from kbo.optimize.run.trials import Trial

Lines = list[tuple[str, str]]
"""Lines of text: pairs of a label and a sentence."""

_STATUSES = {"pending": "pending", "pruned": "stopped early", "removed": "removed"}
"""Words for the statuses of trials, except complete and failed."""

_MOST_NAMED = 4
"""Largest number of parameters or trials that a line names; the others are counted."""

_NARROWEST = 40
"""Smallest width of a sentence in a narrow terminal, in characters."""

_MOST_IN_HEADLINE = 5
"""Largest number of parameters above the line "Matters" of a page."""

_SPREAD_OF_90_PERCENT = 1.645
"""Half the width of the 90% interval of a normal distribution, in standard deviations."""

_OF_VOLUMES = "nominally 90%, held in 70 to 100% of tests"
"""Coverage of the interval of the hypervolume in tests with different noise and trials (docs/comparisons.md)."""

_LIKELY = 0.9
"""A setting is called very likely on the front from this probability on."""

_LONG = 10.0
"""The duration of further trials is shown if it is at least this many seconds."""

_BEYOND_ZERO = (
    "; part of this may be beyond 0: if no value can be there, begin a new run with value_range (--value-range), and "
    "give it these results as evaluated (--evaluated)"
)
"""Advice if the interval of the gain contains values below 0 that may be impossible."""

_FEWEST_INSIDE = 0.8
"""The model is doubted if a smaller share of the values is inside their 90% intervals."""


def text(lines: Lines, columns: int | None = None) -> str:
    """Return lines as text, in a column of labels and a column of sentences.

    Args:
        lines: The labels and sentences.
        columns: The width of the terminal, at which sentences are wrapped; None for no wrapping.
    """
    indent = max((len(label) for label, _ in lines), default=0) + 2
    rows = []
    for label, sentence in lines:
        row = label.ljust(indent) + sentence
        if columns is not None:
            wrapped = textwrap.wrap(
                sentence, max(columns - indent, _NARROWEST), break_long_words=False
            )
            row = label.ljust(indent) + ("\n" + " " * indent).join(wrapped)
        rows.append(row)
    return "\n".join(rows)


def of(optimizer: Optimizer, full: bool = False) -> str:
    """Return the summary of a run as text; see ``Result.summary``."""
    result = result_of(optimizer, "", optimizer.run.path)
    rows = lines(result, "kbo.confirm")
    if full:
        rows += details(result)
    return text(rows)


def lines(
    result: Result,
    surer: str = "result.confirm(objective, 60)",
    has_bounds: bool = True,
    names: Sequence[Any] | None = None,
) -> Lines:
    """Return the summary of a run in at most nine lines. A line with nothing to say is left out.

    Args:
        result: The run.
        surer: The call or the command that evaluates the best trials again.
        has_bounds: Whether the bounds of the parameters are known; otherwise they are the ranges of the trials.
        names: The names of the trials; None for their numbers.
    """
    if names is None:
        names = range(len(result.trials))
    rows = [
        ("Limits", broken_limits(result, names)),
        ("Trials", trials_so_far(result) + questioned(result, names)),
    ]
    if result.infeasible is not None:
        rows.append(("Solution", f"none: {result.infeasible}"))
    elif result.params is None:
        rows.append(("Best", "unknown: no trial has returned a value"))
    elif result.optimizer.objectives and result.front is None:
        rows.append(("Front", "unknown: there are too few trials for a model of each objective"))
    else:
        rows += _recommendation(result, names)
        rows.append(("Limits?", kept_limits(result, names)))
        if result.certified:
            rows.append(("More?", guaranteed_gap(result)))
        if result.answers is not None:
            rows.append(("More?", more_trials(result.answers, has_bounds)))
            rows.append(("Matters", what_matters(result.answers.effects)))
            rows.append(("Ranges", ranges(result.answers.effects, has_bounds)))
        rows.append(("Certain?", certainty(result, surer, names)))
    rows.append(("Details", place_of_details(result)))
    return [(label, sentence) for label, sentence in rows if sentence]


def _recommendation(result: Result, names: Sequence[Any]) -> Lines:
    """Return the lines about the recommended setting, or about the front of several objectives."""
    if result.front is None:
        return [("Best", recommended_setting(result, names)), ("Value", recommended_value(result))]
    return [
        ("Front", front_extent(result.front, names)),
        ("Balanced", balanced(result, result.front, names)),
        ("Volume", hypervolume(result.front)),
    ]


def broken_limits(result: Result, names: Sequence[Any]) -> str:
    """Return the limits that no trial kept, and the closest trial; names as for ``lines``.

    Empty if a trial kept all limits. Empty also if it is proved that no point keeps them: the line "Solution" says so.
    """
    insight = result.settled.insight
    closest = result.settled.recommended()
    if closest is None or result.infeasible is not None or insight.within_limits():
        return ""
    constraints = result.settled.constraints
    completed = result.settled.run.trials.complete
    never_kept = [c for c in constraints if all(violations(trial, [c]) for trial in completed)]
    measured = []
    for constraint in never_kept or constraints:
        value = closest.measurement(constraint.name)
        if value is not None:
            shown = beside(value, constraint.sign * constraint.limit)
            measured.append(f"{constraint.name} = {shown}")
    limits = " and ".join(str(constraint) for constraint in never_kept or constraints)
    if not never_kept:
        limits = f"{limits} together"
    return (
        f"no trial kept {limits}; the closest is trial {names[closest.number]} with {', '.join(measured)}: if further "
        "trials come no closer, loosen the limit or widen the ranges of the parameters"
    )


def kept_limits(result: Result, names: Sequence[Any]) -> str:
    """Return the limits that the recommended parameters keep, with the measured quantities; names as for ``lines``.

    Empty without limits, and where no trial kept them: the line "Limits" says it.
    """
    if result.feasibility is None or broken_limits(result, names):
        return ""
    return str(result.feasibility)


def front_extent(front: Front, names: Sequence[Any]) -> str:
    """Return the number of settings on a front, and the range of each objective there; names as for ``lines``."""
    texts = []
    for name, (least, largest) in front.ranges.items():
        intervals = [point.values[name] for point in front.points]
        width = max(interval.upper - interval.lower for interval in intervals)
        if least == largest:
            texts.append(f"{name} {intervals[0]}")
        elif width == 0:
            texts.append(f"{name} {least:.4g} to {largest:.4g}")
        else:
            low = rounded(least, width, ROUND_FLOOR)
            texts.append(f"{name} {low} to {rounded(largest, width, ROUND_CEILING)}")
    trials = _listed([str(names[point.trial.number]) for point in front.points])
    if len(front.points) == 1:
        return f"trial {trials} is best in every objective: {', '.join(texts)}"
    sentence = f"{len(front.points)} settings, each best for some taste: {', '.join(texts)}"
    return f"{sentence} (trials {trials}). result.choose(limits=...) picks one"


def front_settings(front: Front, names: Sequence[Any]) -> Lines:
    """Return a line for each setting of a front: its values, its probability and its parameters."""
    return [(f"trial {names[point.trial.number]}", point.description) for point in front.points]


def balanced(result: Result, front: Front, names: Sequence[Any]) -> str:
    """Return the balanced setting of a front, its trial and the values there; names as for ``lines``."""
    values = front.balanced.values.items()
    texts = [f"{name} {interval} ({result.sure})" for name, interval in values]
    return f"{recommended_setting(result, names)}; {', '.join(texts)}"


def hypervolume(front: Front) -> str:
    """Return the hypervolume of a front with its interval, and the reference."""
    if front.hypervolume is None:
        return ""
    worst = ", ".join(f"{name} {value:.4g}" for name, value in front.reference.items())
    if front.hypervolume.upper <= 0:
        return f"0: no trial is better than the reference, {worst}, in all objectives"
    return (
        f"{front.hypervolume} ({_OF_VOLUMES}): one number for the whole front (its hypervolume), larger is better; it "
        f"is 0 for settings that are not better than {worst}"
    )


def trials_so_far(result: Result) -> str:
    """Return the number of trials, the reason why the run ended, and the trials to look at."""
    sentence = counted(len(result.trials), "trial")
    kinds = _kinds(result)
    if kinds:
        sentence += f", of which {', '.join(kinds)}"
    if result.stopped:
        sentence += f"; {result.stopped}"
    misplaced = result.optimizer.run.trials.misplaced
    if misplaced:
        numbers = ", ".join(str(trial.number) for trial in misplaced)
        sentence += (
            f"; without a place in the changed space, so nothing is learned from them: {numbers}"
        )
    if result.left_out:
        sentence += f"; not used: {printable('; '.join(result.left_out))}"
    return sentence


def _kinds(result: Result) -> list[str]:
    """Return the numbers of repetitions, of known results, and of trials that are not complete, as texts."""
    kinds = []
    n_not_asked = sum(not trial.asked for trial in result.trials)
    n_repeated = _n_repeated(result.trials)
    if n_repeated:
        kinds.append(counted(n_repeated, "repetition"))
    if n_repeated < n_not_asked < len(result.trials):
        kinds.append(counted(n_not_asked - n_repeated, "known result"))
    counts = Counter(trial.status for trial in result.trials)
    for status, words in _STATUSES.items():
        if counts[status]:
            kinds.append(f"{counts[status]} {words}")
    if counts["failed"]:
        kinds.append(f"{counts['failed']} failed (the last: {_last_failure(result)})")
    return kinds


def _last_failure(result: Result) -> str:
    """Return why the last failed trial failed; if it lacked a parameter, also when that parameter exists."""
    failures = [trial.failure for trial in result.trials if trial.failure]
    if not failures:
        return "no reason given"
    return with_condition(" ".join(failures[-1].split()), result.optimizer.space.conditions)


def _n_repeated(trials: Sequence[Trial]) -> int:
    """Return the number of repetitions: trials that kbo did not propose, at the parameters of one that it did."""
    asked = set()
    n_repeated = 0
    for trial in trials:
        params = repr(trial.params)
        if trial.asked:
            asked.add(params)
        elif params in asked:
            n_repeated += 1
    return n_repeated


def questioned(result: Result, names: Sequence[Any]) -> str:
    """Return an addition on the outlier, with advice; empty if there is no outlier. Names as for ``lines``."""
    if result.outlier is None:
        return ""
    sentence = f"; {in_question(result.outlier, names)}"
    if result.outlier.doubtful:
        sentence += " The other lines leave it out"
    return sentence


def in_question(outlier: Outlier, names: Sequence[Any]) -> str:
    """Return the statement that a value is far from its prediction, and what to do; names as for ``lines``."""
    trial = f"trial {names[outlier.number]} ({outlier.shown_value})"
    if not outlier.doubtful:
        return (
            f"{trial} is better than the others predict, {outlier.prediction}: repeat it to be sure"
        )
    sentence = f"{trial} is far from what the others predict, {outlier.prediction}"
    if outlier.repeated is not None:
        repeated = names[outlier.repeated]
        return (
            f"{sentence}, and from trial {repeated} at the same parameters: correct or remove it?"
        )
    return f"{sentence}: a mistake, or does the objective jump there? Correct, remove or repeat it."


def recommended_setting(result: Result, names: Sequence[Any]) -> str:
    """Return the recommended parameters and their trial; names as for ``lines``."""
    assert result.params is not None
    sentence = format_params(result.params)
    trial = result.settled.recommended()
    if trial is not None:
        sentence += f"  (trial {names[trial.number]})"
    return sentence


def recommended_value(result: Result) -> str:
    """Return the value at the recommended parameters with its interval, and what a single result may be."""
    assert result.value is not None
    place = ""
    if result.optimizer.space.changed:
        place = " inside the present bounds"
    if result.lower is None or result.upper is None:
        return f"{result.value:.4g}, the best one observed{place}; there are too few trials to say more"
    if result.lower == result.upper:
        return f"{result.value:.4g}, exactly: the objective has no noise"
    width = result.upper - result.lower
    number = rounded(result.value, width)
    lower = rounded(result.lower, width, ROUND_FLOOR)
    upper = rounded(result.upper, width, ROUND_CEILING)
    if result.certified or result.best_observed is None:
        return f"{number}, between {lower} and {upper} ({result.sure})"
    interval = f"very likely ({result.sure}) between {lower} and {upper}"
    if result.exact is None:  # no trial was repeated yet
        return f"{number}, {interval}"
    sentence = f"{number} on average of many repetitions, {interval}"
    scatter = _SPREAD_OF_90_PERCENT * result.assumptions["noise_std"]
    observed = rounded(result.best_observed, width)
    sentence += f"; a single result is mostly up to {significant(scatter, 1)} higher or lower"
    return f"{sentence}, so the best one{place}, {observed}, was partly luck"


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
    at_an_edge = [effect.name for effect in answers.effects if effect.edge]
    if at_an_edge:
        names = _listed(at_an_edge)
        return f"{trials} inside these bounds would improve it by {gain}: stop, or widen {names}"
    return f"{trials} would improve it by {gain}: stop"


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
            f"; it is not certain yet which {_listed(names)} is best: stop if any of them will do"
        )
    if answers.hardly_tried:
        options = ", ".join(answers.hardly_tried)
        sentence += f"; hardly tried so far: {options}: stop if you can do without"
    return sentence


def headlines(result: Result) -> dict[str, str]:
    """Return the number or word that a page shows above each of the lines "Value", "More?" and "Matters"."""
    assert result.value is not None
    value = f"{result.value:.4g}"
    if result.lower is not None and result.upper is not None and result.lower < result.upper:
        value = rounded(result.value, result.upper - result.lower)
    more = ""
    matters = ""
    if result.certified and result.gap is not None:
        more = str(rounded_up(result.gap.value, 4))
    if result.answers is not None:
        more = result.answers.decision
        visible = [effect.name for effect in result.answers.effects if effect.visible]
        matters = ", ".join(visible[:_MOST_IN_HEADLINE]) or "unknown so far"
    return {"Value": value, "More?": more, "Matters": matters}


def guaranteed_gap(result: Result) -> str:
    """Return the guaranteed gap to the optimum, or to the best front, in units of the objectives, as a sentence."""
    if result.gap is not None and result.front is not None:
        losses = []
        for name, extent in result.front.extents.items():
            losses.append(f"{rounded_up(result.gap.value * extent, 3)} worse in {name}")
        share = f"{rounded_up(result.gap.value, 3)} of the front's extents"
        return f"for every setting one of these is at most {' and '.join(losses)} ({share}; {result.gap.scope})"
    if result.gap is not None:
        return f"the optimum is better by at most {rounded_up(result.gap.value, 4)} ({result.gap.scope})"
    if result.feasibility is not None and not result.feasibility.kept:
        return "unknown, since these parameters are not known to keep all limits"
    return ""


def what_matters(effects: Sequence[Effect]) -> str:
    """Return the shares of parameters with a visible effect, most important first, and upper bounds for the others."""
    visible = [f"{effect.name} ({_percent(effect.share)})" for effect in effects if effect.visible]
    hidden_effects = [effect for effect in effects if not effect.visible]
    hidden = [f"{effect.name} (at most {effect.share.upper:.0%})" for effect in hidden_effects]
    if not hidden:
        return _listed(visible)
    if not visible:
        return "unknown so far"
    return f"{_listed(visible)}; not certain yet: {_listed(hidden)}"


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
    sentence = f"the best setting of each, with 90%: {_listed(narrowed)}"
    if open_names:
        sentence += f"; all values are still possible for {_listed(open_names)}"
    if at_an_edge:
        sentence += f"; {_listed(at_an_edge)}, widen it if you can"
    return sentence


def certainty(result: Result, surer: str, names: Sequence[Any]) -> str:
    """Return whether the lines above are guaranteed, how well the model predicts, and how to be more certain.

    Args:
        result: The run.
        surer: The call or the command that evaluates the best trials again.
        names: The names of the trials.
    """
    if result.certified:
        return f"yes: {result.guarantee.removeprefix('certified: ')}"
    if not result.assumptions:
        return f"no: {why_no_model(result.optimizer)}"
    if result.front is not None and result.front.points[0].probability is not None:
        points = result.front.points
        n_likely = sum((point.probability or 0.0) >= _LIKELY for point in points)
        return (
            f"no, a best guess: estimates by models; {n_likely} of the {counted(len(points), 'setting')} are very "
            f"likely ({_LIKELY:.0%} or more) on the front of all trials"
        )
    if result.answers is None:
        return f"no: {result.guarantee}"
    check = _model_check(result.answers)
    if result.exact:
        return f"the value is; the other lines are estimates by a model{check}"
    sentence = f"no, a best guess: estimates by a model{check}"
    sentence += f". To check which trial is best, {surer} repeats the best ones"
    finalists = result.settled.insight.finalists()
    if len(finalists) > 1:
        sentence += f": trials {_listed([str(names[trial.number]) for trial in finalists])}"
    return sentence


def _model_check(answers: Answers) -> str:
    """Return the number of values inside the 90% intervals that the other values predict, as an addition."""
    n_inside, n_known = answers.n_inside
    if not n_known:
        return ""
    sentence = f"{n_inside} of {n_known} results were in its 90% ranges"
    if n_inside < _FEWEST_INSIDE * n_known:
        return f", but only {sentence}: do not rely on it"
    return f"; {sentence}, as they should be"


def place_of_details(result: Result) -> str:
    """Return the command or the call that shows more about the run."""
    if result.journal is not None:
        return f"kbo report {result.journal} writes a page with pictures"
    return "result.summary(full=True), result.plot()"


# The details


def details(result: Result, names: Sequence[Any] | None = None) -> Lines:
    """Return the details behind the summary as lines; names as for ``lines``."""
    rows: Lines = []
    if names is None:
        names = range(len(result.trials))
    if result.front is not None:
        rows += front_settings(result.front, names)
    if result.answers is not None:
        answers = result.answers
        rows += [
            ("first trial", first_trial(answers.gain_over_first)),
            ("more trials", f"expected gain of {N_MORE}: {answers.gain}"),
            ("enough", f"a difference of {significant(answers.tolerance, 2)} counts as none"),
            ("importance", _shares(answers)),
            ("as good", good_values(answers.effects)),
        ]
    if result.params is not None:
        times = f"{result.evaluations} times"
        if result.evaluations == 1:
            times = "once"
        rows.append(("evaluated", times))
    if not result.certified and result.gap is not None and result.front is None:
        rows.append(("gap", f"{result.gap.value:.4g}, not guaranteed ({result.gap.scope})"))
    rows += [(name, sentence) for name, sentence in result.account.items() if name != "effects"]
    rows.append(("guarantee", result.guarantee))
    if result.journal is not None:
        rows.append(("journal", result.journal))
    return [(label, sentence) for label, sentence in rows if sentence]


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


def _shares(answers: Answers) -> str:
    """Return the share of each parameter in the variation of the objective, with its interval."""
    shares = []
    for effect in answers.effects:
        share = effect.share
        shares.append(f"{effect.name} {share.value:.0%} [{share.lower:.0%}, {share.upper:.0%}]")
    return ", ".join(shares)


def good_values(effects: Sequence[Effect]) -> str:
    """Return, for each parameter, the values that are as good as the recommended one, the other parameters fixed."""
    good = [f"{effect.name} {effect.good}" for effect in effects if effect.good is not None]
    if not good:
        return ""
    return f"with 80%, one parameter changed at a time: {', '.join(good)}"


# Words


def why_no_model(optimizer: Optimizer) -> str:
    """Return why a run has no model of its objective."""
    if not methods.get(optimizer.method).has_bounds:
        return f"the method {optimizer.method!r} has no model"
    return "there are too few trials for a model"


def duration(seconds: float) -> str:
    """Return a duration in the largest unit of which it has at least two, for example "3 hours"."""
    for unit, name in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} s"


def _listed(names: Sequence[str]) -> str:
    """Return the first names of a list, and the number of the others."""
    if len(names) <= _MOST_NAMED + 1:
        return ", ".join(names)
    return f"{', '.join(names[:_MOST_NAMED])} and {len(names) - _MOST_NAMED} others"
