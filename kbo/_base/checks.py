"""Checks of arguments. Each returns the checked value, or raises InvalidInput.

The message says what was wrong, what was expected and what to do.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from kbo.errors import InvalidInput

T = TypeVar("T")


def shown(value: Any, most: int = 80) -> str:
    """Return the repr of a value for a message, with at most ``most`` characters; repr may raise an exception."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # of an object of the caller
        text = f"an object of {type(value).__name__}"
    if len(text) > most:
        text = f"{text[: most - 3]}..."
    return text


@contextlib.contextmanager
def inside(place: str) -> Iterator[None]:
    """Put a place before the messages of ``InvalidInput``, for example the parameter at fault."""
    try:
        yield
    except InvalidInput as error:
        raise InvalidInput(f"{place}: {error}") from error


# Numbers

_LEAST = 1e-150
_MOST = 1e150
"""Sizes whose squares and quotients float64 can hold. For other sizes the user needs other units."""

_LARGEST = sys.float_info.max
_MOST_WHOLE = 2**53


def real(value: Any) -> float:
    """Return a number of Python, NumPy, ``decimal``, ``fractions`` or a tensor of one entry as a float.

    Raises:
        TypeError: The value is text, a boolean, a complex number, a masked entry, or another object.
        Exception: The conversion of an object of the caller raises it.
    """
    if hasattr(value, "item"):
        if np.ma.is_masked(value):
            raise TypeError("a masked entry has no value")
        value = value.item()
    is_real = hasattr(value, "__float__") or hasattr(value, "__index__")
    if isinstance(value, bool) or not is_real:
        raise TypeError(f"{type(value).__name__} is no real number")
    return float(value)


def plain(value: Any) -> Any:
    """Return a scalar of NumPy as a Python value; any other value is returned unchanged."""
    if type(value).__module__ == "numpy" and getattr(value, "ndim", 1) == 0:
        return value.item()
    return value


def number(
    name: str,
    value: Any,
    expected: str = "a finite number",
    least: float = -_LARGEST,
    most: float = _LARGEST,
) -> float:
    """Return a number from ``least`` to ``most`` as a float; ``expected`` describes it in the message."""
    cause = None
    try:
        result = real(value)
    except Exception as error:
        result = math.nan
        cause = error
    if not least <= result <= most:
        raise InvalidInput(f"{name} must be {expected}, got {shown(value)}.") from cause
    return result


def positive(name: str, value: Any, most: float = _MOST) -> float:
    """Return a number above zero, from 1e-150 to ``most``, as a float."""
    return number(name, value, f"a finite number above 0, from 1e-150 to {most:g}", _LEAST, most)


def non_negative(name: str, value: Any) -> float:
    """Return a finite number of at least zero as a float."""
    return number(name, value, "a finite number of at least 0", 0.0)


def at_least(name: str, value: Any, least: float) -> float:
    """Return a finite number of at least ``least`` as a float."""
    return number(name, value, f"a finite number of at least {least:g}, up to 1e150", least, _MOST)


def probability(name: str, value: Any) -> float:
    """Return a number strictly between 0 and 1 as a float."""
    expected = "a number strictly between 0 and 1, from 1e-150"
    return number(name, value, expected, _LEAST, math.nextafter(1.0, 0.0))


def whole(name: str, value: Any, least: int, most: int = _MOST_WHOLE) -> int:
    """Return a whole number from ``least`` to ``most`` as an int; ``True`` and ``3.0`` are refused."""
    is_whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not is_whole or not least <= int(value) <= most:
        limit = f"from {least} to {most}"
        if most == _MOST_WHOLE and not (is_whole and int(value) > most):
            limit = f"of at least {least}"
        raise InvalidInput(f"{name} must be a whole number {limit}, got {shown(value)}.")
    return int(value)


def seed(value: Any, name: str = "seed") -> int:
    """Return a whole number that can seed a generator of torch."""
    return whole(name, value, 1 - 2**63, 2**63 - 1)


