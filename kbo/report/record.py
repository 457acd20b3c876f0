"""Record of a tuning run: its journal and, where its kernel is known, its optimiser."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
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
from kbo.optimize.run import journal
from kbo.optimize.run.events import Event, Header
from kbo.optimize.run.trials import Trials, violations
from kbo.optimize.settings.setting import Setting
from kbo.space import Rule, Space

_OWN = ("class", "strategies")
"""Entries of a journal that name a setting of the caller's own; all but the first before kbo 0.18."""


class History(NamedTuple):
    """Facts about trials that another tool made.

    Attributes:
        tool: The tool.
        names: The names of the trials there, in their order here.
        answers: Sentences on its best trials and on the objective, by label.
        summary: The first line of the audit: what was read.
    """

    tool: str
    names: Sequence[Any]
    answers: Mapping[str, str]
    summary: str = ""


@dataclass(frozen=True)
class Record:
    """A tuning run.

    Attributes:
        header: The description of the problem, as in the first line of a journal.
        events: The events, oldest first.
        trials: The trials with their values or failures.
        optimizer: The optimiser after the last event; None if it cannot be rebuilt from the journal.
        obstacle: Why it cannot, in words; empty if it can.
        path: The journal, if there is one.
        stopped: The reason why the run ended, if it is known.
        history: What else is known if another tool made the trials.
    """

    header: Header
    events: list[Event]
    trials: list[Trial]
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
            run: A journal, an optimiser, a result, or a record, which is returned as it is.
            kernel: The kernel or the hypotheses of a journal in the certified setting, of which the journal holds
                fingerprints only.
            constraints: Limits of such a journal that have kernels of their own, with these.

        Raises:
            JournalError: The journal cannot be read, is damaged, or was made with another kernel.
            InvalidInput: A kernel is given where none is needed.
        """
        if isinstance(run, Record):
            return run
        if isinstance(run, Optimizer | Result):
            if kernel is not None:
                raise InvalidInput(
                    "the run has a kernel already: pass kernel only with the path of a journal."
                )
            if isinstance(run, Optimizer):
                return cls(run.header, run.events, list(run.trials), run)
            path = None if run.journal is None else Path(run.journal)
            return replace(cls.of(run.optimizer), path=path, stopped=run.stopped)
        path = checks.path("run", run)
        with naming(path):
            return cls._of_journal(path, kernel, constraints)

    @classmethod
    def _of_journal(
        cls,
        path: Path,
        kernel: Kernel | Sequence[Hypothesis] | None,
        constraints: Sequence[Constraint],
    ) -> Record:
        """Return the record of a journal; arguments and errors as for ``of``."""
        header, events = journal.read(path)
        if header.get("setting") == "confirm":
            raise JournalError(
                f"{path} has the evaluations of a confirmation: see `kbo journal show {path}`."
            )
        trials = Trials.of(space_of(header), events, path).all
        if header.get("setting") == "certified" and kernel is None:
            return cls(header, events, trials, obstacle=_NEEDS_KERNEL, path=path)
        if own := [f"{part} = {header[part]}" for part in _OWN if part in header]:
            why = f"The journal only names what is of your own in the setting ({', '.join(own)}): pass its optimiser."
            return cls(header, events, trials, obstacle=why, path=path)
        if header.get("setting") != "certified" and kernel is not None:
            raise InvalidInput(
                f"{path} is a run of the practical setting, which fits its kernel: do not pass kernel."
            )
        optimizer = optimizer_of(header, kernel, constraints)
        try:
            optimizer.load(path)
        except KboError as error:
            if kernel is not None:
                raise
            why = f"This version of kbo cannot resume the run: {error}"
            return cls(header, events, trials, obstacle=why, path=path)
        return cls(header, events, list(optimizer.trials), optimizer, path=path)

    @property
    def maximize(self) -> bool:
        """Whether larger values are better."""
        return bool(self.header.get("maximize"))

    @property
    def space(self) -> Space:
        """The search space."""
        return self.optimizer.space if self.optimizer is not None else space_of(self.header)

    def name(self, trial: Trial) -> Any:
        """Return the name of a trial."""
        return trial.number if self.history is None else self.history.names[trial.number]

    def with_status(self, status: str) -> list[Trial]:
        """Return the trials that are "pending", "complete", "failed" or "pruned"."""
        return [trial for trial in self.trials if trial.status == status]

    @property
    def constraints(self) -> list[Constraint]:
        """The limits on measured quantities, with the kernels that are known."""
        return (
            list(self.optimizer.constraints)
            if self.optimizer is not None
            else constraints_of(self.header)
        )

    def rank(self, trial: Trial) -> tuple[int, float]:
        """Return what is least for the best trial: the number of limits that it breaks as measured, and its value."""
        broken = violations(trial, self.constraints) + len(self.space.violated(trial.params))
        return broken, (-1 if self.maximize else 1) * (trial.value or 0.0)

    def best(self) -> Trial | None:
        """Return the trial with the best observed value, which is optimistically biased if the objective is noisy.

        With constraints it is one of those that keep most limits as measured.
        """
        return min(self.with_status("complete"), key=self.rank, default=None)

    def recommended(self) -> Trial | None:
        """Return the recommended trial; None if there is none, or it is not known."""
        with contextlib.suppress(KboError):
            return None if self.optimizer is None else self.optimizer.recommended()

    def reopened(self) -> Optimizer:
        """Return the optimiser.

        Raises:
            InvalidInput: It cannot be rebuilt from the journal.
        """
        if self.optimizer is None:
            raise InvalidInput(f"the run cannot be replayed: {self.obstacle}")
        return self.optimizer

    def blank(self) -> Optimizer:
        """Return the optimiser as it was before the first event."""
        optimizer = self.reopened()
        return _begin(self.header, optimizer.space, optimizer.setting, optimizer.constraints)


Run = Record | Optimizer | Result | str | os.PathLike[str]
"""A run: a record, an optimiser, a result, or the path of a journal."""

_KERNELS = {"kernel", "hypotheses"}
"""Entries of a constraint in a header that have fingerprints of kernels."""

_NEEDS_KERNEL = (
    "The run is in the certified setting, where the kernel is given and not estimated. The journal holds only a "
    "fingerprint of it, so no bound can be computed from the journal alone."
)


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Put the path of a journal before the messages about its contents that lack it."""
    try:
        yield
    except (InvalidInput, JournalError) as error:
        if path.name in str(error):
            raise
        raise type(error)(f"{path}: {error}") from error


