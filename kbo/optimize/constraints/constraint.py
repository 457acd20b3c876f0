"""Constraints on measured quantities, as a user states them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

from kbo._base import checks
from kbo.errors import InvalidInput
from kbo.optimize.assumptions.measured import Measured
from kbo.optimize.run.outcome import OBJECTIVE, SEM
from kbo.optimize.run.trials import Trial
from kbo.space import Linear

_ADVICE = (
    "give two constraints of different names, and let the objective return the quantity under both."
)


@dataclass(frozen=True, eq=False, repr=False)
class Constraint(Measured):
    """A limit on a quantity that every trial measures, or on the value of the objective.

    The objective function returns ``(value, {"memory": 7.2})`` or ``{"objective": value, "memory": 7.2}``.

    Args:
        name: The name of the quantity; "objective" for the value of the objective.
        upper: The largest value that the quantity, without noise, may have.
        lower: The least value that it may have. Give one of the two limits.
        noise_std: Noise of the quantity. In the certified setting its sub-Gaussian constant, needed unless the method
            bounds it online; in the practical setting its standard deviation, if it is known.
        norm_bound: Bound of the RKHS norm of the quantity, whose prior mean is 0. Needed in the certified setting, and
            only there.
        kernel: Kernel of the quantity in the certified setting, which is copied; by default that of the objective. Or a
            list of ``kbo.Hypothesis`` in place of all three: the bounds hold if one of them is true.

    Raises:
        InvalidInput: Not exactly one limit, or a number out of its range.

    Example:
        >>> kbo.minimize(train, bounds, 50, constraints=[kbo.Constraint("memory", upper=8.0)])
    """

    _: KW_ONLY
    upper: float | None = None
    lower: float | None = None

    kind: ClassVar[str] = "constraint"

    def __post_init__(self) -> None:
        checks.text("name of Constraint", self.name)
        with checks.inside(self.title):
            self._check()

    def _check(self) -> None:
        """Check and convert the limit and the assumptions; raise InvalidInput unless there is exactly one limit."""
        if (self.upper is None) == (self.lower is None):
            upper = checks.shown(self.upper)
            lower = checks.shown(self.lower)
            raise InvalidInput(
                f"give either upper or lower, got upper={upper}, lower={lower}; for an interval {_ADVICE}"
            )
        checks.keep(
            self,
            upper=checks.maybe(checks.number, "upper", self.upper),
            lower=checks.maybe(checks.number, "lower", self.lower),
        )
        self.check_assumptions()
        if self.name == SEM:
            raise InvalidInput(
                "that is the standard error of the value: call the quantity another way."
            )
        if self.name == OBJECTIVE and self.has_assumptions:
            raise InvalidInput(
                "noise_std, norm_bound and kernel of the objective belong to the setting."
            )

    def __repr__(self) -> str:
        entries = self.describe()
        if isinstance(self.kernel, tuple):
            entries["kernel"] = f"{len(self.kernel)} hypotheses"
        elif self.kernel is not None:
            entries["kernel"] = type(self.kernel).__name__
        arguments = ", ".join(f"{name}={value!r}" for name, value in entries.items())
        return f"Constraint({arguments})"

    def __str__(self) -> str:
        if self.upper is not None:
            return f"{self.name} <= {self.upper:g}"
        return f"{self.name} >= {self.lower:g}"

    @property
    def sign(self) -> int:
        """1 for a lower limit and -1 for an upper one: ``sign`` times the quantity must be large."""
        return -1 if self.upper is not None else 1

    @property
    def limit(self) -> float:
        """The limit that ``sign`` times the quantity must reach."""
        if self.upper is not None:
            return -self.upper
        assert self.lower is not None
        return self.lower

    def in_code(self, assumptions: str) -> str:
        return f"constraints=[kbo.Constraint({self.name!r}, ..., {assumptions})]"

    def kept_by(self, value: float) -> bool:
        """Return whether a value of the quantity is within the limit."""
        return self.sign * value >= self.limit


def violations(trial: Trial, constraints: Sequence[Constraint]) -> int:
    """Return the number of constraints that a trial does not keep: its measurement breaks the limit, or is missing."""
    count = 0
    for constraint in constraints:
        value = trial.measurement(constraint.name)
        if value is None or not constraint.kept_by(value):
            count += 1
    return count


def measured_only(constraints: Any) -> tuple[list[Constraint], list[Any]]:
    """Divide an argument ``constraints`` into the limits on measured quantities and the constraints on parameters.

    Raises:
        InvalidInput: Not a list, an entry of another kind, or two constraints of one name.
    """
    if isinstance(constraints, (str, Mapping)) or not isinstance(constraints, Sequence):
        raise InvalidInput(
            "constraints must be a list of kbo.Constraint, kbo.Linear and functions of the parameters, got "
            f"{checks.shown(constraints)}."
        )
    measured: list[Constraint] = []
    on_parameters: list[Any] = []
    for position, constraint in enumerate(constraints):
        if isinstance(constraint, Constraint):
            measured.append(constraint)
        elif isinstance(constraint, Linear) or callable(constraint):
            on_parameters.append(constraint)
        else:
            raise InvalidInput(
                f"constraints[{position}] must be a kbo.Constraint, a kbo.Linear or a function of the parameters, got "
                f"{checks.shown(constraint)}."
            )
    names = Counter(constraint.name for constraint in measured)
    for name in sorted(names):
        if names[name] > 1:
            raise InvalidInput(
                f"constraints: there are several with the name {name!r}. For an interval {_ADVICE}"
            )
    return measured, on_parameters
