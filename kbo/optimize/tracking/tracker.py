"""The base of records in other tools: an error of the record does not end the run."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Self

from kbo.optimize.result import Result
from kbo.optimize.run.trials import Trial

log: logging.Logger = logging.getLogger("kbo")


class Tracker(ABC):
    """An ``on_trial`` that records trials in another tool. Its first error is logged, and ends the record."""

    _failed: bool = False

    def __enter__(self) -> Self:
        self._failed = False
        self._try(self._begin)
        return self

    def __call__(self, trial: Trial, result: Result) -> None:
        """Record a trial."""
        self._try(self._record, trial, result)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._try(self._end, kind is None)

    def _try(self, step: Callable[..., None], *args: Any) -> None:
        if self._failed:
            return
        try:
            step(*args)
        except Exception as error:  # the other tool may raise anything
            self._failed = True
            log.warning(
                "%s failed, and records no more of this run, which goes on: %s: %.500s",
                type(self).__name__,
                type(error).__name__,
                error,
            )

    def _begin(self) -> None:
        """Begin the record of a run, before its first trial."""
        return

    @abstractmethod
    def _record(self, trial: Trial, result: Result) -> None:
        """Record a trial that has ended."""

    def _end(self, whole: bool) -> None:
        """End the record of a run; ``whole`` is whether no error ended it."""
        return
