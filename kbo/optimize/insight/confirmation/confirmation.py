"""The outcome of a confirmation, and its statement in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kbo._base.terminal import rounded_up, significant
from kbo.optimize.constraints.constraint import Constraint
from kbo.optimize.insight.confirmation.race import Finalist
from kbo.optimize.run.table import format_params


@dataclass(frozen=True)
class Confirmation:
    """The outcome of new evaluations of a few candidates (docs/theory/confirm.md).

    Attributes:
        best: The candidate with the best median, or with ``value_range`` the best mean; None before each candidate has
            a value.
        within: With probability ``1 - delta``, the median (with ``value_range`` the mean) of no other candidate is
            better than that of ``best`` by more than this. Infinite while no bound is known, and if there is an
            objection.
        confirmed: Whether ``within`` is at most the tolerance. Limits have no influence on it.
        objection: The reason why no statement can be made of these values; empty if one can.
        finalists: The candidates with their values, in the given order.
        tolerance, delta, maximize: As for ``confirm``.
        value_range: The range of values; with one the statement is about means, otherwise about medians.
        evaluations: The number of new evaluations.
        selected: The number of evaluations whose noise may have decided whether they have a value, or which one: those
            that failed, and those that were lost and started again.
        stopped: The reason why no more evaluations were made.
        constraints: The limits of the run whose trials are the candidates; empty for other candidates. ``statement``
            says in how many new evaluations the measurements, with their noise, break them.
    """

    best: Finalist | None
    within: float
    confirmed: bool
    objection: str
    finalists: Sequence[Finalist]
    tolerance: float
    delta: float
    maximize: bool
    value_range: tuple[float, float] | None
    evaluations: int
    selected: int
    stopped: str
    constraints: Sequence[Constraint] = ()

    def __str__(self) -> str:
        return _text(self)

    @property
    def statement(self) -> str:
        """The answer in one line, and then what it rests on, one line for each fact."""
        return "\n".join([_answer(self), *_about_values(self), *_about_limits(self)])


def _text(confirmation: Confirmation) -> str:
    """Return the statement, the reason why the evaluations ended, and a line for each candidate."""
    n = confirmation.evaluations
    width = max(len(finalist.name) for finalist in confirmation.finalists)
    lines = [confirmation.statement, f"It ended after {n} evaluations: {confirmation.stopped}."]
    lines.extend(
        f"{finalist.name:{width}}  {_described(finalist, confirmation)}"
        for finalist in confirmation.finalists
    )
    return "\n".join(lines)


def _described(finalist: Finalist, confirmation: Confirmation) -> str:
    """Return estimate, bounds and number of evaluations of a candidate, and its parameters."""
    estimate = finalist.mean
    if confirmation.value_range is None:
        estimate = finalist.median
    text = "no value"
    if estimate is not None:
        text = f"{estimate:.4g}{_bounds(finalist)}"
    n = len(finalist.values)
    plural = "" if n == 1 else "s"
    return f"{text}, {n} evaluation{plural}: {format_params(finalist.params)}"


def _bounds(finalist: Finalist) -> str:
    """Return the finite bounds of a candidate, in words; empty if there are none."""
    has_lower = math.isfinite(finalist.lower)
    has_upper = math.isfinite(finalist.upper)
    if has_lower and has_upper:
        return f"  [{finalist.lower:.4g}, {finalist.upper:.4g}]"
    if has_lower:
        return f" (at least {finalist.lower:.4g})"
    if has_upper:
        return f" (at most {finalist.upper:.4g})"
    return ""


def _answer(confirmation: Confirmation) -> str:
    """Return in one line which candidate is the best, with the limits that it broke, or that this is undecided."""
    best = confirmation.best
    if confirmation.objection:
        return "Not decided: these values allow no statement."
    if best is None or not math.isfinite(confirmation.within):
        return "Not decided: each candidate needs more evaluations."
    if not confirmation.confirmed:
        *others, last = [best.name, *_rivals(confirmation, best)]
        return f"Not decided between {', '.join(others)} and {last}."
    broken = _broken(best, confirmation.constraints)
    if broken:
        return f"Now the best: {best.name}, but it breaks {broken} new evaluations."
    return f"Now the best: {best.name}."


def _rivals(confirmation: Confirmation, best: Finalist) -> list[str]:
    """Return the names of the candidates that may be better than the best one by more than the tolerance."""
    names = []
    for finalist in confirmation.finalists:
        lead = best.upper - finalist.lower
        if confirmation.maximize:
            lead = finalist.upper - best.lower
        if finalist is not best and lead > confirmation.tolerance:
            names.append(finalist.name)
    return names


def _about_values(confirmation: Confirmation) -> list[str]:
    """Return the facts about the best candidate, with assumptions and limits, one line for each."""
    best = confirmation.best
    if confirmation.objection:
        return [f"{confirmation.objection}."]
    if best is None or not math.isfinite(confirmation.within):
        return []
    n_candidates = len(confirmation.finalists)
    estimate = "mean" if confirmation.value_range is not None else "median"
    within = rounded_up(confirmation.within, 2)
    sure = f"{100 * (1 - confirmation.delta):.4g}%"
    lines = [
        f"The {estimate} of {best.name} is within {within} of the best of these {n_candidates}, with {sure} "
        f"probability. A difference of up to {significant(confirmation.tolerance, 2)} counts as none."
    ]
    assumption = "This assumes that the evaluations of a candidate are independent"
    if confirmation.selected:
        assumption += (
            f", and that losing {confirmation.selected} of them did not depend on their values"
        )
    lines.append(f"{assumption}.")
    if confirmation.value_range is not None:
        return lines
    # The values decide which candidate is the best, so delta is divided among the candidates.
    lines.append(_on_unseen(best, confirmation.delta / n_candidates))
    lines.extend(_on_means(confirmation, best))
    return lines


def _on_unseen(best: Finalist, delta: float) -> str:
    """Return how large a share of the evaluations of the best candidate may be of an unseen kind, in words.

    A kind of probability p is missing among n independent evaluations with probability (1 - p)^n. This is at most delta
    if ``p >= 1 - delta^(1/n)``.
    """
    n = len(best.values)
    share = math.ceil(100 * -math.expm1(math.log(delta) / n))
    return (
        f"The {n} evaluations of {best.name} may not have shown rare results, such as a divergence: up to {share}% of "
        "its evaluations may be of a kind not seen."
    )


def _on_means(confirmation: Confirmation, best: Finalist) -> list[str]:
    """Return a warning if the mean of another candidate is better by more than the medians allow, else nothing."""
    sign = 1 if confirmation.maximize else -1
    other = max(confirmation.finalists, key=lambda finalist: sign * (finalist.mean or 0.0))
    gain = sign * ((other.mean or 0.0) - (best.mean or 0.0))
    if gain <= max(confirmation.within, confirmation.tolerance):
        return []
    return [
        f"But by the mean {other.name} is better by {gain:.2g} so far: where means count, give value_range."
    ]


def _about_limits(confirmation: Confirmation) -> list[str]:
    """Return which other candidates than in ``_answer`` break limits in new evaluations, and what was not measured."""
    limits = " and ".join(map(str, confirmation.constraints))
    n_values = sum(len(finalist.values) for finalist in confirmation.finalists)
    if not limits or not n_values:
        return []
    lines = []
    all_kept = True
    for finalist in confirmation.finalists:
        broken = _broken(finalist, confirmation.constraints)
        is_answer = confirmation.confirmed and finalist is confirmation.best
        if broken:
            all_kept = False
        if broken and not is_answer:
            lines.append(f"{finalist.name} breaks {broken} new evaluations.")
        n = len(finalist.values)
        for constraint in confirmation.constraints:
            n_missing = n - len(_measured(finalist, constraint))
            if n_missing:
                all_kept = False
                lines.append(
                    f"{finalist.name} has no measurement of {constraint.name} in {n_missing} of {n} new evaluations."
                )
    if all_kept:
        lines.append(f"All {n_values} new evaluations keep {limits}.")
    return lines


def _broken(finalist: Finalist, constraints: Sequence[Constraint]) -> str:
    """Return the limits that new evaluations of a candidate break, with the number of evaluations; empty if none."""
    n = len(finalist.values)
    counts = []
    for constraint in constraints:
        n_broken = sum(not constraint.kept_by(value) for value in _measured(finalist, constraint))
        if n_broken:
            counts.append(f"{constraint} in {n_broken} of {n}")
    return " and ".join(counts)


def _measured(finalist: Finalist, constraint: Constraint) -> list[float]:
    """Return the measurements of the quantity of a constraint in the evaluations of a candidate."""
    name = constraint.name
    return [measured[name] for measured in finalist.measured if name in measured]
