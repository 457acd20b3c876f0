"""Hypotheses about the objective: kernel, noise level and norm bound, of which a list can be given."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeVar

from gpytorch.kernels import Kernel, MaternKernel

from kbo import checks
from kbo.errors import InvalidInput
from kbo.optimize.fingerprint import fingerprint

T = TypeVar("T")


class _Copied:
    """A kernel that is copied when it is set and when it is read."""

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else _copied(vars(instance)["kernel"])

    def __set__(self, instance: Any, value: Any) -> None:
        vars(instance)["kernel"] = _copied(value)


def _copied(value: Any) -> Any:
    return copy.deepcopy(value) if isinstance(value, Kernel) else value  # others will be refused


def owns_kernel(cls: type[T]) -> type[T]:
    """Let a frozen dataclass have a kernel that nobody else can change, since copies and saved runs rest on it."""
    owned: dict[str, Any] = {
        "kernel": _Copied(),
        "__eq__": lambda self, other: type(self) is type(other) and vars(self) == vars(other),
        "__hash__": lambda self: hash(tuple(vars(self).values())),
    }
    for name, value in owned.items():
        setattr(cls, name, value)
    return cls


@owns_kernel
@dataclass(frozen=True, eq=False)
class Hypothesis:
    """The assumptions of a certified bound about the objective (docs/theory/hypotheses.md).

    Args:
        kernel: Kernel on the features of the space, as for ``kbo.Certified``; it is copied.
        noise_std: Sub-Gaussian constant of the noise.
        norm_bound: Bound of the RKHS norm.

    Raises:
        InvalidInput: No kernel, or a number that is not positive.

    Example:
        >>> setting = kbo.Certified([kbo.Hypothesis(RBFKernel(), 0.1, 2.0), kbo.Hypothesis(MaternKernel(), 0.1, 4.0)])
    """

    kernel: Kernel
    noise_std: float
    norm_bound: float

    def __post_init__(self) -> None:
        checks.kernel(self.kernel, "Hypothesis")
        checks.positive("noise_std", self.noise_std)
        checks.positive("norm_bound", self.norm_bound)

    def __str__(self) -> str:
        found = getattr(self.kernel, "lengthscale", None)
        lengths = "" if found is None else f", lengthscale {', '.join(f'{x:.3g}' for x in found.flatten().tolist())}"
        return f"{type(self.kernel).__name__}{lengths}, noise {self.noise_std:g}, norm {self.norm_bound:g}"


def checked_kernel(given: Any, owner: str, numbers: Mapping[str, Any]) -> Kernel | tuple[Hypothesis, ...]:
    """Return a kernel, or a list of hypotheses as a tuple.

    Args:
        given: The kernel or the list.
        owner: The class whose argument it is.
        numbers: Those of its other arguments that a hypothesis has instead.

    Raises:
        InvalidInput: It is neither, or a number is given besides the list.
    """
    if not isinstance(given, (list, tuple)):
        return checks.kernel(given, owner)
    if not given or not all(isinstance(one, Hypothesis) for one in given):
        expected = "a kernel, or a list of kbo.Hypothesis(kernel, noise_std, norm_bound)"
        raise InvalidInput(f"kernel must be {expected}, got {checks.shown(given)}.")
    if any(value is not None for value in numbers.values()):
        raise InvalidInput(f"{', '.join(numbers)} belong to the hypotheses: leave them out.")
    return tuple(given)


def described(kernel: Kernel | Sequence[Hypothesis], columns: int) -> dict[str, Any]:
    """Return a kernel, or hypotheses, as plain JSON values, with fingerprints of kernels on so many features."""
    if isinstance(kernel, Kernel):
        return {"kernel": fingerprint(kernel, columns)}
    return {"hypotheses": [{**vars(one), "kernel": fingerprint(one.kernel, columns)} for one in kernel]}


def hypotheses(
    noise_std: float,
    size: float,
    *,
    lengthscales: Sequence[float] = (0.1, 0.2, 0.4, 0.8, 1.6),
    norms: Sequence[float] = (1.0, 2.0, 4.0),
) -> list[Hypothesis]:
    """Return hypotheses for a smooth objective: a Matern 5/2 kernel of each lengthscale with each norm bound.

    A function with values up to ``size`` has at least this norm, since ``|f(x)| <= norm`` where ``k(x, x) = 1``. The
    norm exceeds the size by more, the more often the function rises and falls within the space; a longer lengthscale
    needs a larger norm for the same function. docs/theory/hypotheses.md says how to choose.

    Args:
        noise_std: Sub-Gaussian constant of the noise.
        size: The largest absolute value that the objective has, about. It should be measured from a typical value,
            which the objective can return less.
        lengthscales: Lengthscales, in units of the ranges of the parameters.
        norms: Norm bounds, in units of ``size``.

    Raises:
        InvalidInput: A number that is not positive, or an empty list.
    """
    checks.positive("size", size)
    for name, values in {"lengthscales": lengthscales, "norms": norms}.items():
        if not isinstance(values, (list, tuple)) or not values:
            raise InvalidInput(f"{name} must be a list of numbers, at least one, got {checks.shown(values)}.")
    found = []
    for lengthscale, norm in product(lengthscales, norms):
        kernel = MaternKernel(nu=2.5).double()
        kernel.initialize(lengthscale=checks.positive("lengthscales", lengthscale))
        found.append(Hypothesis(kernel.requires_grad_(False), noise_std, size * checks.positive("norms", norm)))
    return found
