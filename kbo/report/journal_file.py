"""Journals as reports and commands read them: their contents, and the problem that the first line describes."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

from gpytorch.kernels import Kernel

from kbo.errors import InvalidInput, JournalError, KboError
from kbo.optimize import Certified, Constraint, Hypothesis, Optimizer, Practical, Safe, Trial
from kbo.optimize.assumptions.hypotheses import KERNELS
from kbo.optimize.objectives.objective import Objective, main_of, recorded_objectives
from kbo.optimize.run import journal
from kbo.optimize.run.events import Event, Header
from kbo.optimize.run.outcome import OBJECTIVE
from kbo.optimize.run.trials import Trials
from kbo.optimize.search.search import Search
from kbo.optimize.settings.certified import assumes_norm
from kbo.optimize.settings.setting import Setting
from kbo.optimize.strategies import Strategy
from kbo.space import Params, Space


class JournalFile(NamedTuple):
    """The contents of a journal.

    Attributes:
        path: The file.
        header: The description of the problem, in the first line.
        events: The events before any damage, oldest first.
        trials: The trials that the events describe.
        space: The search space after the events.
        damage: The first line that is damaged or does not fit the lines before it, and the reason; empty if there is
            none.
        unfinished: Whether the last line is incomplete, because the run was killed or is writing it.
    """

    path: Path
    header: Header
    events: list[Event]
    trials: list[Trial]
    space: Space
    damage: str
    unfinished: bool

    @property
    def main(self) -> str:
        """The name of the value of a trial: the first objective, if there are several."""
        return main_of(recorded_objectives(self.header))

    def whole(self) -> JournalFile:
        """Return the contents after a check that there is no damage.

        Raises:
            JournalError: A line is damaged or does not fit.
        """
        if self.damage:
            raise JournalError(
                f"{self.path} is damaged: {self.damage}. Save the lines before it with "
                f"`kbo journal repair {self.path} NEW`."
            )
        return self


def read_journal(path: Path) -> JournalFile:
    """Return the contents of a journal up to the first line that is damaged or does not fit the lines before it.

    Nothing is locked, repaired or executed. Every report and command reads journals by this function.

    Raises:
        JournalError: The file cannot be read, is no journal of kbo, or is a journal of kbo 0.8 or before.
    """
    contents = journal.examine(path)
    with naming_file(path):
        trials = Trials(space_of(contents.header))
    damage = contents.damage
    misfit = trials.add_all(contents.events)
    if misfit:
        damage = f"{misfit}, which does not fit the lines before"
    events = contents.events[: trials.n_events]
    return JournalFile(
        path, contents.header, events, trials.all, trials.space, damage, contents.unfinished
    )


@contextlib.contextmanager
def naming_file(path: Path) -> Iterator[None]:
    """Put the path of a journal before the messages of errors in a block, unless they contain its name."""
    try:
        yield
    except (InvalidInput, JournalError) as error:
        if path.name in str(error):
            raise
        raise type(error)(f"{path}: {error}") from error


@contextlib.contextmanager
def _reading_header() -> Iterator[None]:
    """Turn errors of a block that reads the entries of a header into JournalError: kbo did not write the header."""
    try:
        yield
    except KboError:
        raise
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise JournalError(
            f"the header of the journal cannot be used ({type(error).__name__}: {error})."
        ) from error


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
    with _reading_header():
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


def space_of(header: Mapping[str, Any]) -> Space:
    """Return the space that a header describes; its constraint functions permit all params."""
    with _reading_header():
        return Space.from_description(header["space"], header["named"])


def constraints_of(header: Mapping[str, Any]) -> list[Constraint]:
    """Return the limits on measured quantities that a header describes, without their kernels."""
    with _reading_header():
        constraints = []
        for entry in header.get("constraints", ()):
            arguments = {name: value for name, value in entry.items() if name not in KERNELS}
            constraints.append(Constraint(**arguments))
        return constraints


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
