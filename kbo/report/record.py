"""A tuning run as the reports read it: its events and trials and, if it can be rebuilt, its optimiser."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from gpytorch.kernels import Kernel

from kbo._base import checks
from kbo.errors import InvalidInput, JournalError, KboError
from kbo.optimize import (
    Certified,
    Constraint,
    Hypothesis,
    Optimizer,
    Practical,
    Result,
    Safe,
    Trial,
)
from kbo.optimize.assumptions.hypotheses import KERNELS
from kbo.optimize.constraints.constraint import violations
from kbo.optimize.objectives.objective import Objective, main_of, recorded_objectives
from kbo.optimize.run import journal
from kbo.optimize.run.events import Event, Header
from kbo.optimize.run.outcome import OBJECTIVE
from kbo.optimize.run.trials import Trials
from kbo.optimize.search.search import Search
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
    with _naming_file(path):
        trials = Trials(space_of(contents.header))
    damage = contents.damage
    misfit = trials.add_all(contents.events)
    if misfit:
        damage = f"{misfit}, which does not fit the lines before"
    events = contents.events[: trials.n_events]
    return JournalFile(
        path, contents.header, events, trials.all, trials.space, damage, contents.unfinished
    )


class ImportedTrials(NamedTuple):
    """Trials of another tool in an optimiser of kbo.

    Attributes:
        source: The study, table, file or experiment.
        tool: The name of the tool.
        optimizer: An optimiser with the trials.
        names: The name of each trial in the tool.
        remark: A text about trials, rows and columns that are not used; empty if all are used.
        inferred: Whether the search space is unknown; its ranges are then the ranges of the trials.
    """

    source: str
    tool: str
    optimizer: Optimizer
    names: Sequence[Any]
    remark: str = ""
    inferred: bool = False


class History(NamedTuple):
    """Facts about trials of another tool, for their page.

    Attributes:
        tool: The name of the tool.
        names: The name of each trial in the tool.
        lines: The lines of the audit: labels and sentences.
    """

    tool: str
    names: Sequence[Any]
    lines: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Record:
    """A tuning run as reports need it: its trials and, if it can be rebuilt, its optimiser.

    Attributes:
        header: The description of the problem, as in the first line of a journal.
        events: The events, oldest first.
        trials: The trials with their values or failures.
        space: The search space after the last event.
        optimizer: The optimiser after the last event; None if it cannot be rebuilt from the journal.
        obstacle: The reason why the optimiser cannot be rebuilt; empty if it can.
        path: The path of the journal; None without one.
        stopped: The reason why the run ended; empty if it is unknown.
        history: Further facts if another tool made the trials, otherwise None.
    """

    header: Header
    events: list[Event]
    trials: list[Trial]
    space: Space
    optimizer: Optimizer | None = None
    obstacle: str = ""
    path: Path | None = None
    stopped: str = ""
    history: History | None = None

    @classmethod
    def of(
        cls,
        run: Run,
        kernel: Kernel | Sequence[Hypothesis] | None = None,
        constraints: Sequence[Constraint] = (),
    ) -> Record:
        """Return the record of a run.

        Args:
            run: The path of a journal, an optimiser, a result, or a record, which is returned unchanged.
            kernel: The kernel or the hypotheses of a journal in the certified setting, since the journal has only their
                fingerprints.
            constraints: For such a journal, the limits that have their own kernels, with these kernels.

        Raises:
            JournalError: The journal cannot be read, is damaged, or was made with another kernel.
            InvalidInput: A kernel is given where none is needed.
        """
        if isinstance(run, Record):
            return run
        if isinstance(run, Optimizer | Result) and kernel is not None:
            raise InvalidInput(
                "the run has a kernel already: pass kernel only with the path of a journal."
            )
        if isinstance(run, Optimizer):
            record = cls(run.run.header, run.run.events, list(run.trials), run.space, run)
            if run.run.path is None:
                return record
            return replace(record, path=Path(run.run.path))
        if isinstance(run, Result):
            path = None
            if run.journal is not None:
                path = Path(run.journal)
            return replace(cls.of(run.optimizer), path=path, stopped=run.stopped)
        path = checks.path("run", run)
        contents = read_journal(path).whole()
        if contents.unfinished:
            warnings.warn(
                f"left out an unfinished last line of {path}, of a run that was killed or is writing it now."
            )
        with _naming_file(path):
            return _of_journal(contents, kernel, constraints)

    @property
    def maximize(self) -> bool:
        """Whether larger values are better."""
        return bool(self.header.get("maximize"))

    @property
    def constraints(self) -> list[Constraint]:
        """The limits on measured quantities, with their kernels if the optimiser is known."""
        if self.optimizer is not None:
            return list(self.optimizer.constraints)
        return constraints_of(self.header)

    @property
    def objectives(self) -> list[Objective]:
        """The objectives of a run with several; empty if there is one."""
        return recorded_objectives(self.header)

    def name(self, trial: Trial) -> Any:
        """Return the name of a trial: its number, or its name in the other tool."""
        if self.history is None:
            return trial.number
        return self.history.names[trial.number]

    def with_status(self, status: str) -> list[Trial]:
        """Return the trials that are "pending", "complete", "failed", "pruned" or "removed"."""
        return [trial for trial in self.trials if trial.status == status]

    def rank(self, trial: Trial) -> tuple[int, float]:
        """Return the sort key of a trial, smallest for the best: the number of broken limits, then the value."""
        n_broken = violations(trial, self.constraints) + len(self.space.violated(trial.params))
        value = trial.value or 0.0
        if self.maximize:
            value = -value
        return n_broken, value

    def best(self) -> Trial | None:
        """Return the trial with the best observed value. This value is optimistically biased if there is noise.

        With constraints it is the best of the trials whose measurements break the fewest limits.
        """
        return min(self.with_status("complete"), key=self.rank, default=None)

    def recommended(self) -> Trial | None:
        """Return the recommended trial; None if there is none, or if it is unknown."""
        if self.optimizer is None:
            return None
        with contextlib.suppress(KboError):
            return self.optimizer.recommended()

    def reopened(self) -> Optimizer:
        """Return the optimiser.

        Raises:
            InvalidInput: The optimiser cannot be rebuilt from the journal.
        """
        if self.optimizer is None:
            raise InvalidInput(f"the run cannot be replayed: {self.obstacle}")
        return self.optimizer

    def blank(self) -> Optimizer:
        """Return an optimiser in the state before the first event."""
        optimizer = self.reopened()
        space = optimizer.run.first_space
        blank = _optimizer_with(
            self.header, space, optimizer.setting, optimizer.constraints, optimizer.objectives
        )
        blank.run.restore([], optimizer.space)  # its constraint functions are not in the events
        return blank


Run = Record | Optimizer | Result | str | os.PathLike[str]
"""A run: a record, an optimiser, a result, or the path of a journal."""

_NEEDS_KERNEL = (
    "The run is in the certified setting, where the kernel is given and not estimated. The journal holds only a "
    "fingerprint of it, so no bound can be computed from the journal alone."
)


def _of_journal(
    contents: JournalFile,
    kernel: Kernel | Sequence[Hypothesis] | None,
    constraints: Sequence[Constraint],
) -> Record:
    """Return the record of a journal; arguments and errors as for ``Record.of``."""
    path = contents.path
    header = contents.header
    record = Record(header, contents.events, contents.trials, contents.space, path=path)
    if header.get("setting") == "confirm":
        raise JournalError(
            f"{path} has the evaluations of a confirmation: see `kbo journal show {path}`."
        )
    obstacle = _obstacle(header, has_kernel=kernel is not None)
    if obstacle:
        return replace(record, obstacle=obstacle)
    if header.get("setting") != "certified" and kernel is not None:
        raise InvalidInput(
            f"{path} is a run of the practical setting, which fits its kernel: do not pass kernel."
        )
    optimizer = optimizer_of(header, kernel, constraints)
    try:
        optimizer.run.load(path)
    except KboError as error:
        if kernel is not None:
            raise
        return replace(record, obstacle=f"This version of kbo cannot resume the run: {error}")
    return replace(
        record, trials=list(optimizer.trials), space=optimizer.space, optimizer=optimizer
    )


def _obstacle(header: Header, has_kernel: bool) -> str:
    """Return the reason why a header does not determine the setting of its run; empty if it does."""
    if header.get("setting") == "certified" and not has_kernel:
        return _NEEDS_KERNEL
    if "class" in header:
        return (
            f"The journal only names the setting of your own (class = {header['class']}): pass its optimiser, or write "
            "the page from Python with kbo.report.write(result, path)."
        )
    return ""


@contextlib.contextmanager
def _naming_file(path: Path) -> Iterator[None]:
    """Put the path of a journal before the messages of errors in a block, unless they contain its name."""
    try:
        yield
    except (InvalidInput, JournalError) as error:
        if path.name in str(error):
            raise
        raise type(error)(f"{path}: {error}") from error


_MALFORMED = (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError)
"""Exceptions that a header may cause that kbo did not write."""


@contextlib.contextmanager
def _reading_header(complaint: str) -> Iterator[None]:
    """Turn errors of a block that reads entries of a header into JournalError, with a complaint."""
    try:
        yield
    except _MALFORMED as error:
        raise JournalError(f"{complaint} ({type(error).__name__}: {error}).") from error


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
    try:
        setting = _setting_of(header, kernel)
        _check_kernels(header, with_kernel.keys())
        limits = [with_kernel.get(limit.name, limit) for limit in constraints_of(header)]
        objectives = recorded_objectives(header)
        return _optimizer_with(
            header, space or space_of(header), setting, limits, objectives, **options
        )
    except KboError:
        raise
    except _MALFORMED as error:
        raise JournalError(
            f"the header of the journal cannot be used ({type(error).__name__}: {error})."
        ) from error


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
    """Return the setting that a header describes, with the kernel, which the header lacks.

    Raises:
        InvalidInput: The setting is certified, and there is no kernel.
    """
    entries = {name: value for name, value in header.items() if value is not None}
    kind: type[Practical | Certified] = Practical
    if header.get("setting") == "certified":
        if kernel is None:
            raise InvalidInput(f"{_NEEDS_KERNEL} Pass kernel=...")
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
    with _reading_header("the header of the journal describes no space"):
        return Space.from_description(header["space"], header["named"])


def constraints_of(header: Mapping[str, Any]) -> list[Constraint]:
    """Return the limits on measured quantities that a header describes, without their kernels."""
    with _reading_header("the header of the journal describes constraints that cannot be used"):
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


def _optimizer_with(
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
