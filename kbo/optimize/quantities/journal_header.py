"""The header of a journal: it describes the problem of a run, so that no other problem continues the journal."""

from __future__ import annotations

from typing import Any

from kbo.bandit import methods
from kbo.optimize.assumptions.hypotheses import kernel_description
from kbo.optimize.assumptions.measured import Measured
from kbo.optimize.quantities.quantities import Quantities
from kbo.space import Space


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
