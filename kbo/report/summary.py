"""The summary of a run: at most nine lines for readers who know no statistics, and the details behind them.

Terminal, notebook, page and audit all show these sentences. The numbers come from ``kbo.optimize.insight``.
"""

from __future__ import annotations

import os
import textwrap
from collections import Counter
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR
from typing import TYPE_CHECKING, Any

from kbo._base.terminal import (
    beside,
    counted,
    has_width,
    printable,
    rounded,
    rounded_up,
    significant,
)
from kbo.bandit import methods
from kbo.optimize.constraints.constraint import violations
from kbo.optimize.insight.expected_gain import N_MORE
from kbo.optimize.result import result_of
from kbo.optimize.run.outcome import with_condition
from kbo.optimize.run.table import format_params
from kbo.optimize.run.trials import repetitions
from kbo.report.advice import (
    decision,
    first_trial,
    good_values,
    guaranteed_gap,
    listed,
    more_for_front,
    more_trials,
    ranges,
    what_matters,
)

if TYPE_CHECKING:
    from kbo.optimize.insight.answers import Answers
    from kbo.optimize.insight.front import Front
    from kbo.optimize.insight.outlier import Outlier
    from kbo.optimize.optimizer import Optimizer
    from kbo.optimize.result import Result
    from kbo.optimize.run.trials import Trial
    from kbo.space import Space

Lines = list[tuple[str, str]]
"""Lines of text: pairs of a label and a sentence."""

CHOOSER = "result.choose(limits=...)"
"""The call that picks a setting of the front of a result."""

_STATUSES = {"pending": "pending", "pruned": "stopped early", "removed": "removed"}
"""Words for the statuses of trials, except complete and failed."""

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
    chooser = "optimizer.insight.front().choose(limits=...)"
    rows = lines(result, "evaluate the best ones again, and tell their results", chooser=chooser)
    if full:
        rows += details(result)
    return text(rows)


def lines(
    result: Result,
    surer: str = "result.confirm(objective, 60) repeats the best ones",
    has_bounds: bool = True,
    names: Sequence[Any] | None = None,
    chooser: str = CHOOSER,
) -> Lines:
    """Return the summary of a run in at most nine lines. A line with nothing to say is left out.

    Args:
        result: The run.
        surer: How the best trials are evaluated again, as a clause.
        has_bounds: Whether the bounds of the parameters are known; otherwise they are the ranges of the trials.
        names: The names of the trials; None for their numbers.
        chooser: The call that picks a setting of the front.
    """
    if names is None:
        names = range(len(result.trials))
    broken = broken_limits(result, names)
    rows = [
        ("Limits", broken),
        ("Trials", _trials(result) + questioned(result, names)),
    ]
    if result.infeasible is not None:
        rows.append(("Solution", f"none: {result.infeasible}"))
    elif result.params is None:
        rows.append(("Best", "unknown: no trial has returned a value"))
    elif result.optimizer.objectives and result.front is None:
        rows.append(("Front", "unknown: there are too few trials for a model of each objective"))
    else:
        rows += _recommendation(result, names, chooser)
        if result.feasibility is not None and not broken:
            rows.append(("Limits?", str(result.feasibility)))
        if result.certified:
            rows.append(("More?", guaranteed_gap(result)))
        elif result.front is not None:
            rows.append(("More?", more_for_front(result.front, result.gap)))
        if result.answers is not None:
            rows.append(("More?", more_trials(result.answers, has_bounds)))
            rows.append(("Matters", what_matters(result.answers.effects)))
            rows.append(("Ranges", ranges(result.answers.effects, has_bounds)))
        rows.append(("Certain?", certainty(result, surer, names)))
    rows.append(("Details", place_of_details(result)))
    return [(label, sentence) for label, sentence in rows if sentence]