def interval(name: str, value: Any) -> tuple[float, float]:
    """Return two finite numbers, the smaller one first."""
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise InvalidInput(f"{name} must be a pair of numbers (low, high), got {shown(value)}.")
    low, high = (number(name, end) for end in value)
    if not low < high:
        raise InvalidInput(
            f"{name} must be a pair (low, high) with low < high, got {shown(value)}."
        )
    return low, high


# Other objects


def maybe(check: Callable[..., T], name: str, value: Any, *limits: Any) -> T | None:
    """Return None if the value is None, otherwise the result of another check."""
    return None if value is None else check(name, value, *limits)


def keep(owner: object, **values: Any) -> None:
    """Set fields of a frozen dataclass to their checked values, for example plain numbers."""
    for name, value in values.items():
        object.__setattr__(owner, name, value)


def instance(name: str, value: Any, kind: type[T], hint: str = "") -> T:
    """Return the value if it is an instance of a class; the message ends with the hint."""
    if isinstance(value, kind):
        return value
    description = shown(value)
    if isinstance(value, type):
        description = f"the class {value.__name__}: call it"
    package, *modules = kind.__module__.split(".")
    if package == "kbo" and modules:
        package = f"kbo.{modules[0]}"
    raise InvalidInput(f"{name} must be a {package}.{kind.__qualname__}, got {description}{hint}.")


def one_of(name: str, value: Any, options: Iterable[str]) -> str:
    """Return the value if it is one of the options, which are texts."""
    if not isinstance(value, str) or value not in options:
        raise InvalidInput(
            f"{name} must be one of {', '.join(map(repr, options))}, got {shown(value)}."
        )
    return value


def generator(value: Any) -> torch.Generator | None:
    """Return the value if it is a torch.Generator or None, which means torch's global generator."""
    return maybe(instance, "generator", value, torch.Generator)


def flag(name: str, value: Any) -> bool:
    """Return a bool of Python or NumPy as a Python bool."""
    if type(value).__name__ not in ("bool", "bool_"):
        raise InvalidInput(f"{name} must be True or False, got {shown(value)}.")
    return bool(value)


def text(name: str, value: Any) -> str:
    """Return the value if it is text that UTF-8 can encode."""
    if not isinstance(value, str) or any("\ud800" <= character <= "\udfff" for character in value):
        raise InvalidInput(f"{name} must be text of whole characters, got {shown(value)}.")
    return value


def function(name: str, value: Any) -> Callable[..., Any]:
    """Return the value if it can be called."""
    if not callable(value):
        raise InvalidInput(f"{name} must be a function, got {shown(value)}.")
    return value


def named_function(name: str, value: Any) -> Callable[..., Any]:
    """Return the value if it is a function with a name: no lambda."""
    last_name = str(getattr(value, "__qualname__", "")).rpartition(".")[2]
    if not callable(value) or not last_name.isidentifier():
        raise InvalidInput(
            f"{name} must be a function with a name, defined with def, by which a journal tells it "
            f"from others; got {shown(value)}."
        )
    return value


def name_of(function: Callable[..., Any]) -> str:
    """Return module and qualified name of a function, as one text."""
    return f"{function.__module__}.{function.__qualname__}"


def path(name: str, value: Any) -> Path:
    """Return a text or path as a Path that the system accepts; the file need not exist."""
    with contextlib.suppress(TypeError, UnicodeEncodeError):
        text = os.fspath(value)
        if isinstance(text, str) and text and b"\0" not in os.fsencode(text):
            return Path(text)
    raise InvalidInput(
        f"{name} must be a path as text or pathlib.Path, of characters that it can have, got "
        f"{shown(value)}."
    )


