"""Hypotheses about the objective (kernel, noise level and norm bound), and a list of them for smooth objectives."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from gpytorch.kernels import Kernel, MaternKernel, ScaleKernel

from kbo._base import checks
from kbo._base.isolation import tensors_on_cpu
from kbo._base.terminal import rounded_up
from kbo.errors import InvalidInput
from kbo.optimize.assumptions.same_kernel import fingerprint
from kbo.regression import KernelRidge

T = TypeVar("T")

KERNELS = {"kernel", "hypotheses"}
"""Entries in the header of a journal that hold fingerprints of kernels."""

_FACTOR = 2.0
"""Proposed norm bounds, in units of the norm of a cosine."""

_N_GRID = 256
"""Number of points with which that norm is computed."""

_TINY = 1e-10
"""The ridge with which that norm is computed."""


class _Copied:
    """An attribute that holds a kernel: it is copied when it is set and when it is read."""

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else _copied(vars(instance)["kernel"])

    def __set__(self, instance: Any, value: Any) -> None:
        vars(instance)["kernel"] = _copied(value)


def _copied(value: Any) -> Any:
    if isinstance(value, Kernel):
        return copy.deepcopy(value)
    return value  # no kernel: the checks refuse it


def owns_kernel(cls: type[T]) -> type[T]:
    """Make a frozen dataclass own its kernel: later changes by the caller have no effect on copies and saved runs."""
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
        checks.keep(
            self,
            noise_std=checks.positive("noise_std", self.noise_std),
            norm_bound=checks.positive("norm_bound", self.norm_bound),
        )

    def __str__(self) -> str:
        kernel = self.kernel
        variance = 1.0
        while isinstance(kernel, ScaleKernel):
            variance *= float(kernel.outputscale)
            kernel = kernel.base_kernel
        text = type(kernel).__name__
        lengthscales: Any = getattr(kernel, "lengthscale", None)
        if lengthscales is not None:
            text += (
                f", lengthscale {', '.join(f'{x:.3g}' for x in lengthscales.flatten().tolist())}"
            )
        if variance != 1:
            text += f", variance {variance:.4g}"
        return f"{text}, noise {self.noise_std:g}, norm {self.norm_bound:g}"


def checked_kernel(
    given: Any, owner: str, numbers: Mapping[str, Any]
) -> Kernel | tuple[Hypothesis, ...]:
    """Return the checked argument ``kernel``: a kernel, or the hypotheses of a list as a tuple.

    Args:
        given: The kernel or the list.
        owner: The name of the class that has the argument.
        numbers: The arguments of the class that each hypothesis states itself, and which must then be None.

    Raises:
        InvalidInput: Neither a kernel nor a list of hypotheses, or a number is given besides the list.
    """
    if not isinstance(given, (list, tuple)):
        return checks.kernel(given, owner)
    if not given or not all(isinstance(hypothesis, Hypothesis) for hypothesis in given):
        expected = "a kernel, or a list of kbo.Hypothesis(kernel, noise_std, norm_bound)"
        raise InvalidInput(f"kernel must be {expected}, got {checks.shown(given)}.")
    if any(value is not None for value in numbers.values()):
        raise InvalidInput(f"{', '.join(numbers)} belong to the hypotheses: leave them out.")
    return tuple(given)


def kernel_description(kernel: Kernel | Sequence[Hypothesis], columns: int) -> dict[str, Any]:
    """Return a kernel, or hypotheses, as plain JSON values, with fingerprints in place of kernels."""
    if isinstance(kernel, Kernel):
        return {"kernel": fingerprint(kernel, columns)}
    hypotheses = []
    for hypothesis in kernel:
        numbers = dict(vars(hypothesis))
        numbers["kernel"] = fingerprint(hypothesis.kernel, columns)
        hypotheses.append(numbers)
    return {"hypotheses": hypotheses}


@tensors_on_cpu
def hypotheses(
    noise_std: float,
    size: float,
    turns: int = 1,
    *,
    lengthscales: Sequence[float] = (0.4, 0.8),
) -> list[Hypothesis]:
    """Return hypotheses for a smooth objective: Matern 5/2 kernels of some lengthscales, each with a norm bound.

    The norm bound for a lengthscale is twice the norm of a cosine with ``turns`` turning points. The kernels have the
    variance ``size ** 2``, so the bounds follow the units of the objective. docs/guide.md, "Which method", says how to
    choose size and turns, and what they assume.

    Args:
        noise_std: Sub-Gaussian constant of the noise.
        size: About the largest absolute value of the objective. The prior mean is 0, so let the objective return its
            value less a typical value.
        turns: The largest number of turns between rising and falling along a parameter: 0 if the objective only rises
            or falls, 1 for a valley or a hill.
        lengthscales: Lengthscales, in units of the ranges of the parameters.

    Raises:
        InvalidInput: A number that is not positive, or no lengthscale.
    """
    size = checks.positive("size", size)
    turns = checks.whole("turns", turns, 0, _N_GRID // 8)
    if not isinstance(lengthscales, (list, tuple)) or not lengthscales:
        raise InvalidInput(
            f"lengthscales must be a list of at least one number, got {checks.shown(lengthscales)}."
        )
    proposed = []
    for lengthscale in lengthscales:
        base = MaternKernel(nu=2.5).double()
        # In float32 whatever the default dtype: journals hold fingerprints of these numbers.
        length = torch.tensor(checks.positive("lengthscales", lengthscale), dtype=torch.float32)
        base.initialize(lengthscale=length)
        scale = torch.tensor(size**2, dtype=torch.float32)
        kernel = ScaleKernel(base).double().initialize(outputscale=scale).requires_grad_(False)
        norm = float(rounded_up(_FACTOR * _norm_of_cosine(base, turns), 2))
        proposed.append(Hypothesis(kernel, noise_std, norm))
    return proposed


def _norm_of_cosine(kernel: Kernel, turns: int) -> float:
    """Return the RKHS norm of cos(pi (turns + 1) x) on [0, 1], which has ``turns`` turning points.

    It is approximated by the norm of the interpolant of its values f on a grid: sqrt(f' (K + ridge I)^-1 f), with a
    tiny ridge.
    """
    x = torch.linspace(0, 1, _N_GRID, dtype=torch.float64).unsqueeze(-1)
    cosine = torch.cos(math.pi * (turns + 1) * x[:, 0])
    state = KernelRidge(kernel, _TINY)
    state.update(x, cosine)
    return float(state.at().quad() / _TINY) ** 0.5