@contextlib.contextmanager
def _reading(what: str, passed_on: tuple[type[KboError], ...] = ()) -> Iterator[None]:
    """Raise JournalError where a header was not written by kbo."""
    try:
        yield
    except passed_on:
        raise
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise JournalError(f"{what} ({type(error).__name__}: {error}).") from error


def optimizer_of(
    header: Mapping[str, Any],
    kernel: Kernel | Sequence[Hypothesis] | None = None,
    constraints: Sequence[Constraint] = (),
) -> Optimizer:
    """Return an optimiser without trials for the problem that the header of a journal describes; see ``Record.of``."""
    given = {name: value for name, value in header.items() if value is not None}
    kind: type[Practical | Certified] = Practical
    if header.get("setting") == "certified":
        if kernel is None:
            raise InvalidInput(f"{_NEEDS_KERNEL} Pass kernel=...")
        kind, given = (
            Safe if "start" in header else Certified,
            {"noise_std": None, **given, "kernel": kernel},
        )
    with _reading("the header of the journal cannot be used", passed_on=(KboError,)):
        setting = kind(
            **{entry.name: given[entry.name] for entry in fields(kind) if entry.name in given}
        )
        own, entries = {one.name: one for one in constraints}, header.get("constraints", ())
        if any(_KERNELS & set(entry) and entry["name"] not in own for entry in entries):
            raise InvalidInput(
                "a constraint of the run has a kernel of its own, of which the journal has a fingerprint only."
            )
        limits = [own.get(one.name, one) for one in constraints_of(header)]
        return _begin(header, space_of(header), setting, limits)


def space_of(header: Mapping[str, Any]) -> Space:
    """Return the space that the header of a journal describes; constraints that are functions permit everything."""
    with _reading("the header of the journal describes no space"):
        entries = {
            entry["name"]: {k: v for k, v in entry.items() if k != "name"}
            for entry in header["space"]
        }
        rules = [
            _stand_in(name) for name, entry in entries.items() if entry.get("kind") == "function"
        ]
        space = Space.from_dict(
            {name: entry for name, entry in entries.items() if entry.get("kind") != "function"}
        )
        return Space(space if header["named"] else Space(space.pairs(), space.linear), rules)


def _stand_in(name: str) -> Rule:
    """Return a function of the name of one that a journal only names."""

    def permits(params: Any) -> bool:
        return True

    permits.__module__, _, permits.__qualname__ = name.rpartition(".")
    return permits


def constraints_of(header: Mapping[str, Any]) -> list[Constraint]:
    """Return the limits on measured quantities that the header of a journal describes, without their kernels."""
    with _reading("the header of the journal describes constraints that cannot be used"):
        entries = header.get("constraints", ())
        return [
            Constraint(**{name: entry[name] for name in entry if name not in _KERNELS})
            for entry in entries
        ]


def _begin(
    header: Mapping[str, Any], space: Space, setting: Setting, constraints: Sequence[Constraint]
) -> Optimizer:
    given = {name: header[name] for name in ("method", "maximize", "seed")}
    given |= {name: header.get(name) for name in ("n_trials", "value_range")}
    return Optimizer(space, setting=setting, constraints=constraints, **given)
