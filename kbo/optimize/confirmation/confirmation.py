"""The outcome of a confirmation, and its statement in words."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR

from kbo._base.terminal import confidence_level, rounded_up, significant
from kbo.confidence.repeated import median
from kbo.optimize.constraints.constraint import Constraint
from kbo.optimize.run.table import format_params
from kbo.space import Params

_REPEATED = 0.5
"""Share of equal values of a candidate from which on their median says too little."""


@dataclass(frozen=True)
class Finalist:
    """A candidate of a confirmation, with its new values.

    Attributes:
        name: Its name.
        params: Its parameters.
        values: Its new values, in the order of the starts, up to the first that is missing.
        lower, upper: Confidence bounds of its median, or with ``value_range`` of its mean; infinite for few values.
        measured: For each of these values, all measurements of the evaluation by name; the value is "objective".
    """

    name: str
    params: Params
    values: Sequence[float]
    lower: float
    upper: float
    measured: Sequence[Mapping[str, float]] = ()

    def __str__(self) -> str:
        params = format_params(self.params)
        n = len(self.values)
        if not n:
            return f"{self.name}: no value: {params}"
        plural = "" if n == 1 else "s"
        estimates = f"median {self.median:.4g}, mean {self.mean:.4g} of {n} evaluation{plural}"
        return f"{self.name}: {estimates}{_bounds(self)}: {params}"

    @property
    def mean(self) -> float | None:
        """The mean of the values; None without any."""
        if not self.values:
            return None
        return math.fsum(value / len(self.values) for value in self.values)

    @property
    def median(self) -> float | None:
        """The median of the values; None without any."""
        if not self.values:
            return None
        return median(self.values)

    @property
    def repeated(self) -> tuple[float, int] | None:
        """The most frequent value and its count, if it is at least half of the values, but not all; else None."""
        if not self.values:
            return None
        ((value, count),) = Counter(self.values).most_common(1)
        if 1 < count < len(self.values) and count >= _REPEATED * len(self.values):
            return value, count
        return None


def _bounds(finalist: Finalist) -> str:
    """Return the finite bounds of a candidate, rounded outwards, in words; empty without one."""
    lower = significant(finalist.lower, 4, ROUND_FLOOR)
    upper = significant(finalist.upper, 4, ROUND_CEILING)
    has_lower = math.isfinite(finalist.lower)
    has_upper = math.isfinite(finalist.upper)
    if has_lower and has_upper:
        return f", bounds {lower} to {upper}"
    if has_lower:
        return f", bound at least {lower}"
    if has_upper:
        return f", bound at most {upper}"
    return ""


@dataclass(frozen=True)
class Confirmation:
    """The outcome of new evaluations of a few candidates (docs/theory/confirm.md).

    Attributes:
        best: The candidate with the best median, or with ``value_range`` the best mean; None before each has a value.
        largest_lead: The largest lead over ``best`` that the median (with ``value_range`` the mean) of another
            candidate can have, with probability ``1 - delta``. Infinite while no bound is known, and if there is an
            objection.
        confirmed: Whether ``largest_lead`` is at most the tolerance. It is about the objective alone, and not about
            limits.
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
    largest_lead: float
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
    lines = [confirmation.statement, f"It ended after {n} evaluations: {confirmation.stopped}."]
    lines.extend(map(str, confirmation.finalists))
    return "\n".join(lines)


def _answer(confirmation: Confirmation) -> str:
    """Return in one line which candidate is the best, with the limits that it broke, or that this is undecided."""
    best = confirmation.best
    if confirmation.objection:
        return "Not decided: these values allow no statement."
    if best is None or not math.isfinite(confirmation.largest_lead):
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
    if best is None or not math.isfinite(confirmation.largest_lead):
        return []
    n_candidates = len(confirmation.finalists)
    estimate = "mean" if confirmation.value_range is not None else "median"
    largest_lead = rounded_up(confirmation.largest_lead, 2)
    sure = confidence_level(confirmation.delta)
    lines = [
        f"The {estimate} of {best.name} is within {largest_lead} of the best of these {n_candidates}, with {sure} "
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
    """Return the largest share of the best candidate's evaluations that one unseen kind may have, in words.

    A kind of probability p is missing among n independent evaluations with probability (1 - p)^n. This is at most delta
    if ``p >= 1 - delta^(1/n)``. This delta is spent beside that of the statement about the best candidate.
    """
    n = len(best.values)
    share = math.ceil(100 * -math.expm1(math.log(delta) / n))
    return (
        f"The {n} evaluations of {best.name} may not have shown rare results, such as a divergence. Any one kind of "
        f"result that makes up more than {share}% of its evaluations would have been seen, which is another statement "
        "with the same probability."
    )


def _on_means(confirmation: Confirmation, best: Finalist) -> list[str]:
    """Return a warning if the mean of another candidate is better by more than the medians allow, else nothing."""
    sign = 1 if confirmation.maximize else -1
    other = max(confirmation.finalists, key=lambda finalist: sign * (finalist.mean or 0.0))
    gain = sign * ((other.mean or 0.0) - (best.mean or 0.0))
    if gain <= max(confirmation.largest_lead, confirmation.tolerance):
        return []
    return [
        f"But by the mean {other.name} is better by {gain:.2g} so far: where means count, give value_range."
    ]


def _about_limits(confirmation: Confirmation) -> list[str]:
    """Return a sentence on the other candidates that break limits in new evaluations, and on missing measurements."""
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
