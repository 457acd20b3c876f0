"""The runner that all experiments share: cells in worker processes, here or elsewhere, each done once.

A sweep may be killed at any moment and started again: finished cells are files, and only the others are worked on.
"""

from __future__ import annotations

import logging
import os
import pickle
import traceback
from collections.abc import Generator, Iterable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm.contrib.logging import logging_redirect_tqdm

from kbo.errors import InvalidInput, KboError
from kbo.experiments.sweep.cells import Cell, Folder, concatenate, read_rows
from kbo.experiments.sweep.pool import Engine, Processes, run_all, threads
from kbo.terminal import Bar, printable

if TYPE_CHECKING:
    import pandas as pd

logger: logging.Logger = logging.getLogger(__name__)

Workers = int | Engine | None
"""Number of processes, by default one per CPU, or an engine."""


class CellsFailed(KboError):
    """Some cells of a sweep failed; the same sweep tries them again.

    Attributes:
        text: The report on the others.
    """

    def __init__(self, message: str, text: str) -> None:
        super().__init__(message)
        self.text = text


@dataclass(frozen=True)
class Failure:
    """A cell that failed.

    Attributes:
        cell: The cell.
        text: The full traceback, or the reason that has none.
        path: The file that has it.
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
        rows: The rows of the requested cells that are done, in their order; columns ``cell`` (the key), the arguments
            of the cell that are single values, and what its function returned.
        failures: The cells that failed.
        requested: The number of cells requested.
    """

    rows: pd.DataFrame
    failures: list[Failure]
    requested: int

    def checked(self, text: str) -> str:
        """Return ``text`` if no cell failed.

        Raises:
            CellsFailed: Some did; the message names them and where their tracebacks are.
        """
        if not self.failures:
            return text
        failed = "\n".join(f"  {failure}" for failure in self.failures)
        raise CellsFailed(
            f"{len(self.failures)} of {self.requested} cells failed; the same command tries them again.\n{failed}", text
        )


def sweep(
    cells: Iterable[Cell], folder: str | os.PathLike[str], *, workers: Workers = None, progress: bool = True
) -> Sweep:
    """Do the cells that are not done yet, and return the rows of all of them.

    A cell that fails does not stop the others: its traceback lies beside the results; the next sweep tries it again.
    A worker process that dies costs a retry. With more than one worker a script must call this under
    ``if __name__ == "__main__"``, since the workers import it.

    Args:
        cells: The cells; equal ones are done once.
        folder: The folder of finished cells, KEY.parquet each.
        workers: Number of processes, by default one per CPU; 1 works in this process. Or an engine: ``Ray(address)`` of
            ``kbo.experiments.sweep.ray``, or ``Processes(4, time_limit=60)`` of ``kbo.experiments.sweep.pool``.
        progress: Show a progress bar.

    Raises:
        InvalidInput: A cell names no function, no cells or workers, or another sweep is at work in the folder.
        KeyboardInterrupt: Ctrl-C; finished cells are kept.
    """
    requested = list({cell.key: cell for cell in cells}.values())
    if not requested:
        raise InvalidInput("a sweep needs at least one cell.")
    if isinstance(workers, int) and workers < 1:
        raise InvalidInput(f"workers must be at least 1, got {workers}.")
    for cell in {cell.function: cell for cell in requested}.values():
        cell.resolve()
    store = Folder(folder)
    with store.locked():
        todo = [cell for cell in requested if not store.contains(cell)]
        failures = _run(todo, store, workers, len(requested), progress)
    failed = {failure.cell.key for failure in failures}
    rows = concatenate(read_rows(store.file(cell)) for cell in requested if cell.key not in failed)
    return Sweep(rows, failures, len(requested))


def _run(todo: list[Cell], store: Folder, workers: Workers, requested: int, progress: bool) -> list[Failure]:
    """Do the cells; progress counts those that were done before."""
    failures: list[Failure] = []
    bar = Bar(total=requested, initial=requested - len(todo), disable=not progress, unit="cell")
    with bar, logging_redirect_tqdm([logging.getLogger()]), closing(_outcomes(todo, workers)) as outcomes:
        for cell, outcome in outcomes:
            reason = outcome if isinstance(outcome, str) else ""
            if isinstance(outcome, bytes):
                try:
                    store.write(cell, pickle.loads(outcome))
                except Exception:
                    reason = traceback.format_exc()
            if not reason:
                bar.update()
                logger.info("done    %s", cell.label)
                continue
            failures.append(Failure(cell, reason, store.error_file(cell)))
            with suppress(OSError):  # a full disk
                store.error_file(cell).write_text(reason)
            bar.set_postfix_str(f"{len(failures)} failed")
            logger.warning("failed  %s", failures[-1])
    return failures


def _outcomes(todo: list[Cell], workers: Workers) -> Generator[tuple[Cell, Any], None, None]:
    """Cells with their pickled rows, or with the traceback or reason of a failure, as they finish."""
    if not isinstance(workers, Engine):
        processes = min(workers or _cpus(), len(todo))
        if processes <= 1:
            with threads(1):
                yield from ((cell, _outcome(cell)) for cell in todo)
            return
        workers = Processes(processes)
    yield from run_all(workers, todo, _outcome)


def _outcome(cell: Cell) -> bytes | str:
    """Do a cell, perhaps far from its folder. Pickled here, rows that cannot travel are a mistake of the cell."""
    try:
        return pickle.dumps(cell.run())
    except (Exception, SystemExit):
        return traceback.format_exc()


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