def _recommendation(result: Result, names: Sequence[Any], chooser: str) -> Lines:
    """Return the lines about the recommended setting, or about the front; arguments as for ``lines``."""
    setting = recommended_setting(result, names)
    if result.front is None:
        return [("Best", setting), ("Value", recommended_value(result))]
    values = result.front.balanced.values.items()
    texts = []
    for name, interval in values:
        text = f"{name} {interval}"
        if has_width(*interval):
            text += f" ({result.sure})"
        texts.append(text)
    return [
        ("Front", front_extent(result.front, names, chooser)),
        ("Balanced", f"{setting}; {', '.join(texts)}"),
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


def front_extent(front: Front, names: Sequence[Any], chooser: str = CHOOSER) -> str:
    """Return the number of settings on a front, and the range of each objective there; arguments as for ``lines``."""
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
    trials = listed(names[point.trial.number] for point in front.points)
    if len(front.points) == 1:
        return f"trial {trials} is best in every objective: {', '.join(texts)}"
    sentence = f"{len(front.points)} settings, none better than another in every objective: {', '.join(texts)}"
    return f"{sentence} (trials {trials}). {chooser} picks one"


def chooser_of(journal: str | os.PathLike[str]) -> str:
    """Return the call that picks a setting of the front of a run, from its journal."""
    return f'kbo.audit("{os.fspath(journal)}").{CHOOSER}'


def hypervolume(front: Front) -> str:
    """Return the hypervolume of a front with its interval, and the reference."""
    if front.hypervolume is None:
        return ""
    worst = ", ".join(f"{name} {value:.4g}" for name, value in front.reference.items())
    if front.hypervolume.upper <= 0:
        return f"0: no trial is better than the reference, {worst}, in all objectives"
    coverage = ""
    if has_width(*front.hypervolume):
        coverage = f" ({_OF_VOLUMES})"
    return (
        f"{front.hypervolume}{coverage}: one number for the whole front (its hypervolume), larger is better; it "
        f"is 0 for settings that are not better than {worst}"
    )


def _trials(result: Result) -> str:
    """Return the number of trials, the reason why the run ended, and the trials to look at."""
    sentence = trial_counts(result.trials, result.optimizer.space)
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


def trial_counts(trials: Sequence[Trial], space: Space) -> str:
    """Return the number of trials, and how many of them are repetitions, known results, failed and so on.

    Args:
        trials: The trials of a run.
        space: The search space of the run.
    """
    kinds = []
    not_asked = [trial for trial in trials if not trial.asked]
    n_repeated = 0  # of trials that kbo proposed; other repetitions are known results
    first = repetitions(trials)
    for trial in not_asked:
        if trial.number in first and trials[first[trial.number]].asked:
            n_repeated += 1
    if n_repeated:
        kinds.append(counted(n_repeated, "repetition"))
    if n_repeated < len(not_asked) < len(trials):
        kinds.append(counted(len(not_asked) - n_repeated, "known result"))
    counts = Counter(trial.status for trial in trials)
    for status, words in _STATUSES.items():
        if counts[status]:
            kinds.append(f"{counts[status]} {words}")
    failures = [trial.failure for trial in trials if trial.status == "failed"]
    if failures:
        reason = " ".join((failures[-1] or "no reason given").split())
        reason = with_condition(reason, space.conditions)
        kinds.append(f"{len(failures)} failed (the last: {reason})")
    sentence = counted(len(trials), "trial")
    if not kinds:
        return sentence
    return f"{sentence}, of which {', '.join(kinds)}"


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
        more = decision(result.answers)
        visible = [effect.name for effect in result.answers.effects if effect.visible]
        matters = ", ".join(visible[:_MOST_IN_HEADLINE]) or "unknown so far"
    return {"Value": value, "More?": more, "Matters": matters}


def certainty(result: Result, surer: str, names: Sequence[Any]) -> str:
    """Return whether the lines above are guaranteed, how well the model predicts, and how to be more certain.

    Args:
        result: The run.
        surer: How the best trials are evaluated again, as a clause.
        names: The names of the trials.
    """
    if result.certified:
        return f"yes: {result.guarantee.removeprefix('certified: ')}"
    if not result.assumptions:
        return f"no: {why_no_model(result.optimizer)}"
    if result.front is not None and result.exact:
        return "yes, the values: the objectives have no noise. What more trials would gain is an estimate by models"
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
        return f"yes, the value: the objective has no noise. The other lines are estimates by a model{check}"
    sentence = f"no, a best guess: estimates by a model{check}"
    sentence += f". To check which trial is best, {surer}"
    finalists = result.settled.insight.finalists()
    if len(finalists) > 1:
        sentence += f": trials {listed(names[trial.number] for trial in finalists)}"
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
        for point in result.front.points:
            rows.append((f"trial {names[point.trial.number]}", point.description))
    if result.answers is not None:
        answers = result.answers
        rows += [
            ("first trial", first_trial(answers.gain_over_first)),
            (
                "more trials",
                f"expected gain of {N_MORE}: {answers.gain}; "
                f"{significant(answers.tolerance, 2)} or less counts as none",
            ),
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


# Words


def why_no_model(optimizer: Optimizer) -> str:
    """Return why a run has no model of its objective."""
    if not methods.get(optimizer.method).has_bounds:
        return f"the method {optimizer.method!r} has no model"
    return "there are too few trials for a model"
