"""The runner of all experiments: it does cells in worker processes, here or on a cluster, each cell once.

A sweep may be killed at any moment and started again: finished cells are files, and only the other cells are done.
"""

from __future__ import annotations

import logging
import pickle
import traceback
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable
from contextlib import closing, suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from experiments.sweep.cells import Cell, Folder, concatenate, read_rows
from experiments.sweep.threads import threads
from kbo._base.terminal import Bar, printable
from kbo.errors import InvalidInput, KboError
from kbo.workers.call import CallOutcome, Engine
from kbo.workers.processes import Workers, cpus, engine_of

if TYPE_CHECKING:
    import pandas as pd

logger: logging.Logger = logging.getLogger(__name__)

Item = TypeVar("Item")

ATTEMPTS = 3
"""Largest number of attempts at an item whose worker dies."""


class CellsFailed(KboError):
    """Some cells of a sweep failed; the same sweep tries them again.

    Attributes:
        text: The report on the other cells.
    """

    def __init__(self, message: str, text: str) -> None:
        super().__init__(message)
        self.text = text


@dataclass(frozen=True)
class Failure:
    """A cell that failed.

    Attributes:
        cell: The cell.
        text: The full traceback, or the reason if there is no traceback.
        path: The file with this text.
    """

    cell: Cell
    text: str
    path: Path

    def __str__(self) -> str:
        return f"{self.cell.label}: {printable(self.text.strip().splitlines()[-1])} (in full: {self.path})"


@dataclass(frozen=True)
class Sweep:
    """The result of a sweep.

    Attributes:
        rows: The rows of the requested cells that are done, in their order. The columns are ``cell`` (the key), the
            arguments of the cell that are single values, and the entries of the rows that its function returned.
        failures: The cells that failed.
        requested: The number of cells requested.
    """

    rows: pd.DataFrame
    failures: list[Failure]
    requested: int

    def checked(self, text: str) -> str:
        """Return ``text`` if no cell failed.

        Raises:
            CellsFailed: Some cells failed; the message names them and the files with their tracebacks.
        """
        if not self.failures:
            return text
        failed = "\n".join(f"  {failure}" for failure in self.failures)
        raise CellsFailed(
            f"{len(self.failures)} of {self.requested} cells failed; the same command tries them again.\n{failed}",
            text,
        )


def sweep(
    cells: Iterable[Cell],
    folder: str | PathLike[str],
    *,
    workers: Workers = None,
    time_limit: float | None = None,
    progress: bool = True,
) -> Sweep:
    """Do the cells that are not done yet, and return the rows of all cells.

    A failed cell does not stop the others. Its traceback is stored beside the results, and the next sweep tries it
    again. If a worker process dies, its cell is tried again.

    Args:
        cells: The cells; equal cells are done once.
        folder: The folder of finished cells, one KEY.parquet each.
        workers: Number of processes, by default one per CPU; 1 means this process. Or an engine, for example
            ``Ray(address)`` of ``kbo.workers.ray``.
        time_limit: Time limit of a cell in seconds; it needs worker processes or Ray.
        progress: Whether a progress bar is shown.

    Raises:
        InvalidInput: A cell names no function, there are no cells or workers, or another sweep uses the folder.
        KeyboardInterrupt: Ctrl-C; finished cells are kept.
    """
    requested = list({cell.key: cell for cell in cells}.values())
    if not requested:
        raise InvalidInput("a sweep needs at least one cell.")
    if workers is None:
        workers = cpus()
    engine = engine_of(workers)
    for cell in {cell.function: cell for cell in requested}.values():
        cell.resolve()
    store = Folder(folder)
    with store.locked():
        todo = [cell for cell in requested if not store.contains(cell)]
        failures = _run(todo, store, engine, time_limit, len(requested), progress)
    failed = {failure.cell.key for failure in failures}
    rows = concatenate(read_rows(store.file(cell)) for cell in requested if cell.key not in failed)
    return Sweep(rows, failures, len(requested))


def _run(
    todo: list[Cell],
    store: Folder,
    engine: Engine,
    time_limit: float | None,
    requested: int,
    progress: bool,
) -> list[Failure]:
    """Do the cells, and return the failures; the progress counts all requested cells."""
    failures: list[Failure] = []
    bar = Bar(total=requested, initial=requested - len(todo), disable=not progress, unit="cell")
    outcomes = run_all(engine, todo, _rows, time_limit)
    with bar, closing(outcomes):
        for cell, outcome in outcomes:
            reason = outcome.trace or outcome.failure
            if reason is None:
                try:
                    store.write(cell, pickle.loads(outcome.value))
                except Exception:
                    reason = traceback.format_exc()
            if reason is None:
                bar.update()
                logger.info("done    %s", cell.label)
                continue
            failures.append(Failure(cell, reason, store.error_file(cell)))
            with suppress(OSError):  # a full disk
                store.error_file(cell).write_text(reason)
            bar.set_postfix_str(f"{len(failures)} failed")
            logger.warning("failed  %s", failures[-1])
    return failures


def run_all(
    engine: Engine,
    items: Iterable[Item],
    function: Callable[[Item], Any],
    time_limit: float | None = None,
) -> Generator[tuple[Item, CallOutcome], None, None]:
    """Apply ``function`` to all items. If a worker dies, its item is tried again later, alone.

    Args:
        engine: The engine that calls the function.
        items: The items, which can be pickled.
        function: The function; it and its results can be pickled.
        time_limit: Time limit of an item in seconds.

    Yields:
        Each item with its outcome, in the order in which they finish.
    """
    work = list(items)
    if not work:
        return
    waiting = deque(range(len(work)))
    again = deque[int]()
    attempts = Counter[int]()
    with engine.session(function, time_limit, lambda number, value, step: False) as session:
        while waiting or again or session.running:
            while waiting and len(session.running) < session.capacity:
                number = waiting.popleft()
                session.start(number, work[number])
            if (
                not session.running
            ):  # one at a time: several items together may have used too much memory
                number = again.popleft()
                session.start(number, work[number])
            for outcome in session.wait():
                attempts[outcome.number] += 1
                if not outcome.died:
                    yield work[outcome.number], outcome
                elif attempts[outcome.number] < ATTEMPTS:
                    again.append(outcome.number)
                else:
                    reason = (
                        f"its worker died {ATTEMPTS} times, the last time because {outcome.failure}"
                    )
                    yield work[outcome.number], CallOutcome(outcome.number, failure=reason)


def _rows(cell: Cell) -> bytes:
    """Return the pickled rows of a cell. Rows that cannot be pickled are an error of this cell."""
    with threads(1):
        return pickle.dumps(cell.run())
