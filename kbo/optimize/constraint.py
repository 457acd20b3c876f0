"""Limits on measured quantities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from gpytorch.kernels import Kernel

from kbo._base import checks
from kbo.errors import InvalidInput
from kbo.optimize.run.outcome import OBJECTIVE, SEM
from kbo.optimize.surrogates.hypotheses import Hypothesis, checked_kernel, owns_kernel
from kbo.space import Linear


@owns_kernel
@dataclass(frozen=True, eq=False)
class Constraint:
    """A limit on a quantity that every trial measures, or on the objective itself.

    The objective returns ``(value, {"memory": 7.2})`` or ``{"objective": value, "memory": 7.2}``.

    Args:
        name: The name of the quantity; "objective" for the value of the objective.
        upper: The quantity, without noise, is to be at most this.
        lower: Or at least this.
        noise_std: In the certified setting the sub-Gaussian constant of its noise, which is needed unless the method
            bounds it online; in the practical setting its standard deviation, if it is known.
        norm_bound: Bound of its RKHS norm, needed in the certified setting, and only there; its prior mean is 0.
        kernel: Its kernel in the certified setting, which is copied; by default that of the objective. Or a list of
            ``kbo.Hypothesis``, without the two numbers: the bounds hold if one of them is true.

    Raises:
        InvalidInput: Not exactly one limit, or a number out of its range.

    Example:
        >>> kbo.minimize(train, bounds, 50, constraints=[kbo.Constraint("memory", upper=8.0)])
    """

    name: str
    _: KW_ONLY
    upper: float | None = None
    lower: float | None = None
    noise_std: float | None = None
    norm_bound: float | None = None
    kernel: Kernel | Sequence[Hypothesis] | None = None

    def __post_init__(self) -> None:
        checks.text("name of Constraint", self.name)
        with checks.inside(f"constraint {self.name!r}"):
            if (self.upper is None) == (self.lower is None):
                upper, lower = checks.shown(self.upper), checks.shown(self.lower)
                raise InvalidInput(
                    f"give either upper or lower, got upper={upper}, lower={lower}; for an interval "
                    "give two constraints of different names, and let the objective return the quantity under both."
                )
            checks.maybe(checks.number, "upper", self.upper)
            checks.maybe(checks.number, "lower", self.lower)
            checks.maybe(checks.non_negative, "noise_std", self.noise_std)
            checks.maybe(checks.positive, "norm_bound", self.norm_bound)
            if self.kernel is not None:
                numbers = {"noise_std": self.noise_std, "norm_bound": self.norm_bound}
                object.__setattr__(
                    self, "kernel", checked_kernel(self.kernel, "Constraint", numbers)
                )
            if self.name == SEM:
                raise InvalidInput(
                    "that is the standard error of the value: call the quantity another way."
                )
            if self.name == OBJECTIVE and (self.noise_std, self.norm_bound, self.kernel) != (
                None,
                None,
                None,
            ):
                raise InvalidInput(
                    "noise_std, norm_bound and kernel of the objective belong to the setting."
                )

    def __repr__(self) -> str:
        given = (
            f"{len(self.kernel)} hypotheses"
            if isinstance(self.kernel, tuple)
            else type(self.kernel).__name__
        )
        kernel = {} if self.kernel is None else {"kernel": given}
        return f"Constraint({', '.join(f'{name}={value!r}' for name, value in (self.describe() | kernel).items())})"

    def __str__(self) -> str:
        return (
            f"{self.name} <= {self.upper:g}"
            if self.upper is not None
            else f"{self.name} >= {self.lower:g}"
        )

    @property
    def sign(self) -> int:
        """1 for a lower limit and -1 for an upper one: ``sign`` times the quantity is to be large."""
        return -1 if self.upper is not None else 1

    @property
    def limit(self) -> float:
        """The limit that ``sign`` times the quantity must reach."""
        limit = self.lower if self.upper is None else -self.upper
        assert limit is not None
        return limit

    def kept_by(self, value: float) -> bool:
        """Return whether a value is within the limit."""
        return self.sign * value >= self.limit

    def describe(self) -> dict[str, Any]:
        """Return the numbers as plain JSON values, without the kernel."""
        return {
            name: value
            for name, value in vars(self).items()
            if value is not None and name != "kernel"
        }


def measured_only(constraints: Any) -> tuple[list[Constraint], list[Any]]:
    """Return the constraints on measured quantities, and those on parameters, of an argument ``constraints``.

    Raises:
        InvalidInput: Not a list, an entry of another kind, or two constraints of one name.
    """
    if isinstance(constraints, (str, Mapping)) or not isinstance(constraints, Sequence):
        raise InvalidInput(
            "constraints must be a list of kbo.Constraint, kbo.Linear and functions of the parameters, got "
            f"{checks.shown(constraints)}."
        )
    for position, constraint in enumerate(constraints):
        if not isinstance(constraint, (Constraint, Linear)) and not callable(constraint):
            raise InvalidInput(
                f"constraints[{position}] must be a kbo.Constraint, a kbo.Linear or a function of the parameters, got "
                f"{checks.shown(constraint)}."
            )
    measured = [c for c in constraints if isinstance(c, Constraint)]
    names = [c.name for c in measured]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InvalidInput(
            f"constraints: there are several with the name {twice[0]!r}. For an interval give two constraints of "
            "different names, and let the objective return the quantity under both."
        )
    return measured, [c for c in constraints if not isinstance(c, Constraint)]
