"""The problem that the header of a journal describes: its optimiser, limits and measurements."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from typing import Any

from gpytorch.kernels import Kernel

from kbo.errors import InvalidInput
from kbo.optimize import Certified, Constraint, Hypothesis, Optimizer, Practical, Safe
from kbo.optimize.assumptions.hypotheses import KERNELS
from kbo.optimize.objectives.objective import Objective, main_of, recorded_objectives
from kbo.optimize.run.journal_file import reading_header, space_of
from kbo.optimize.run.outcome import OBJECTIVE
from kbo.optimize.search.search import Search
from kbo.optimize.settings.certified import assumes_norm
from kbo.optimize.settings.setting import Setting
from kbo.optimize.strategies import Strategy
from kbo.space import Params, Space


def optimizer_of(
    header: Mapping[str, Any],
    kernel: Kernel | Sequence[Hypothesis] | None = None,
    constraints: Sequence[Constraint] = (),
    space: Space | None = None,
    **options: Any,
) -> Optimizer:
    """Return an optimiser for the problem that a header describes.

    Args:
        header: The header of a journal.
        kernel: The kernel or hypotheses, as for ``Record.of``.
        constraints: Limits with their own kernels, as for ``Record.of``.
        space: The search space; None for the space in the header.
        options: Further arguments of ``Optimizer``, for example a journal.

    Raises:
        JournalError: The header was not written by kbo.
        InvalidInput: A kernel is missing.
    """
    with_kernel = {constraint.name: constraint for constraint in constraints}
    with reading_header():
        if header.get("setting") == "certified" and not assumes_norm(header["method"]):
            header = _without_norm_bounds(header)
        setting = _setting_of(header, kernel)
        _check_kernels(header, with_kernel.keys())
        limits = [with_kernel.get(limit.name, limit) for limit in constraints_of(header)]
        objectives = recorded_objectives(header)
        space = space or space_of(header)
        return optimizer_with(header, space, setting, limits, objectives, **options)


def _without_norm_bounds(header: Mapping[str, Any]) -> dict[str, Any]:
    """Return a header without norm bounds, which those of version 1.0 hold also where the method uses none."""
    kept = {name: value for name, value in header.items() if name != "norm_bound"}
    for kind in ("constraints", "objectives"):
        if kind in kept:
            kept[kind] = [{**entry, "norm_bound": None} for entry in kept[kind]]
    return kept


def _check_kernels(header: Mapping[str, Any], names: Collection[str]) -> None:
    """Check that each limit and objective with its own kernel is in ``names``: those whose kernel is known.

    Raises:
        InvalidInput: A kernel is missing.
    """
    for kind in ("constraints", "objectives"):
        for entry in header.get(kind, ()):
            if KERNELS & set(entry) and entry["name"] not in names:
                raise InvalidInput(
                    f"{entry['name']!r} among the {kind} has a kernel of its own, of which the journal has a "
                    "fingerprint only: pass the optimiser or the result of the run in place of its journal."
                )


class _Recorded(Strategy):
    """The strategies of a run, of which the journal has only a description. It can propose nothing."""

    def __init__(self, description: str) -> None:
        self._description = description

    def propose(self, search: Search) -> Params | None:
        return None

    def describe(self) -> str:
        return self._description


def _setting_of(header: Mapping[str, Any], kernel: Kernel | Sequence[Hypothesis] | None) -> Setting:
    """Return the setting that a header describes, with the kernel, which the header lacks."""
    entries = {name: value for name, value in header.items() if value is not None}
    kind: type[Practical | Certified] = Practical
    if header.get("setting") == "certified":
        kind = Certified
        if "start" in header:
            kind = Safe
        entries = {"noise_std": None, **entries, "kernel": kernel}
    if "strategies" in entries:
        entries["strategies"] = [_Recorded(str(entries["strategies"]))]
    arguments = {}
    for field in fields(kind):
        if field.name in entries:
            arguments[field.name] = entries[field.name]
    return kind(**arguments)


def constraints_of(header: Mapping[str, Any]) -> list[Constraint]:
    """Return the limits on measured quantities that a header describes, without their kernels."""
    with reading_header():
        constraints = []
        for entry in header.get("constraints", ()):
            arguments = {name: value for name, value in entry.items() if name not in KERNELS}
            constraints.append(Constraint(**arguments))
        return constraints


def main_in(header: Mapping[str, Any]) -> str:
    """Return the name of the value of a trial that a header describes: the first objective, if there are several."""
    return main_of(recorded_objectives(header))


def needed_by(header: Mapping[str, Any]) -> list[str]:
    """Return the names of the measurements that each trial needs besides its value.

    They are the names of the constraints in a header, and of the objectives after the first.
    """
    names = [constraint.name for constraint in constraints_of(header)]
    names += [objective.name for objective in recorded_objectives(header)[1:]]
    return [name for name in dict.fromkeys(names) if name != OBJECTIVE]


def optimizer_with(
    header: Mapping[str, Any],
    space: Space,
    setting: Setting,
    constraints: Sequence[Constraint],
    objectives: Sequence[Objective],
    **options: Any,
) -> Optimizer:
    """Return an optimiser with arguments from a header, and the given ones."""
    return Optimizer(
        space,
        setting=setting,
        constraints=constraints,
        method=header["method"],
        maximize=header["maximize"],
        seed=header["seed"],
        n_trials=header.get("n_trials"),
        value_range=header.get("value_range"),
        objectives=objectives,
        reference=header.get("reference"),
        **options,
    )
