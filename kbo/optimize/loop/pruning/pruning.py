"""Early stopping: whether a running trial that reports values is worth the rest of its steps.

A decision is a function of the trials and of their earlier reports, so a run that continues from its journal stops the
same trials.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable

from scipy.special import stdtr

from kbo._base import checks
from kbo.errors import InvalidInput
from kbo.optimize.loop.pruning.optuna_pruner import OptunaPruner, optuna_pruner
from kbo.optimize.quantities.learning_curves import (
    FEWEST,
    curves_at,
    degrees_of_freedom,
    regression,
)
from kbo.optimize.run.events import Event, Report, Tell
from kbo.optimize.run.trials import Trial, Trials
from kbo.space import Space

if TYPE_CHECKING:
    import optuna

_BEST = 0.15
"""Share of the completed trials that count as the best."""

_PRUNED = 3
"""Largest number of pruned trials for each completed one, since predictions rest on completed trials."""


@runtime_checkable
class Pruner(Protocol):
    """The interface of a pruner: it decides after each report whether a running trial is stopped."""

    def should_stop(self, trial: Trial, trials: Sequence[Trial], maximize: bool) -> bool:
        """Return whether to stop a trial after its last report.

        Args:
            trial: The running trial; ``trial.reports`` holds the reported steps and values.
            trials: All trials, in the order of their starts.
            maximize: Whether larger values are better.
        """
        ...


class Curves:
    """Stop a trial whose final value, predicted by the curves of completed trials, is unlikely to be among the best.

    The final value is predicted from the last report by linear regression. It uses half of the completed trials, and at
    least six: those whose reports at the same step are nearest. The trial is stopped if, by the prediction interval
    (Student's t, Seber & Lee 2003, ch. 5), it ends among the best 15% of the completed trials with a probability of
    less than ``delta``. It is not compared with the best value alone, because under noise that is too good. The first
    trials run to their end; then at most three trials are stopped for each completed one.

    Args:
        delta: Probability below which a trial is stopped. Larger values stop more trials.
        n_startup: Number of completed trials with the same step before a trial is stopped, at least six.
        n_warmup: Number of first reports of a trial at which it is never stopped.

    Raises:
        InvalidInput: ``delta`` is no probability, ``n_startup`` is less than six, or ``n_warmup`` is negative.
    """

    def __init__(self, delta: float = 0.25, n_startup: int = 10, n_warmup: int = 2) -> None:
        self.delta: float = checks.probability("delta", delta)
        self.n_startup: int = checks.whole("n_startup", n_startup, FEWEST)
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
        mean, error = regression(report, curves)
        margin = sign * mean - values[int(_BEST * len(values))]
        if error == 0:
            return margin < 0
        return float(stdtr(degrees_of_freedom(n), margin / error)) < self.delta


NAMES: dict[str, Callable[[], Pruner]] = {
    "curves": Curves,
    "median": partial(optuna_pruner, "median"),
    "hyperband": partial(optuna_pruner, "hyperband"),
    "wilcoxon": partial(optuna_pruner, "wilcoxon"),
}
"""Pruners by name."""


def pruner_of(pruner: object) -> Pruner:
    """Return the pruner that an argument means: a name, a pruner of Optuna, or one of kbo.

    Raises:
        InvalidInput: None of these.
        MissingExtra: Optuna is needed, but not installed.
    """
    if isinstance(pruner, str):
        return NAMES[checks.one_of("pruner", pruner, NAMES)]()
    if not isinstance(pruner, type):
        if isinstance(pruner, Pruner):
            return copy.deepcopy(pruner)  # a pruner may keep data of a run
        if callable(getattr(pruner, "prune", None)):
            return OptunaPruner(cast("optuna.pruners.BasePruner", pruner))
    raise InvalidInput(
        f"pruner must be one of {', '.join(NAMES)}, kbo.Curves(...), a pruner of Optuna, or an object with a method "
        f"should_stop(trial, trials, maximize), got {checks.shown(pruner)}."
    )


class Pruning:
    """The decisions of a pruner in a run: one after each report, in the order of the events.

    No trial is stopped before another one is complete, or once it has as many reports as a complete trial.

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
        """The number of events that were taken into account."""
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
