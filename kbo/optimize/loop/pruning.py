"""Early stopping: whether a running trial that reports values is worth the rest of its steps.

A decision is a function of the trials and of their earlier reports, so a run that continues from its journal stops the
same trials.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable

from scipy.special import stdtr

from kbo._base import checks
from kbo._base.extras import require
from kbo._base.lazy import Lazy
from kbo.errors import InvalidInput
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
else:
    optuna = Lazy("optuna")

_BEST = 0.15
"""Share of the completed trials that count as the best."""

_PRUNED = 3
"""Largest number of pruned trials for each completed one, since predictions rest on completed trials."""

_STATES = {"complete": "COMPLETE", "pruned": "PRUNED", "failed": "FAIL", "removed": "FAIL"}
"""The state in Optuna for each status of a trial."""


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


class OptunaPruner:
    """A pruner of Optuna, which decides in a study in memory with the same trials and reports.

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
        """Return whether to stop a trial after its last report: see ``Pruner.should_stop``."""
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
    """The Optuna trial that has the reports and the end of a trial of kbo."""

    def __init__(self, study: optuna.Study, starts: int) -> None:
        self._study = study
        self.starts: int = starts
        self.trial: optuna.Trial = study.ask()
        self._n_reports = 0

    def follow(self, trial: Trial) -> None:
        """Add the new reports of the kbo trial and, if it has ended, its end."""
        for step, value in trial.reports[self._n_reports :]:
            self.trial.report(value, step)
        self._n_reports = len(trial.reports)
        if trial.status != "pending":
            self.end(_STATES[trial.status], trial.value)

    def end(self, state: str, value: float | None = None) -> None:
        """End the Optuna trial in a state of Optuna."""
        self._study.tell(self.trial, value, optuna.trial.TrialState[state])


def _study(pruner: optuna.pruners.BasePruner, maximize: bool) -> optuna.Study:
    """Return a study in memory. Its name is fixed, because the brackets of Hyperband depend on it."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # no message about the study
    try:
        return optuna.create_study(
            study_name="kbo",
            pruner=pruner,
            sampler=optuna.samplers.RandomSampler(seed=0),
            direction="maximize" if maximize else "minimize",
        )
    finally:
        optuna.logging.set_verbosity(verbosity)


def optuna_pruner(name: str) -> OptunaPruner:
    """Return the pruner of Optuna with a name such as "median".

    Raises:
        MissingExtra: Optuna is not installed.
    """
    require(f"pruner {name!r}", "optuna", "optuna")
    with warnings.catch_warnings(action="ignore"):  # Wilcoxon is experimental
        pruner = getattr(optuna.pruners, f"{name.capitalize()}Pruner")()
    return OptunaPruner(pruner)


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