def kernel(value: Any, owner: str | None = None) -> Kernel:
    """Return the value if it is one unbatched GPyTorch kernel; messages name ``owner``, the class that has it."""
    name = "kernel"
    if owner is not None:
        name = f"kernel of {owner}"
    if isinstance(value, (list, tuple)):
        raise InvalidInput(
            f"{name} must be one gpytorch.kernels.Kernel, got a {type(value).__name__}: lists of "
            "hypotheses are for kbo.Certified, kbo.Safe and kbo.Constraint."
        )
    if not isinstance(value, Kernel):
        raise InvalidInput(
            f"{name} must be a gpytorch.kernels.Kernel, such as gpytorch.kernels.MaternKernel(nu=2.5).double(), got "
            f"{shown(value)}."
        )
    if value.batch_shape != torch.Size([]):
        raise InvalidInput(f"{name} must be unbatched, got batch shape {tuple(value.batch_shape)}.")
    return value


# Tensors


def tensor(name: str, value: Any) -> Tensor:
    """Return the value if it is a dense tensor with data."""
    if not isinstance(value, Tensor):
        raise InvalidInput(
            f"{name} must be a torch.Tensor, got {type(value).__name__}: use torch.as_tensor(...)."
        )
    is_sparse = value.layout is not torch.strided
    kinds = (("meta", value.is_meta), ("nested", value.is_nested), ("sparse", is_sparse))
    for kind, is_kind in kinds:
        if is_kind:
            raise InvalidInput(f"{name} must be a dense tensor with data, got a {kind} one.")
    return value


def shaped(name: str, X: Any, like: Tensor | None = None, dim: int | None = None) -> Tensor:
    """Return points X [... d], float32 or float64; NaN and infinite values are allowed.

    Args:
        name: The name of X in messages.
        X: The points.
        like: Data whose dtype and device X must have.
        dim: The number d of columns that X must have.
    """
    tensor(name, X)
    if X.dtype not in (torch.float64, torch.float32):
        raise InvalidInput(
            f"{name} must be float64 (or float32), got {X.dtype}: use {name}.double()."
        )
    if X.ndim < 1 or X.shape[-1] == 0:
        raise InvalidInput(f"{name} must have shape [... d] with d > 0, got {tuple(X.shape)}.")
    if like is not None:
        if X.dtype != like.dtype:
            raise InvalidInput(
                f"{name} is {X.dtype} but the data are {like.dtype}: use {name}.to({like.dtype})."
            )
        device(name, X, like)
    if dim is not None and X.shape[-1] != dim:
        raise InvalidInput(
            f"{name} has {X.shape[-1]} columns (shape {tuple(X.shape)}) but the data have {dim}."
        )
    return X


def device(name: str, X: Tensor, like: Tensor) -> Tensor:
    """Return X if it is on the device of the data."""
    if X.device != like.device:
        raise InvalidInput(
            f"{name} is on {X.device} but the data are on {like.device}: use "
            f"{name}.to({str(like.device)!r})."
        )
    return X


def points(name: str, X: Tensor, like: Tensor | None = None, dim: int | None = None) -> Tensor:
    """Return points X [... d] without NaN and infinite values; arguments as for ``shaped``."""
    if not bool(shaped(name, X, like, dim).isfinite().all()):
        raise InvalidInput(
            f"{name} contains NaN or infinite values; drop or repair those rows first."
        )
    return X


def rows(name: str, X: Tensor, like: Tensor | None = None, dim: int | None = None) -> Tensor:
    """Return points X [n d] without NaN and infinite values; arguments as for ``shaped``."""
    points(name, X, like, dim)
    return _matrix(name, X, dim)


def _matrix(name: str, X: Tensor, dim: int | None) -> Tensor:
    """Return X if it has two axes, one row per point."""
    if X.ndim != 2:
        raise InvalidInput(
            f"{name} must have shape [n {dim or 'd'}], got {tuple(X.shape)}: one row per point."
        )
    return X


def batch_shape(**shapes: torch.Size) -> torch.Size:
    """Return the common batch shape to which the shapes of several arguments broadcast.

    Args:
        **shapes: The batch shapes, by the names of the arguments.

    Raises:
        InvalidInput: The shapes do not broadcast.
    """
    try:
        return torch.broadcast_shapes(*shapes.values())
    except RuntimeError as error:
        (name, first), *others = ((name, tuple(shape)) for name, shape in shapes.items() if shape)
        expected = " and ".join(f"{shape}, that of {other}" for other, shape in others)
        raise InvalidInput(
            f"the batch shape of {name}, {first}, must broadcast with {expected}: counted from the "
            "last one, their axes must have the same size or size 1."
        ) from error


