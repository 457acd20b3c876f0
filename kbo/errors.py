"""The exceptions of kbo. Every message says what was wrong, what was expected and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class KboError(Exception):
    """Base class of every error that kbo raises on purpose.

    Attributes:
        trials: The trials of the run that this error has ended; empty outside of runs. Every other
            exception that leaves ``minimize`` or ``maximize`` has them, too.
    """

    trials: Sequence[Any] = ()


class InvalidInput(KboError, ValueError):
    """An argument that cannot be used: wrong shape, dtype, device, range or not finite."""


class MissingExtra(KboError, ModuleNotFoundError):
    """Libraries of an extra of kbo are not installed; the message names the extra."""


class NotPositiveDefinite(KboError, ArithmeticError):
    """The regularised kernel matrix has no Cholesky factor, or the function is no kernel.

    kbo never adds jitter silently. For a kernel a larger ridge keeps every bound valid, so the
    message names one.
    """


class RefutedAssumptions(KboError):
    """The data contradict the assumptions of a confidence bound.

    The set of functions that are consistent with the data, the norm bound, the noise level and the
    kernel is empty: at least one assumption is false, except with probability ``delta``.

    Attributes:
        figures: The numbers of the contradiction, by name (``n``, ``norm_bound``, ``noise_std``,
            ...).
    """

    def __init__(self, message: str, **figures: float) -> None:
        shown = ", ".join(f"{name} = {value:.6g}" for name, value in figures.items())
        super().__init__(f"{message} ({shown})" if shown else message)
        self.figures = figures


class Contradiction(KboError):
    """Two results of kbo exclude each other: a fault of kbo, which it found before it returned."""


class TooManyFailures(KboError):
    """All trials of a run failed, or so many in a row that more would waste the budget."""


class Stop(Exception):
    """Raised by ``on_trial`` to end a run; its text is the reason."""


class JournalError(KboError):
    """A journal that cannot be written, is damaged, is in use, or belongs to another problem."""


class AnotherProblem(JournalError):
    """A journal that belongs to another problem, for example to another space."""


class AnotherSpace(AnotherProblem):
    """A journal of the same problem in another space, in which the run can go on.

    Attributes:
        different: The differences between the spaces, each on a line of its own.
    """

    def __init__(self, message: str, different: str = "") -> None:
        super().__init__(message)
        self.different = different


class IllConditionedWarning(UserWarning):
    """A ridge so small that rounding shows in the results."""
