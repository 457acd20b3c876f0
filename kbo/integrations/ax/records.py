"""Records of the values behind proposals and bounds. They show whether values were overwritten later.

Ax keeps only the last value of each metric. So each proposal stores the values that no earlier proposal has stored, and
when a bound is read, the newest trial stores those of them that no other trial has. If a recorded value is not the
present one, it was overwritten.
"""

from __future__ import annotations

import math
from typing import Any

from ax.core.base_trial import TrialStatus
from ax.core.experiment import Experiment

Place = tuple[int, str, str]
"""The index of a trial, the name of an arm and the name of a metric."""

Value = tuple[float | None, float | None]
"""A mean and its standard error; None if it is not known."""

Entry = list[Any]
"""A value with its place: [trial, arm, metric, mean, standard error]."""

_KEY = "kbo:values"
"""The key of a record, which is a list of entries, in the metadata of a proposal or of a trial."""

_UNKNOWN: Value = (None, None)

_DECIMALS = 10
"""Number of decimals that Ax stores."""


def record_of(experiment: Experiment) -> dict[str, Any]:
    """Return metadata of a proposal: a record of the values of complete trials that no proposal has stored.

    Entries of trials do not count, since Ax's SQL storage may not have them.
    """
    config: Any = experiment.optimization_config
    present = _present(experiment)
    entries: list[Entry] = []
    for trial in experiment.trials.values():
        if trial.status != TrialStatus.COMPLETED:
            continue
        for arm in trial.arms:
            for name in sorted(config.metric_names):
                place = (trial.index, arm.name, name)
                entries.append([*place, *present.get(place, _UNKNOWN)])
    return {_KEY: _new(entries, _of_proposals(experiment))}


def store_record(experiment: Experiment, record: dict[str, Any]) -> None:
    """Add the entries of a record that no trial has to the newest trial."""
    entries = _new(record[_KEY], _of_trials(experiment))
    if entries:
        trial = experiment.trials[max(experiment.trials)]
        trial.update_run_metadata({_KEY: [*trial.run_metadata.get(_KEY, []), *entries]})


def overwritten(experiment: Experiment) -> int:
    """Return the number of trials with a recorded value that is not the present one."""
    present = _present(experiment)
    trials: set[int] = set()
    for entry in [*_of_proposals(experiment), *_of_trials(experiment)]:
        index, arm, name, mean, error = entry
        if not _equal((mean, error), present.get((index, arm, name), _UNKNOWN)):
            trials.add(index)
    return len(trials)


def _present(experiment: Experiment) -> dict[Place, Value]:
    """Return the present values of all metrics by their places."""
    present: dict[Place, Value] = {}
    for entry in experiment.lookup_data().df.to_dict("records"):
        place = (entry["trial_index"], entry["arm_name"], entry["metric_name"])
        present[place] = (_finite(entry["mean"]), _finite(entry["sem"]))
    return present


def _finite(number: Any) -> float | None:
    """Return a number of the data; None if it is missing or not finite."""
    if math.isfinite(number):
        return float(number)
    return None


def _of_proposals(experiment: Experiment) -> list[Entry]:
    """Return the entries that proposals have stored."""
    entries: list[Entry] = []
    for trial in experiment.trials.values():
        for proposal in trial.generator_runs:
            entries += (proposal.gen_metadata or {}).get(_KEY, [])
    return entries


def _of_trials(experiment: Experiment) -> list[Entry]:
    """Return the entries that trials have stored."""
    entries: list[Entry] = []
    for trial in experiment.trials.values():
        entries += trial.run_metadata.get(_KEY, [])
    return entries


def _new(entries: list[Entry], earlier: list[Entry]) -> list[Entry]:
    """Return the entries whose value is not among the earlier ones of the same place."""
    recorded: dict[Place, list[Value]] = {}
    for index, arm, name, mean, error in earlier:
        recorded.setdefault((index, arm, name), []).append((mean, error))
    new: list[Entry] = []
    for entry in entries:
        index, arm, name, mean, error = entry
        values = recorded.get((index, arm, name), [])
        if not any(_equal(value, (mean, error)) for value in values):
            new.append(entry)
    return new


def _equal(recorded: Value, present: Value) -> bool:
    """Return whether a recorded value is the present one, which Ax's storage may have rounded."""
    for number, other in zip(recorded, present, strict=True):
        if number is None or other is None:
            if number is not other:
                return False
            continue
        as_stored = round(number, _DECIMALS)
        if not math.isclose(number, other) and not math.isclose(as_stored, other):
            return False
    return True
