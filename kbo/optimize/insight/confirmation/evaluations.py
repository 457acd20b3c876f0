"""The evaluations of a confirmation, kept as the trials of a run with a journal."""

from __future__ import annotations

import copy
import math
import os
from collections import Counter
from collections.abc import Mapping
from typing import Any

from kbo.errors import InvalidInput
from kbo.optimize.insight.confirmation.confirmation import Confirmation
from kbo.optimize.insight.confirmation.race import Finalist, Race
from kbo.optimize.run.outcome import OBJECTIVE
from kbo.optimize.run.run import Run
from kbo.optimize.run.table import by_name
from kbo.optimize.run.trials import Trial, measurements
from kbo.space import Choice, Params, Space


class Evaluations:
    """The evaluations of a confirmation: a run whose trials have one parameter, the name of the candidate."""

    def __init__(
        self,
        candidates: Mapping[str, Params],
        maximize: bool,
        delta: float,
        value_range: tuple[float, float] | None,
        journal: str | os.PathLike[str] | None,
    ) -> None:
        space = Space({"candidate": Choice(list(candidates))})
        header = _header(space, candidates, maximize, value_range)
        self.run: Run = Run(space, header, journal, value_range=value_range)
        self.race: Race = Race(len(candidates), maximize, delta, self.run.value_range)
        self._candidates: Mapping[str, Params] = candidates
        self._finalists: dict[str, Finalist] = {}  # after the first ``_n_events`` events of the run
        self._n_events: int = -1

    def begin(self) -> Trial:
        """Begin an evaluation: first those that an earlier process abandoned, then that of the next candidate."""
        abandoned = self.run.abandoned()
        if abandoned:
            return self.run.resume(abandoned[0])
        return self.run.begin({"candidate": self._next()})

    def params_of(self, trial: Trial) -> Params:
        """Return the parameters that a trial evaluates."""
        return copy.copy(self._candidates[_name(trial)])

    def finalists(self) -> list[Finalist]:
        """Return the candidates with their values and bounds."""
        if self._n_events == self.run.trials.n_events:
            return list(self._finalists.values())
        for name, measured in self._measured().items():
            finalist = self._finalists.get(name)
            if finalist is None or len(finalist.values) != len(measured):
                values = [measurement[OBJECTIVE] for measurement in measured]
                lower, upper = self.race.bounds(values)
                params = self._candidates[name]
                self._finalists[name] = Finalist(name, params, values, lower, upper, measured)
        self._n_events = self.run.trials.n_events
        return list(self._finalists.values())

    def _measured(self) -> dict[str, list[dict[str, float]]]:
        """Return the measurements of each candidate's evaluations, in the order of starts, up to the first pending."""
        measured: dict[str, list[dict[str, float]]] = {name: [] for name in self._candidates}
        waiting = set()  # candidates whose later values may have come first because of their noise
        for trial in self.run.trials.all:
            name = _name(trial)
            if trial.status == "pending":
                waiting.add(name)
            elif trial.value is not None and name not in waiting:
                measured[name].append(measurements(trial, OBJECTIVE))
        return measured

    def check_range(self) -> None:
        """Raise InvalidInput if a value was outside the declared range: the statement about means needs this range."""
        for trial in self.run.trials.failed:
            if OBJECTIVE in trial.measured:
                raise InvalidInput(
                    f"value_range is {self.run.value_range}, and a value was {trial.measured[OBJECTIVE]:.6g}: give the "
                    "range of all possible values, with another journal."
                )

    def _next(self) -> str:
        """Return the name of the next candidate: the one with the fewest evaluations among those worth evaluating."""
        n_evaluations = Counter(map(_name, self.run.trials.all))
        names = self.race.worth_evaluating(self.finalists())
        return min(names, key=n_evaluations.__getitem__)

    def outcome(self, tolerance: float, stopped: str) -> Confirmation:
        """Return the confirmation that follows from the values so far."""
        finalists = self.finalists()
        best, _, largest_lead = self.race.standing(finalists)
        objection = ""
        if math.isfinite(largest_lead):
            objection = self.race.objection(finalists)
        if objection:
            largest_lead = math.inf
        trials = self.run.trials.all
        return Confirmation(
            best=best,
            largest_lead=largest_lead,
            confirmed=largest_lead <= tolerance,
            objection=objection,
            finalists=finalists,
            tolerance=tolerance,
            delta=self.race.delta,
            maximize=self.race.maximize,
            value_range=self.race.value_range,
            evaluations=sum(trial.value is not None for trial in trials),
            selected=sum(map(_is_selected, trials)),
            stopped=stopped,
        )


def _header(
    space: Space,
    candidates: Mapping[str, Params],
    maximize: bool,
    value_range: tuple[float, float] | None,
) -> dict[str, Any]:
    """Return the description of a confirmation for the first line of its journal."""
    entries = []
    for name, params in candidates.items():
        entries.append({"name": name, "params": by_name(params)})
    header = {
        "setting": "confirm",
        "space": space.describe(),
        "named": True,
        "candidates": entries,
        "maximize": maximize,
    }
    if value_range is not None:
        header["value_range"] = list(value_range)
    return header


def _name(trial: Trial) -> str:
    """Return the name of the candidate that a trial evaluates."""
    return by_name(trial.params)["candidate"]


def _is_selected(trial: Trial) -> bool:
    """Return True if the noise of an evaluation may have decided whether it has a value, or which one."""
    return trial.failure is not None or trial.pruned or trial.starts > 1
