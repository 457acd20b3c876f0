"""A new run: its quantities before the first trial, and the header of its journal, which describes the problem."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from kbo._base import checks
from kbo.bandit import methods
from kbo.errors import InvalidInput
from kbo.optimize.assumptions.hypotheses import kernel_description
from kbo.optimize.assumptions.measured import Measured
from kbo.optimize.constraints.constraint import Constraint
from kbo.optimize.objectives.objective import (
    Objective,
    check_has_bounds,
    objectives_of,
    reference_of,
)
from kbo.optimize.quantities.quantities import Quantities
from kbo.optimize.run.outcome import OBJECTIVE
from kbo.optimize.run.trials import Trials
from kbo.optimize.settings.choice import resolve
from kbo.optimize.settings.setting import Setting
from kbo.optimize.surrogates.evaluation import ANY, SearchProblem
from kbo.space import Space

log: logging.Logger = logging.getLogger("kbo")

_MANY_OBJECTIVES = 4
"""Largest number of objectives without a warning about the cost."""


def new_quantities(
    space: Space,
    setting: Setting | None,
    method: str | None,
    n_trials: int | None,
    constraints: Sequence[Constraint],
    maximize: bool,
    objectives: Sequence[Any],
    reference: Any,
    value_range: tuple[float, float] | None,
) -> Quantities:
    """Return the quantities of a run before its first trial, from the arguments of a user.

    Arguments as for ``Optimizer``; the space and the limits on measured quantities are given instead of the bounds.

    Raises:
        InvalidInput: Arguments that cannot be used, or not with each other.
    """
    n_trials = checks.maybe(checks.whole, "n_trials", n_trials, 1)
    setting, method = resolve(setting, method, n_trials)
    maximize = checks.flag("maximize", maximize)
    several = objectives_of(objectives, maximize)
    not_acceptable = reference_of(reference, several)
    if several:
        maximize = several[0].maximize
        _check_several(several, constraints, setting, method, value_range)
    problem = SearchProblem(method, n_trials, space, _span(value_range, maximize))
    return Quantities(
        Trials(space), setting, problem, tuple(constraints), maximize, several, not_acceptable
    )


def _check_several(
    objectives: Sequence[Objective],
    constraints: Sequence[Constraint],
    setting: Setting,
    method: str,
    value_range: tuple[float, float] | None,
) -> None:
    """Raise InvalidInput if an argument cannot be used with several objectives; warn if they are very many."""
    if value_range is not None:
        raise InvalidInput("value_range is for one objective: leave it out.")
    first = objectives[0].name
    if first in [constraint.name for constraint in constraints]:
        raise InvalidInput(
            f"constraint {first!r}: the first objective is called {OBJECTIVE!r} in constraints: "
            f"kbo.Constraint({OBJECTIVE!r}, ...)."
        )
    if setting.explores_safely:
        raise InvalidInput(
            "kbo.Safe is for one objective: the others can be constraints, kbo.Constraint(name, upper=...)."
        )
    check_has_bounds(method)
    if len(objectives) > _MANY_OBJECTIVES:
        log.warning(
            "with %d objectives nearly every trial is on the front, and its hypervolume takes long: consider "
            "limits (kbo.Constraint) on some of them",
            len(objectives),
        )


def _span(value_range: tuple[float, float] | None, maximize: bool) -> tuple[float, float]:
    """Return the least and the largest possible value of the objective, larger better; infinite if not declared."""
    if value_range is None:
        return ANY
    low, high = value_range
    if maximize:
        return low, high
    return -high, -low


def journal_header(
    quantities: Quantities, seed: int, value_range: tuple[float, float] | None, space: Space
) -> dict[str, Any]:
    """Return the header of the journal of a run: its problem, as plain JSON values.

    Args:
        quantities: The quantities of the run, in any space.
        seed: The seed of the run.
        value_range: The declared range of the objective; None if none is declared.
        space: The space to describe; fingerprints of kernels are computed on it.
    """
    problem = quantities.problem
    header = {
        "space": space.describe(),
        "named": space.named,
        "maximize": quantities.maximize,
        "method": problem.method,
        "seed": seed,
    }
    if value_range is not None:
        header["value_range"] = list(value_range)
    if quantities.objectives:
        header["objectives"] = [_description(o, space.columns) for o in quantities.objectives]
    if quantities.reference:
        header["reference"] = quantities.reference
    if methods.get(problem.method).needs_horizon:
        header["n_trials"] = problem.n_trials
    header |= quantities.setting.describe(space)
    if quantities.constraints:
        header["constraints"] = [_description(c, space.columns) for c in quantities.constraints]
    return header


def _description(measured: Measured, columns: int) -> dict[str, Any]:
    """Return a constraint or an objective as plain JSON values, with a fingerprint in place of its kernel."""
    numbers = measured.describe()
    if measured.kernel is None:
        return numbers
    return {**numbers, **kernel_description(measured.kernel, columns)}
