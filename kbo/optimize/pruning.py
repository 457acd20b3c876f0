"""Early stopping: whether a trial that reports values while it runs is worth the rest of its steps.

A decision is a function of the trials and of what they reported before, so a run that continues from its journal stops
the same trials. Where the decisions come from Optuna, an in-memory study with the same trials makes them.
"""

from __future__ import annotations

import bisect
import copy
import math
import operator
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable

import numpy as np
from scipy.special import stdtr

from kbo._base import checks
from kbo._base.extras import require
from kbo._base.lazy import Lazy
from kbo.errors import InvalidInput
from kbo.optimize.run.events import Event, Report, Tell
from kbo.optimize.run.trials import Trial, Trials
from kbo.space import Space

if TYPE_CHECKING:
    import optuna
else:
    optuna = Lazy("optuna")

_FEWEST = 6
"""Completed trials with the same step from which on a regression line is drawn."""

_LEAST = 3
"""Completed trials with the same step from which on final values are predicted."""

_BEST = 0.15
"""Share of the completed trials that count as the best."""

_PRUNED = 3
"""Pruned trials for each completed one, at most: predictions of their values rest on completed ones."""


@runtime_checkable
class Pruner(Protocol):
    """Decides after each report whether a running trial is stopped."""

    def should_stop(self, trial: Trial, trials: Sequence[Trial], maximize: bool) -> bool:
        """Return whether to stop a trial after its last report.

        Args:
            trial: The running trial; ``trial.reports`` are the steps and values that it has reported.
            trials: All trials, in the order of their starts.
            maximize: Whether larger values are better.
        """
        ...


class Curves:
    """Stops a trial whose final value is, by the curves of completed trials, unlikely to be among the best.

    The final value is predicted from the last reported one by linear regression over completed trials: the half of
    them, and at least six, whose values at the same step are nearest. The trial is stopped if the prediction interval
    (Student's t, Seber & Lee 2003, ch. 5) leaves it a probability of less than ``delta`` to end among the best 15% of
    the completed ones: under noise the best value is too good to be compared with. The first trials run to their end,
    and then for each complete one at most three are stopped.

    Args:
        delta: Probability below which a trial is stopped. Larger values stop more trials.
        n_startup: Trials with the same step that are complete before one is stopped, at least six.
        n_warmup: Reports of a trial that are not enough to stop it.

    Raises:
        InvalidInput: A number that is no probability, fewer trials, or a negative number of reports.
    """

    def __init__(self, delta: float = 0.25, n_startup: int = 10, n_warmup: int = 2) -> None:
        self.delta: float = checks.probability("delta", delta)
        self.n_startup: int = checks.whole("n_startup", n_startup, _FEWEST)
        self.n_warmup: int = checks.whole("n_warmup", n_warmup, 0)

    def __repr__(self) -> str:
        return f"Curves(delta={self.delta:g}, n_startup={self.n_startup}, n_warmup={self.n_warmup})"

    def should_stop(self, trial: Trial, trials: Sequence[Trial], maximize: bool) -> bool:
        step, report = trial.reports[-1]
        curves = curves_at(step, trials)
        n = len(curves)
        if n < self.n_startup or len(trial.reports) <= self.n_warmup:
            return False
        if sum(other.pruned for other in trials) > _PRUNED * n:
            return False
        sign = 1 if maximize else -1
        values = sorted(sign * other.value for other in trials if other.value is not None)
        values.reverse()  # the best one first
        mean, error = _regression(report, curves)
        margin = sign * mean - values[int(_BEST * len(values))]
        if error == 0:
            return margin < 0
        return float(stdtr(_n_nearest(n) - 2, margin / error)) < self.delta


