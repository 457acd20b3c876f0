"""The exceptions of kbo. Every message says what was wrong, what was expected and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class KboError(Exception):
    """Base class of every error that kbo raises on purpose.

    Attributes:
        trials: The trials of the run that the error has ended; empty outside of a run. Any other
            exception that leaves ``minimize`` or ``maximize`` has this attribute, too.
    """

    trials: Sequence[Any] = ()


class InvalidInput(KboError, ValueError):
    """An argument cannot be used: its shape, dtype, device or range is wrong, or it is not finite."""


class MissingExtra(KboError, ModuleNotFoundError):
    """A library that an extra of kbo installs is missing; the message names the extra."""


class NotPositiveDefinite(KboError, ArithmeticError):
    """The regularised kernel matrix has no Cholesky factor: the ridge is too small, or the function is no kernel.

    kbo never adds jitter silently. Every bound stays valid with a larger ridge, so the message names one.
    """


class RefutedAssumptions(KboError):
    """The data contradict the assumptions of a confidence bound.

    No function agrees with the data, the kernel, the norm bound and the noise level at the same time. Except with
    probability ``delta``, at least one of these assumptions is false.

    Attributes:
        figures: The numbers in the message, by name (``n``, ``norm_bound``, ``noise_std``, ...).
    """

    def __init__(self, message: str, **figures: float) -> None:
        shown = ", ".join(f"{name} = {value:.6g}" for name, value in figures.items())
        super().__init__(f"{message} ({shown})" if shown else message)
        self.figures = figures


class Contradiction(KboError):
    """Two results of kbo contradict each other. This is a fault of kbo, found before anything was returned."""


class TooManyFailures(KboError):
    """All trials of a run failed, or too many in a row: further trials would waste the budget."""


class Stop(Exception):
    """An exception that ``on_trial`` raises to end a run; its text is the reason."""


class JournalError(KboError):
    """A journal cannot be used: it cannot be written, is damaged, is in use, or belongs to another problem."""


class AnotherProblem(JournalError):
    """A journal belongs to another problem, for example to another space."""


class AnotherSpace(AnotherProblem):
    """A journal belongs to the same problem in another space; the run can go on in the new space.

    Attributes:
        different: The differences between the spaces, one on each line.
    """

    def __init__(self, message: str, different: str = "") -> None:
        super().__init__(message)
        self.different = different


class IllConditionedWarning(UserWarning):
    """The ridge is so small that rounding errors are visible in the results."""
