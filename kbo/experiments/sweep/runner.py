"""The runner that all experiments share: cells in worker processes, here or elsewhere, each done once.

A sweep may be killed at any moment and started again: finished cells are files, and only the others are worked on.
"""

from __future__ import annotations

import functools
import logging
import os
import pickle
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from kbo.errors import InvalidInput, KboError
from kbo.experiments.bench.race import one_thread
from kbo.experiments.sweep.cells import Cell, Folder, concatenate
from kbo.experiments.sweep.pool import ALONE, work_off

if TYPE_CHECKING:
    import pandas as pd

logger = logging.getLogger(__name__)


class Engine(Protocol):
    """Workers elsewhere, such as ``kbo.experiments.sweep.ray.Ray``; they may share no files with this process."""

    def work_off(
        self,
        items: Iterable[Cell],
        function: Callable[[Cell], Any],
        retries: int,
        finished: Callable[[Cell, Any], None],
        died: Callable[[Cell], None],
    ) -> None:
        """Like ``kbo.experiments.sweep.pool.work_off``; an item whose worker died is tried again ``retries`` times."""
        ...


Workers = int | Engine | None
"""Who does the cells: so many processes, by default one per CPU, or an engine."""

Outcome = bytes | str
"""What comes back from an engine: the pickled rows of a cell, or the traceback of one that failed."""


class CellsFailed(KboError):
    """Some cells of a sweep failed; the same sweep tries them again.

    Attributes:
        text: What could be said without them.
    """

    def __init__(self, message: str, text: str) -> None:
        super().__init__(message)
        self.text = text


@dataclass(frozen=True)
class Failure:
    """A cell that failed.

    Attributes:
        cell: The cell.
        text: The full traceback, or what is known of a worker that died.
        path: The file that has it.
    """

    cell: Cell
    text: str
    path: Path

    def __str__(self) -> str:
        return f"{self.cell.label}: {self.text.strip().splitlines()[-1]} (in full: {self.path})"


@dataclass(frozen=True)
class Sweep:
    """What a sweep found.

    Attributes:
        rows: The rows of the cells that were asked for and are done, in their order; columns ``cell`` (the key), the
            arguments of the cell that are single values, and what its function returned.
        failures: The cells that failed.
        asked: How many cells were asked for.
    """

    rows: pd.DataFrame
    failures: list[Failure]
    asked: int

    def checked(self, text: str) -> str:
        """``text``, if no cell failed.

        Raises:
            CellsFailed: Some did; the message names them and where their tracebacks are.
        """
        if not self.failures:
            return text
        failed = "\n".join(f"  {failure}" for failure in self.failures)
        raise CellsFailed(
            f"{len(self.failures)} of {self.asked} cells failed; the same command tries them again.\n{failed}", text
        )


def sweep(cells: Iterable[Cell], folder: str | os.PathLike, *, workers: Workers = None, progress: bool = True) -> Sweep:
    """Do the cells that are not done yet, and return the rows of all of them.

    A cell that fails does not stop the others: its traceback lies beside the results; the next sweep tries it again.
    A worker process that dies costs a retry. With more than one worker a script must call this under
    ``if __name__ == "__main__"``, since the workers import it.

    Args:
        cells: The cells; equal ones are done once.
        folder: Where finished cells lie, KEY.parquet each.
        workers: Number of processes, by default one per CPU; 1 works in this process. Or an engine, such as
            ``kbo.experiments.sweep.ray.Ray(address)``.
        progress: Show a progress bar.

    Raises:
        InvalidInput: A cell names no function, no cells or workers, or another sweep is at work in the folder.
        KeyboardInterrupt: Ctrl-C; finished cells are kept.
    """
    asked = list({cell.key: cell for cell in cells}.values())
    if not asked:
        raise InvalidInput("a sweep needs at least one cell.")
    if isinstance(workers, int) and workers < 1:
        raise InvalidInput(f"workers must be at least 1, got {workers}.")
    for cell in {cell.function: cell for cell in asked}.values():
        cell.resolve()
    store = Folder(folder)
    with store.locked():
        store.clean()
        todo = [cell for cell in asked if not store.holds(cell)]
        failures = _work(todo, store, workers, len(asked), progress)
    failed = {failure.cell.key for failure in failures}
    rows = concatenate(store.read(cell) for cell in asked if cell.key not in failed)
    return Sweep(rows, failures, len(asked))


def _work(todo: list[Cell], store: Folder, workers: Workers, asked: int, progress: bool) -> list[Failure]:
    """Do the cells; progress counts those that were done before."""
    failures: list[Failure] = []
    bar = tqdm(total=asked, initial=asked - len(todo), disable=not progress, unit="cell")

    def finished(cell: Cell, error: str | None) -> None:
        if error is None:
            bar.update()
            logger.info("done    %s", cell.label)
            return
        failures.append(Failure(cell, error, store.error_file(cell)))
        store.write_error(cell, error)
        bar.set_postfix_str(f"{len(failures)} failed")
        logger.warning("failed  %s", failures[-1])

    def died(cell: Cell) -> None:
        finished(
            cell,
            f"its worker process died {ALONE + 1} times: killed, out of memory (fewer --workers need less), or a crash",
        )

    def returned(cell: Cell, outcome: Outcome) -> None:
        finished(cell, _stored(store, cell, outcome))

    with bar, logging_redirect_tqdm([logging.getLogger()]):
        if not isinstance(workers, int | None):
            workers.work_off(todo, _remote, ALONE, returned, died)
        elif (processes := min(workers or _cpus(), len(todo))) > 1:
            work_off(todo, functools.partial(_attempt, store), processes, finished, died)
        else:
            with one_thread():
                for cell in todo:
                    finished(cell, _attempt(store, cell))
    return failures


def _attempt(store: Folder, cell: Cell) -> str | None:
    """Do a cell and store its rows; the traceback if that fails."""
    try:
        store.write(cell, cell.run())
    except (Exception, SystemExit):
        return traceback.format_exc()
    return None


def _remote(cell: Cell) -> Outcome:
    """Do a cell far from its folder. Pickled here, rows that cannot travel are a mistake of the cell."""
    try:
        return pickle.dumps(cell.run())
    except (Exception, SystemExit):
        return traceback.format_exc()


def _stored(store: Folder, cell: Cell, outcome: Outcome) -> str | None:
    """Store what ``_remote`` returned; the traceback if it failed, or this does."""
    if isinstance(outcome, str):
        return outcome
    try:
        store.write(cell, pickle.loads(outcome))
    except Exception:
        return traceback.format_exc()
    return None


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
