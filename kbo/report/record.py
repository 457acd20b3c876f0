"""A tuning run as the reports read it: its events and trials and, if it can be rebuilt, its optimiser."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from gpytorch.kernels import Kernel

from kbo._base import checks
from kbo.errors import InvalidInput, JournalError, KboError, RefutedAssumptions
from kbo.optimize import Constraint, Hypothesis, Optimizer, Result, Trial
from kbo.optimize.constraints.constraint import violations
from kbo.optimize.objectives.objective import Objective, recorded_objectives
from kbo.optimize.result import result_of
from kbo.optimize.run.events import Event, Header
from kbo.optimize.run.journal_file import JournalFile, naming_file, read_whole
from kbo.report.header import constraints_of, optimizer_of, optimizer_with
from kbo.space import Space


class ImportedTrials(NamedTuple):
    """Trials of another tool in an optimiser of kbo.

    Attributes:
        source: The study, table, file or experiment.
        tool: The name of the tool.
        optimizer: An optimiser with the trials.
        names: The name of each trial in the tool.
        remark: A text about trials, rows and columns that are not used; empty if all are used.
        inferred: Whether the search space is unknown; its ranges are then the ranges of the trials.
        journal: The path of the journal of kbo that has the trials; empty for trials of another tool.
    """

    source: str
    tool: str
    optimizer: Optimizer
    names: Sequence[Any]
    remark: str = ""
    inferred: bool = False
    journal: str = ""


@dataclass(frozen=True)
class Record:
    """A tuning run as reports need it: its trials and, if it can be rebuilt, its optimiser.

    Attributes:
        header: The description of the problem, as in the first line of a journal.
        events: The events, oldest first.
        trials: The trials with their values or failures.
        space: The search space after the last event.
        optimizer: The optimiser after the last event; None if it cannot be rebuilt from the journal.
        obstacle: The reason why there are no bounds; empty if there are.
        path: The path of the journal; None without one.
        stopped: The reason why the run ended; empty if it is unknown.
        imported: The trials of another tool, if they are the trials of the run, otherwise None.
        result: The result after the trials, if it was computed: see ``with_result``.
    """

    header: Header
    events: list[Event]
    trials: list[Trial]
    space: Space
    optimizer: Optimizer | None = None
    obstacle: str = ""
    path: Path | None = None
    stopped: str = ""
    imported: ImportedTrials | None = None
    result: Result | None = None

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
        contents = read_whole(path)
        with naming_file(path):
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
        if self.imported is None:
            return trial.number
        return self.imported.names[trial.number]

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

    def with_result(self, evaluations: int) -> Record:
        """Return the record with its result, and with the optimiser that all statements of the result are about.

        Without an optimiser, or if the data contradict the assumptions, there is no result, and ``obstacle`` says why.

        Args:
            evaluations: The largest number of points at which each proof of the result may compute bounds.
        """
        if self.optimizer is None:
            return self
        try:
            result = result_of(self.optimizer, self.stopped, None, evaluations)
        except RefutedAssumptions as error:
            return replace(self, obstacle=f"The data contradict the assumptions. {error}")
        except KboError as error:
            return replace(self, obstacle=str(error))
        return replace(self, optimizer=result.settled, result=result)

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
        blank = optimizer_with(
            self.header, space, optimizer.setting, optimizer.constraints, optimizer.objectives
        )
        blank.run.restore([], optimizer.space)  # its constraint functions are not in the events
        return blank


Run = Record | Optimizer | Result | str | os.PathLike[str]
"""A run: a record, an optimiser, a result, or the path of a journal."""


def _of_journal(
    contents: JournalFile,
    kernel: Kernel | Sequence[Hypothesis] | None,
    constraints: Sequence[Constraint],
) -> Record:
    """Return the record of a journal; arguments and errors as for ``Record.of``."""
    path = contents.path
    header = contents.header
    trials = contents.trials
    record = Record(header, contents.events, trials.all, trials.space, path=path)
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


_NEEDS_KERNEL = (
    "The run is in the certified setting, where the kernel is given and not estimated. The journal holds only a "
    "fingerprint of it, so no bound can be computed from the journal alone."
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
