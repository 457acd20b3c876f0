"""A quantity that the objective function measures, with the assumptions about it: the base of limits and objectives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

from gpytorch.kernels import Kernel

from kbo._base import checks
from kbo.optimize.assumptions.hypotheses import Hypothesis, checked_kernel, owns_kernel


@owns_kernel
@dataclass(frozen=True, eq=False)
class Measured(ABC):
    """A measured quantity; arguments as for its subclasses ``Constraint`` (a limit) and ``Objective`` (a goal).

    Attributes:
        kind: The role of the quantity, in messages.
    """

    name: str
    _: KW_ONLY
    noise_std: float | None = None
    norm_bound: float | None = None
    kernel: Kernel | Sequence[Hypothesis] | None = None

    kind: ClassVar[str]

    def check_assumptions(self) -> None:
        """Check and convert the assumptions that are given.

        Raises:
            InvalidInput: A number out of its range, something that is no kernel, or numbers besides a list of
                hypotheses.
        """
        noise_std = checks.maybe(checks.non_negative, "noise_std", self.noise_std)
        norm_bound = checks.maybe(checks.positive, "norm_bound", self.norm_bound)
        object.__setattr__(self, "noise_std", noise_std)  # a journal holds floats, and no tensors
        object.__setattr__(self, "norm_bound", norm_bound)
        if self.kernel is not None:
            numbers = {"noise_std": self.noise_std, "norm_bound": self.norm_bound}
            kernel = checked_kernel(self.kernel, type(self).__name__, numbers)
            object.__setattr__(self, "kernel", kernel)

    @property
    def has_assumptions(self) -> bool:
        """Whether the quantity has assumptions of its own."""
        return (self.noise_std, self.norm_bound, self.kernel) != (None, None, None)

    @property
    def title(self) -> str:
        """The quantity in messages."""
        return f"{self.kind} {self.name!r}"

    @property
    def limit(self) -> float | None:
        """The limit that the quantity must reach, with the sign for which larger is better; None without one."""
        return None

    @abstractmethod
    def in_code(self, assumptions: str) -> str:
        """Return the argument of ``kbo.minimize`` that states the quantity with some assumptions, for messages.

        Args:
            assumptions: The assumptions as arguments, such as "norm_bound=2.0".
        """

    def describe(self) -> dict[str, Any]:
        """Return the name and the numbers as plain JSON values, without the kernel."""
        return {
            name: value
            for name, value in vars(self).items()
            if value is not None and name != "kernel"
        }
