"""Limits on measured quantities: what the user gives, and what an objective that measures them returns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple

from gpytorch.kernels import Kernel

from kbo._base import checks
from kbo.errors import InvalidInput
from kbo.optimize.run.events import unfit
from kbo.optimize.surrogates.hypotheses import Hypothesis, checked_kernel, owns_kernel
from kbo.space import Linear
from kbo.space.parameters import onto_range

OBJECTIVE = "objective"
"""The name of the value of the objective among measurements."""

SEM = "sem"
"""The name of the standard error of that value among measurements."""

_LARGEST_ERROR = 1e100
"""The largest standard error; squares of larger ones would overflow."""


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


Returned = float | tuple[float, dict[str, float]] | None
"""A value, with other measurements by name if there are any."""


class Outcome(NamedTuple):
    """A reading of what an objective returned.

    Attributes:
        value: The value of the objective; None without one.
        measured: The other measurements that are finite numbers, by name.
        failure: Why the trial has failed, in words; empty if it has not.
        unusable: The measurements of a trial that has not failed which are no finite numbers, by name.
    """

    value: float | None
    measured: dict[str, float]
    failure: str
    unusable: Mapping[str, Any] = {}

    @property
    def returned(self) -> Returned:
        """Value and measurements as an objective returns them."""
        return (
            self.value if self.value is None or not self.measured else (self.value, self.measured)
        )


def outcome_of(
    returned: Any,
    needed: Iterable[str],
    value_range: tuple[float, float] | None = None,
    got: str = "the objective returned",
) -> Outcome:
    """Return value and measurements of what an objective returned.

    Args:
        returned: A number, a pair of a number and a dict of measurements, or a dict of measurements with "objective".
            The measurement "sem" is the standard error of the value.
        needed: Names of the measurements without which the trial has failed. Others may come as well.
        value_range: The least and the largest possible value, if they are declared. A value that is outside by no more
            than rounding is set onto it.
        got: How failures begin.
    """
    value, others, without = returned, {}, False
    if isinstance(returned, Mapping):
        others = {str(name): found for name, found in returned.items()}
        without, value = OBJECTIVE not in others, others.pop(OBJECTIVE, None)
    elif (
        isinstance(returned, (tuple, list))
        and len(returned) == 2
        and isinstance(returned[1], Mapping)
    ):
        value, others = returned[0], {str(name): found for name, found in returned[1].items()}
    measured, found = _numbers(others), _number(value)
    if measured and (reason := unfit(measured)):
        measured = {name: measured[name] for name in needed if name in measured}
        return Outcome(found, measured, f"the measurements cannot be recorded: {reason}")
    if without:
        return Outcome(
            None, measured, f"{got} {checks.shown(returned)} without an entry {OBJECTIVE!r}"
        )
    if found is None:
        return Outcome(None, measured, f"{got} {_not_a_number(value)}")
    if (
        SEM in others
        and not _unknown(others[SEM])
        and not 0 <= measured.get(SEM, -1.0) <= _LARGEST_ERROR
    ):
        reason = f"{got} the standard error {SEM!r} = {checks.shown(others[SEM])}: return a number of at least 0"
        return Outcome(found, {name: one for name, one in measured.items() if name != SEM}, reason)
    if value_range is not None:
        inside = onto_range(found, *value_range)
        if inside is None:
            return Outcome(
                found,
                measured,
                f"{got} {found:.6g}, which is outside the value_range {value_range}",
            )
        found = inside
    for name in needed:
        if name not in others:
            came = (
                f"it came with {sorted(others)}"
                if others
                else f"return (value, {{{name!r}: measurement}})"
            )
            return Outcome(found, measured, f"there is no measurement of {name!r}; {came}")
        if name not in measured:
            return Outcome(
                found, measured, f"the measurement of {name!r} is {_not_a_number(others[name])}"
            )
    unusable = {
        name: entry for name, entry in others.items() if name not in measured and name != SEM
    }
    return Outcome(found, measured, "", unusable)


def _numbers(others: Mapping[str, Any]) -> dict[str, float]:
    """Return the entries that are finite numbers."""
    return {
        name: number for name, value in others.items() if (number := _number(value)) is not None
    }


def _unknown(value: Any) -> bool:
    """Return whether a standard error stands for none: None, or NaN as of a single value."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def _number(value: Any) -> float | None:
    """Return a finite number as a float, and None for anything else."""
    try:
        number = math.nan if value is None else checks.real(value)
    except Exception:  # whatever a conversion of the caller's own raises
        return None
    return number if math.isfinite(number) else None


def _not_a_number(value: Any) -> str:
    """Return a value that is no finite number, in words."""
    try:
        known = value is None or not math.isfinite(checks.real(value))
    except Exception:  # as above
        known = False
    several = (
        isinstance(value, (tuple, list))
        and len(value) > 1
        and all(_number(one) is not None for one in value)
    )
    hint = (
        ": for several objectives use Optuna's NSGAIISampler or BoTorch's qLogNEHVI with models of kbo"
        * several
    )
    return checks.shown(value) if known else f"{checks.shown(value)} instead of a number{hint}"
