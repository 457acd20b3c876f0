"""The trials of another library as those of an optimiser of kbo."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kbo.optimize import Optimizer, Trial
from kbo.optimize.run.outcome import OBJECTIVE, outcome_of
from kbo.space import Params


class Ended(NamedTuple):
    """A trial of the other library that has ended.

    Attributes:
        key: Its number or name there.
        params: Its parameters, in the space of kbo.
        value: Its value; None if it has none.
        measured: What it measured of the quantities of constraints.
        pruned: Whether it was stopped early.
        reports: Steps and values that it reported.
    """

    key: Any
    params: Params
    value: float | None
    measured: Mapping[str, float]
    pruned: bool
    reports: Sequence[tuple[int, float]]


class Replay(NamedTuple):
    """An optimiser after trials of the other library; its trials have their positions there as numbers.

    Attributes:
        problem: What tells the optimiser from others, compared by ``==``.
        optimizer: The optimiser.
        trials: The trials.
    """

    problem: Any
    optimizer: Optimizer
    trials: list[Ended]

    @property
    def recommended(self) -> Ended | None:
        """The recommended trial; None if no trial has a value."""
        trial = self.optimizer.recommended()
        return None if trial is None else self.trials[trial.number]


def replay(
    before: Replay | None, problem: Any, options: Mapping[str, Any], trials: Sequence[Ended]
) -> Replay:
    """Return an optimiser after some trials.

    Args:
        before: One that may know some of them, which is continued if it knows these first and no others.
        problem: What tells the optimiser from others.
        options: Its arguments.
        trials: The trials, in the order of their ends.

    Raises:
        InvalidInput: The arguments cannot be used.
    """
    whole = before is not None and len(before.optimizer.trials) == len(
        before.trials
    )  # not after an interrupt
    if (
        before is None
        or not whole
        or before.problem != problem
        or before.trials != trials[: len(before.trials)]
    ):
        before = Replay(problem, Optimizer(**options), [])
    for one in trials[len(before.trials) :]:
        trial = before.optimizer.run.begin(one.params)
        for step, value in one.reports:
            before.optimizer.run.report(trial, value, step=step)
        if one.pruned:
            before.optimizer.run.prune(trial)
        else:
            _end(before.optimizer, trial, one)
        before.trials.append(one)
    return before


def _end(optimizer: Optimizer, trial: Trial, ended: Ended) -> None:
    """Record the value of a trial, or its failure, of which the other library has told already."""
    needed = [
        constraint.name for constraint in optimizer.constraints if constraint.name != OBJECTIVE
    ]
    returned = ended.value, dict(ended.measured)
    outcome = outcome_of(returned, needed, optimizer.value_range)
    if not outcome.failure:
        optimizer.run.complete(trial, returned)
        return
    measured = dict(outcome.measured)
    if outcome.value is not None:
        measured[OBJECTIVE] = outcome.value
    optimizer.run.fail(trial, outcome.failure, measured=measured)