# Observations


Location = tuple[float, ...]
"""A point as plain numbers."""


class Batch(NamedTuple):
    """Observations, as tensors and as plain numbers.

    Attributes:
        X: Locations [r d].
        y: Targets [r].
        weights: Weights [r].
        locations: The locations on the host.
        targets: The targets on the host.
        host_weights: The weights on the host.
    """

    X: Tensor
    y: Tensor
    weights: Tensor
    locations: list[Location]
    targets: list[float]
    host_weights: list[float]


def observations(
    X: Tensor,
    y: Tensor,
    like: Tensor | None = None,
    dim: int | None = None,
    names: tuple[str, str] = ("X", "y"),
    weights: Tensor | None = None,
) -> Batch:
    """Return points X [n d], targets y [n] and weights [n] above zero, also as plain numbers.

    Args:
        X: The points, checked as by ``rows``.
        y: The targets.
        like: As for ``shaped``.
        dim: As for ``shaped``.
        names: The names of points and targets in messages.
        weights: The weights; ones if omitted.
    """
    X_name, y_name = names
    _matrix(X_name, shaped(X_name, X, like, dim), dim)
    if tensor(y_name, y).shape != X.shape[:1]:
        raise InvalidInput(
            f"{y_name} must have shape [{X.shape[0]}], one target per row of {X_name}, got "
            f"{tuple(y.shape)}."
        )
    if y.dtype in (torch.float32, torch.float64) and y.dtype != X.dtype:
        raise InvalidInput(
            f"{X_name} is {X.dtype} but {y_name} is {y.dtype}: give both the same dtype, best "
            "float64."
        )
    if weights is not None:
        _above_zero("weights", weights, y, "leave out an observation that is to count nothing")
    else:
        weights = torch.ones_like(y)
    if not X.shape[0]:
        return Batch(X, y, weights, [], [], [])
    rows = X.tolist()
    targets = shaped(y_name, y, X).tolist()
    # The sum is quick. It may overflow although all numbers are finite, so then each number is checked.
    if not math.isfinite(sum(map(sum, rows)) + sum(targets)):
        points(X_name, X)
        points(y_name, y)
    _check_sizes(y_name, targets, largest_target(y.dtype))
    return Batch(X, y, weights, list(map(tuple, rows)), targets, weights.tolist())


def _check_sizes(name: str, targets: list[float], most: float) -> None:
    """Raise InvalidInput if the size of a target is above ``most``."""
    largest = max(map(abs, targets))
    if largest > most:
        raise InvalidInput(
            f"{name} has a value of size {largest:.3g}; squares of sizes above {most:.2g} "
            "overflow: drop that row if it is a fault, or use other units."
        )


def largest_target(dtype: torch.dtype) -> float:
    """Return the largest target whose sums of squares stay finite, also divided by a small ridge."""
    return torch.finfo(dtype).max ** 0.4


def variances(name: str, value: Tensor, Y: Tensor) -> Tensor:
    """Return noise variances above zero, with the shape, dtype and device of the targets Y."""
    return _above_zero(name, value, Y, "variances of the noise, in squared units of the targets")


def _above_zero(name: str, value: Tensor, Y: Tensor, hint: str) -> Tensor:
    """Return numbers above zero, with the shape, dtype and device of the targets Y."""
    if tensor(name, value).shape != Y.shape:
        raise InvalidInput(
            f"{name} must have the shape of the targets, {tuple(Y.shape)}, got "
            f"{tuple(value.shape)}."
        )
    if value.numel() and not bool((points(name, value, Y) > 0).all()):
        raise InvalidInput(f"{name} must be above 0: {hint}.")
    return value