def _regression(report: float, curves: np.ndarray) -> tuple[float, float]:
    """Return mean and standard error of a final value, by linear regression on nearest pairs of reports and values.

    Args:
        report: The report.
        curves: Reports at the same step, and final values [n 2].
    """
    n = _n_nearest(len(curves))
    scale = max(abs(report), float(abs(curves).max())) or 1.0
    report = report / scale  # squares of very large numbers would overflow
    curves = curves / scale
    order = np.argsort(abs(curves[:, 0] - report), kind="stable")
    x, y = curves[order[:n]].T
    dx = x - x.mean()
    dy = y - y.mean()
    distance = report - x.mean()
    spread = dx @ dx
    slope = 0.0
    leverage = 0.0
    if spread > 0:
        slope = max(dx @ dy / spread, 0.0)
        leverage = distance**2 / spread
    residual = dy - slope * dx
    error = math.sqrt(residual @ residual / (n - 2) * (1 + 1 / n + leverage))
    return scale * float(y.mean() + slope * distance), scale * error


def _n_nearest(n: int) -> int:
    """Return the number of completed trials that a regression uses, of n."""
    return max(_FEWEST, math.ceil(n / 2))


def curves_at(step: int, trials: Iterable[Trial]) -> np.ndarray:
    """Return the last report up to a step and the final value of the completed trials with such a report, [n 2]."""
    curves = []
    for trial in trials:
        if trial.value is None:
            continue
        n_reports = bisect.bisect_right(trial.reports, step, key=operator.itemgetter(0))
        if n_reports:
            curves.append((trial.reports[n_reports - 1][1], trial.value))
    return np.array(curves).reshape(-1, 2)


class OptunaPruner:
    """A pruner of Optuna, which decides in a study in memory that has the same trials and reports.

    Args:
        pruner: The pruner; a copy of it is used.

    Raises:
        MissingExtra: Optuna is not installed.
    """

    def __init__(self, pruner: optuna.pruners.BasePruner) -> None:
        require("this pruner", "optuna", "optuna")
        self._pruner = copy.deepcopy(pruner)
        self._study: optuna.Study | None = None
        self._n_begun = 0
        self._twins: dict[int, _Twin] = {}  # of trials that run

    def should_stop(self, trial: Trial, trials: Sequence[Trial], maximize: bool) -> bool:
        if self._study is None:
            self._study = _study(self._pruner, maximize)
        for begun in trials[self._n_begun :]:
            self._twins[begun.number] = _Twin(self._study, begun.starts)
        self._n_begun = len(trials)
        for number, twin in list(self._twins.items()):
            if twin.starts != trials[number].starts:  # it was started again, from the first step
                twin.end("FAIL")
                twin = _Twin(self._study, trials[number].starts)
                self._twins[number] = twin
            twin.follow(trials[number])
            if trials[number].status != "pending":
                del self._twins[number]
        return self._twins[trial.number].trial.should_prune()


class _Twin:
    """A trial of Optuna with the reports and the end of one of kbo."""

    def __init__(self, study: optuna.Study, starts: int) -> None:
        self._study = study
        self.starts: int = starts
        self.trial: optuna.Trial = study.ask()
        self._n_reports = 0

    def follow(self, trial: Trial) -> None:
        """Add the new reports, and the end if the trial has ended."""
        for step, value in trial.reports[self._n_reports :]:
            self.trial.report(value, step)
        self._n_reports = len(trial.reports)
        if trial.status != "pending":
            self.end(_STATES[trial.status], trial.value)

    def end(self, state: str, value: float | None = None) -> None:
        self._study.tell(self.trial, value, optuna.trial.TrialState[state])


_STATES = {"complete": "COMPLETE", "pruned": "PRUNED", "failed": "FAIL", "removed": "FAIL"}
"""States of Optuna by the status of a trial."""


