"""An optimiser of kbo inside another library (Ax, Optuna): its setting, and the replay of the library's trials."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from kbo.errors import InvalidInput
from kbo.optimize import Front, Optimizer, Trial
from kbo.optimize.insight.front import FrontPoint
from kbo.optimize.run.outcome import outcome_of
from kbo.optimize.settings.choice import resolve
from kbo.optimize.settings.setting import Setting
from kbo.space import Params, Space


class Ended(NamedTuple):
    """A trial of the other library that has ended.

    Attributes:
        key: The number or name of the trial in the other library.
        params: Its parameters, in the space of kbo.
        value: Its value of the first objective; None if it has no value.
        measured: By name, its values of other objectives and of constrained quantities, and the standard error of the
            value.
        pruned: Whether it was stopped early.
        reports: Pairs of a step and the value reported at it.
    """

    key: Any
    params: Params
    value: float | None
    measured: Mapping[str, float]
    pruned: bool
    reports: Sequence[tuple[int, float]]


class Replay(NamedTuple):
    """An optimiser after trials of the other library. Its numbers of the trials are their positions in ``trials``.

    Attributes:
        problem: The arguments of the optimiser, with the space as plain values.
        optimizer: The optimiser.
        trials: The trials of the other library.
    """

    problem: dict[str, Any]
    optimizer: Optimizer
    trials: list[Ended]

    @property
    def recommended(self) -> Ended | None:
        """The recommended trial; None if no trial has a value."""
        trial = self.optimizer.recommended()
        if trial is None:
            return None
        return self.trials[trial.number]

    def front(self, name: Callable[[Ended], tuple[int, Params]]) -> Front | None:
        """Return the front as ``Insight.front`` does, with numbers and parameters of the other library.

        Args:
            name: A function of a trial that returns its number and its parameters in the other library.
        """
        front = self.optimizer.insight.front()
        if front is None:
            return None

        def renamed(point: FrontPoint) -> FrontPoint:
            number, params = name(self.trials[point.trial.number])
            return replace(point, trial=replace(point.trial, number=number, params=params))

        points = [renamed(point) for point in front.points]
        return replace(front, points=points, balanced=renamed(front.balanced))

    def can_continue(self, problem: dict[str, Any], trials: Sequence[Ended]) -> bool:
        """Return whether the problem is the same, and ``trials`` begin with the trials of this optimiser."""
        if len(self.optimizer.trials) != len(self.trials):  # after an interrupt
            return False
        if self.optimizer.space.changed and len(trials) > len(self.trials):  # they may be outside
            return False
        return self.problem == problem and self.trials == trials[: len(self.trials)]


def replay(
    earlier: Replay | None,
    options: Mapping[str, Any],
    trials: Sequence[Ended],
    present: Space | None = None,
) -> Replay:
    """Return an optimiser after the trials, in the space for the next trial.

    Args:
        earlier: An earlier replay. If it can continue with these trials, it is continued and returned.
        options: The arguments of the optimiser; their space contains all trials.
        trials: The trials, in the order of their ends.
        present: The space for the next trial; None if it is the space of ``options``.

    Raises:
        InvalidInput: The arguments cannot be used.
    """
    whole: Space = options["bounds"]
    if present is None:
        present = whole
    problem = {**options, "bounds": whole.describe(), "present": present.describe()}
    if earlier is None or not earlier.can_continue(problem, trials):
        earlier = Replay(problem, Optimizer(**options), [])
    for ended in trials[len(earlier.trials) :]:
        _add(earlier.optimizer, ended)
        earlier.trials.append(ended)
    if present is not whole and not earlier.optimizer.space.changed:
        earlier.optimizer.change(present)
    return earlier


def _add(optimizer: Optimizer, ended: Ended) -> None:
    """Add a trial of the other library: begin it, report its values, and end it in the same way."""
    trial = optimizer.run.begin(ended.params)
    for step, value in ended.reports:
        optimizer.run.report(trial, value, step=step)
    if (
        ended.pruned and not optimizer.objectives
    ):  # with several objectives no model predicts its values
        optimizer.run.prune(trial)
    else:
        _end(optimizer, trial, ended)


def _end(optimizer: Optimizer, trial: Trial, ended: Ended) -> None:
    """Record the value of a trial, or its failure. A failure is not logged: the other library has reported it."""
    returned = (ended.value, dict(ended.measured))
    outcome = outcome_of(returned, optimizer.run.needed, optimizer.value_range)
    if not outcome.failure:
        optimizer.run.complete(trial, returned)
        return
    measured = dict(outcome.measured)
    if outcome.value is not None:
        measured[optimizer.run.main] = outcome.value
    optimizer.run.fail(trial, outcome.failure, measured=measured)


def resolved(
    setting: Setting | None, method: str | None, n_trials: int | None
) -> tuple[Setting, str]:
    """Return setting and method as ``kbo.optimize.settings.choice.resolve`` does.

    Raises:
        InvalidInput: ``resolve`` raises it, or the setting is safe: here the first trials would not be safe.
    """
    setting, method = resolve(setting, method, n_trials)
    if setting.explores_safely:
        raise InvalidInput(
            "setting: kbo.Safe is for kbo.minimize and kbo.Optimizer. Here the first trials fill the space, whether "
            "that is safe or not."
        )
    return setting, method
