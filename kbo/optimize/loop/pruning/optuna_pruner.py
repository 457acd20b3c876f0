"""Pruners of Optuna for trials of kbo: they decide in an Optuna study with the same trials and reports."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kbo._base.extras import require
from kbo._base.lazy import Lazy
from kbo.optimize.run.trials import Trial

if TYPE_CHECKING:
    import optuna
else:
    optuna = Lazy("optuna")

_STATES = {"complete": "COMPLETE", "pruned": "PRUNED", "failed": "FAIL", "removed": "FAIL"}
"""The state in Optuna for each status of a trial."""


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