def _study(pruner: optuna.pruners.BasePruner, maximize: bool) -> optuna.Study:
    """Return a study in memory. Its name is fixed, since the brackets of Hyperband depend on it."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # the study is no news
    try:
        return optuna.create_study(
            study_name="kbo",
            pruner=pruner,
            sampler=optuna.samplers.RandomSampler(seed=0),
            direction="maximize" if maximize else "minimize",
        )
    finally:
        optuna.logging.set_verbosity(verbosity)


def _of_optuna(name: str) -> OptunaPruner:
    require(f"pruner {name!r}", "optuna", "optuna")
    with warnings.catch_warnings(action="ignore"):  # Wilcoxon is experimental
        pruner = getattr(optuna.pruners, f"{name.capitalize()}Pruner")()
    return OptunaPruner(pruner)


NAMES: dict[str, Callable[[], Pruner]] = {
    "curves": Curves,
    "median": partial(_of_optuna, "median"),
    "hyperband": partial(_of_optuna, "hyperband"),
    "wilcoxon": partial(_of_optuna, "wilcoxon"),
}
"""Pruners by name."""


def pruner_of(pruner: object) -> Pruner:
    """Return the pruner that is meant by a name, one of Optuna's, or one of kbo's.

    Raises:
        InvalidInput: None of these.
        MissingExtra: Optuna is needed, and not installed.
    """
    if isinstance(pruner, str):
        return NAMES[checks.one_of("pruner", pruner, NAMES)]()
    if not isinstance(pruner, type):
        if isinstance(pruner, Pruner):
            return copy.deepcopy(pruner)  # it may keep data of one run
        if callable(getattr(pruner, "prune", None)):
            return OptunaPruner(cast("optuna.pruners.BasePruner", pruner))
    raise InvalidInput(
        f"pruner must be one of {', '.join(NAMES)}, kbo.Curves(...), a pruner of Optuna, or an object with a method "
        f"should_stop(trial, trials, maximize), got {checks.shown(pruner)}."
    )


class Pruning:
    """The decisions of a pruner in a run: one after each report, in the order of the events.

    No trial is stopped before another one is complete, or once it has as many reports as a complete one.

    Args:
        pruner: See ``pruner_of``.
        space: The search space.
        maximize: Whether larger values are better.
    """

    def __init__(self, pruner: object, space: Space, maximize: bool) -> None:
        self._pruner = pruner_of(pruner)
        self._maximize = maximize
        self._trials = Trials(space)  # at the event up to which decisions are made
        self._most_reports = 0  # of a complete trial
        self._stops: dict[int, bool] = {}

    @property
    def n_events(self) -> int:
        """The number of events that are known."""
        return self._trials.n_events

    def should_stop(self, number: int, events: Iterable[Event]) -> bool:
        """Return whether to stop a trial after its last report.

        Args:
            number: Its number.
            events: The events of the run from number ``n_events`` on.
        """
        for event in events:
            self._trials.add(event)
            if isinstance(event, Tell):
                n_reports = len(self._trials.all[event.number].reports)
                self._most_reports = max(self._most_reports, n_reports)
            elif isinstance(event, Report):
                self._stops[event.number] = self._decision(self._trials.all[event.number])
        return self._stops.get(number, False)

    def _decision(self, trial: Trial) -> bool:
        """Return True if a trial is to be stopped after its last report."""
        if len(trial.reports) >= self._most_reports:
            return False
        return self._pruner.should_stop(trial, self._trials.all, self._maximize)


def prediction(
    trial: Trial, complete: Iterable[Trial], maximize: bool
) -> tuple[float, float] | None:
    """Return the final value of a pruned trial, predicted from its last report as ``Curves`` does, and its error.

    With fewer than six completed trials it is, of their final values, the one with the rank of the report among theirs
    at the same step. A prediction is not better than every value, and not worse than every value and the report. The
    further it is from every value, the larger is its error.

    Args:
        trial: The pruned trial.
        complete: Completed trials.
        maximize: Whether larger values are better.

    Returns:
        The value and its standard error; None without a report, with fewer than three completed trials with the same
        step, and where they cannot be computed.
    """
    if not trial.reports:
        return None
    step, report = trial.reports[-1]
    curves = curves_at(step, complete)
    if len(curves) < _LEAST:
        return None
    reports, values = curves.T
    if len(curves) < _FEWEST:
        by_rank = np.sort(reports), np.sort(values)
        mean = float(np.interp(report, *by_rank))
        missed = np.interp(reports, *by_rank) - values  # of the completed trials
        error = math.hypot(
            math.hypot(*missed) / math.sqrt(len(values)), float(np.ptp(values)) / len(values)
        )
    else:
        mean, error = _regression(report, curves)
    low = values.min()
    high = values.max()
    if maximize:
        low = min(report, low)
    else:
        high = max(report, high)
    mean = float(min(max(mean, low), high))
    error = math.hypot(error, float(abs(mean - values).min()) / 4)
    if not math.isfinite(mean) or not math.isfinite(error):
        return None
    return mean, error
