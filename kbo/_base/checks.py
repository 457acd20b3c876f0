"""Checks of arguments; each message says what was wrong, what was expected and what to do."""

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
    """Return the repr of a value for a message, shortened, whatever that repr does."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # of an object of the caller
        text = f"an object of {type(value).__name__}"
    return text if len(text) <= most else f"{text[: most - 3]}..."


@contextlib.contextmanager
def inside(place: str) -> Iterator[None]:
    """Put a place before the messages of ``InvalidInput``, for example the parameter whose bounds are at fault."""
    try:
        yield
    except InvalidInput as error:
        raise InvalidInput(f"{place}: {error}") from error


def real(value: Any) -> float:
    """Return a real number as a float: of Python, NumPy, ``decimal`` or ``fractions``, or a tensor of one entry.

    Raises:
        TypeError: Text, a boolean, a complex number, a masked entry, or whatever else is no real number.
        Exception: Any that a conversion of the caller's own raises.
    """
    found = value
    if hasattr(value, "item"):
        if np.ma.is_masked(value):
            raise TypeError("a masked entry has no value")
        found = value.item()
    if isinstance(found, bool) or not (hasattr(found, "__float__") or hasattr(found, "__index__")):
        raise TypeError(f"{type(found).__name__} is no real number")
    return float(found)


def plain(value: Any) -> Any:
    """Return a number or text of NumPy as one of Python, anything else as it is."""
    return (
        value.item()
        if type(value).__module__ == "numpy" and not getattr(value, "ndim", 1)
        else value
    )


_LEAST, _MOST, _LARGEST = 1e-150, 1e150, sys.float_info.max
"""Sizes whose squares and quotients float64 can hold, beyond which other units are needed, and its largest number."""


def number(
    name: str,
    value: Any,
    expected: str = "a finite number",
    least: float = -_LARGEST,
    most: float = _LARGEST,
) -> float:
    """Return ``value`` as a float if it is a number from ``least`` to ``most``, which a message calls ``expected``."""
    found, cause = math.nan, None
    try:
        found = real(value)
    except Exception as error:
        cause = error
    if not least <= found <= most:
        raise InvalidInput(f"{name} must be {expected}, got {shown(value)}.") from cause
    return found


def positive(name: str, value: Any, most: float = _MOST) -> float:
    """Return ``value`` as a float if it is a number above zero, from 1e-150 to ``most``."""
    if type(value) is float and _LEAST <= value <= most:
        return value
    return number(name, value, f"a finite number above 0, from 1e-150 to {most:g}", _LEAST, most)


def non_negative(name: str, value: Any) -> float:
    """Return ``value`` as a float if it is a finite number of at least zero."""
    return number(name, value, "a finite number of at least 0", 0.0)


def at_least(name: str, value: Any, least: float) -> float:
    """Return ``value`` as a float if it is a finite number of at least ``least``."""
    return number(name, value, f"a finite number of at least {least:g}, up to 1e150", least, _MOST)


def probability(name: str, value: Any) -> float:
    """Return ``value`` as a float if it lies strictly between 0 and 1."""
    return number(
        name,
        value,
        "a number strictly between 0 and 1, from 1e-150",
        _LEAST,
        math.nextafter(1.0, 0.0),
    )


def whole(name: str, value: Any, least: int, most: int = 2**53) -> int:
    """Return ``value`` as an int if it is a whole number of these; ``True`` and ``3.0`` are none."""
    if (
        isinstance(value, bool)
        or not isinstance(value, Integral)
        or not least <= int(value) <= most
    ):
        limit = f"of at least {least}" if most == 2**53 else f"from {least} to {most}"
        raise InvalidInput(f"{name} must be a whole number {limit}, got {shown(value)}.")
    return int(value)


def seed(value: Any, name: str = "seed") -> int:
    """Return ``value`` as an int if it is a seed: a whole number that torch can start a generator from."""
    return whole(name, value, 1 - 2**63, 2**63 - 1)


def maybe(check: Callable[..., T], name: str, value: Any, *limits: Any) -> T | None:
    """Return None, or ``value`` as another check returns it."""
    return None if value is None else check(name, value, *limits)


def instance(name: str, value: Any, kind: type[T], hint: str = "") -> T:
    """Return ``value`` if it is an instance of a class; the message ends with the hint."""
    if not isinstance(value, kind):
        what = f"the class {value.__name__}: call it" if isinstance(value, type) else shown(value)
        home = ".".join(kind.__module__.split(".")[: 2 if kind.__module__.startswith("kbo") else 1])
        raise InvalidInput(f"{name} must be a {home}.{kind.__qualname__}, got {what}{hint}.")
    return value


def one_of(name: str, value: Any, options: Iterable[str]) -> str:
    """Return ``value`` if it is one of the options, as text."""
    if not isinstance(value, str) or value not in options:
        raise InvalidInput(
            f"{name} must be one of {', '.join(map(repr, options))}, got {shown(value)}."
        )
    return value


def batch_shape(**shapes: torch.Size) -> torch.Size:
    """Return the batch shape to which those of several arguments broadcast, given by the names of the arguments.

    Raises:
        InvalidInput: They do not broadcast.
    """
    try:
        return torch.broadcast_shapes(*shapes.values())
    except RuntimeError as error:
        (name, first), *others = ((name, tuple(shape)) for name, shape in shapes.items() if shape)
        expected = " and ".join(f"{shape}, that of {other}" for other, shape in others)
        raise InvalidInput(
            f"the batch shape of {name}, {first}, must broadcast with {expected}: counted from the last one, "
            "their axes must have the same size or size 1."
        ) from error


def generator(value: Any) -> torch.Generator | None:
    """Return ``value`` if it is a source of randomness, or None for torch's global one."""
    return maybe(instance, "generator", value, torch.Generator)


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


def flag(name: str, value: Any) -> bool:
    """Return ``value`` as a bool if it is one, of Python or NumPy."""
    if type(value).__name__ not in ("bool", "bool_"):
        raise InvalidInput(f"{name} must be True or False, got {shown(value)}.")
    return bool(value)


def text(name: str, value: Any) -> str:
    """Return ``value`` if it is text that UTF-8 can encode."""
    if not isinstance(value, str) or any("\ud800" <= character <= "\udfff" for character in value):
        raise InvalidInput(f"{name} must be text of whole characters, got {shown(value)}.")
    return value


def function(name: str, value: Any) -> Callable[..., Any]:
    """Return ``value`` if it can be called."""
    if not callable(value):
        raise InvalidInput(f"{name} must be a function, got {shown(value)}.")
    return value


def named_function(name: str, value: Any) -> Callable[..., Any]:
    """Return ``value`` if it is a function that its name tells apart from others."""
    if (
        not callable(value)
        or not str(getattr(value, "__qualname__", "")).rpartition(".")[2].isidentifier()
    ):
        raise InvalidInput(
            f"{name} must be a function with a name, defined with def, by which a journal tells it from others; got "
            f"{shown(value)}."
        )
    return value


def name_of(function: Callable[..., Any]) -> str:
    """Return module and qualified name of a function."""
    return f"{function.__module__}.{function.__qualname__}"


def path(name: str, value: Any) -> Path:
    """Return ``value`` as a path if it is text or a path that the system can take; it need not exist."""
    with contextlib.suppress(TypeError, UnicodeEncodeError):
        found = os.fspath(value)
        if isinstance(found, str) and found and b"\0" not in os.fsencode(found):
            return Path(found)
    raise InvalidInput(
        f"{name} must be a path as text or pathlib.Path, of characters that it can have, got {shown(value)}."
    )


def kernel(value: Any, owner: str | None = None) -> Kernel:
    """Return ``value`` if it is a single unbatched GPyTorch kernel; messages name its ``owner``, a class."""
    name = "kernel" if owner is None else f"kernel of {owner}"
    if isinstance(value, (list, tuple)):
        raise InvalidInput(
            f"{name} must be one gpytorch.kernels.Kernel, got a {type(value).__name__}: lists of hypotheses are for "
            "kbo.Certified, kbo.Safe and kbo.Constraint."
        )
    if not isinstance(value, Kernel):
        raise InvalidInput(f"{name} must be a gpytorch.kernels.Kernel, got {type(value).__name__}.")
    if value.batch_shape != torch.Size([]):
        raise InvalidInput(f"{name} must be unbatched, got batch shape {tuple(value.batch_shape)}.")
    return value


def points(name: str, X: Tensor, like: Tensor | None = None, dim: int | None = None) -> Tensor:
    """Return ``X`` [... d] if it is a finite floating-point tensor that fits the data seen so far."""
    if not bool(shaped(name, X, like, dim).isfinite().all()):
        raise InvalidInput(
            f"{name} contains NaN or infinite values; drop or repair those rows first."
        )
    return X


def tensor(name: str, value: Any) -> Tensor:
    """Return ``value`` if it is a dense tensor with data."""
    if not isinstance(value, Tensor):
        raise InvalidInput(
            f"{name} must be a torch.Tensor, got {type(value).__name__}: use torch.as_tensor(...)."
        )
    if value.layout is not torch.strided or value.is_nested or value.is_meta:
        kind = "meta" if value.is_meta else "nested" if value.is_nested else "sparse"
        raise InvalidInput(f"{name} must be a dense tensor with data, got a {kind} one.")
    return value


def shaped(name: str, X: Any, like: Tensor | None = None, dim: int | None = None) -> Tensor:
    """Return ``X`` [... d] if it is a floating-point tensor that fits the data seen so far, whatever its values."""
    tensor(name, X)
    if X.dtype not in (torch.float64, torch.float32):
        raise InvalidInput(
            f"{name} must be float64 (or float32), got {X.dtype}: use {name}.double()."
        )
    if X.ndim < 1 or X.shape[-1] == 0:
        raise InvalidInput(f"{name} must have shape [... d] with d > 0, got {tuple(X.shape)}.")
    if like is not None and X.dtype != like.dtype:
        raise InvalidInput(
            f"{name} is {X.dtype} but the data are {like.dtype}: use {name}.to({like.dtype})."
        )
    if like is not None:
        device(name, X, like)
    if dim is not None and X.shape[-1] != dim:
        raise InvalidInput(
            f"{name} has {X.shape[-1]} columns (shape {tuple(X.shape)}) but the data have {dim}."
        )
    return X


def device(name: str, X: Tensor, like: Tensor) -> Tensor:
    """Return ``X`` if it is on the device of the data."""
    if X.device != like.device:
        raise InvalidInput(
            f"{name} is on {X.device} but the data are on {like.device}: use {name}.to({str(like.device)!r})."
        )
    return X


def rows(name: str, X: Tensor, like: Tensor | None = None, dim: int | None = None) -> Tensor:
    """Return ``X`` if it passes ``points`` and has shape [n d]."""
    if points(name, X, like, dim).ndim != 2:
        raise _no_rows(name, X, dim)
    return X


def _no_rows(name: str, X: Tensor, dim: int | None) -> InvalidInput:
    return InvalidInput(
        f"{name} must have shape [n {dim or 'd'}], got {tuple(X.shape)}: one row per point."
    )


class OnHost(NamedTuple):
    """Observations as plain numbers: locations, targets, and weights, None for ones."""

    places: list[tuple[float, ...]]
    targets: list[float]
    weights: list[float] | None


def observations(
    X: Tensor,
    y: Tensor,
    like: Tensor | None = None,
    dim: int | None = None,
    names: tuple[str, str] = ("X", "y"),
    weights: Tensor | None = None,
) -> OnHost:
    """Return points X [n d], targets y [n] and weights [n] above zero as plain numbers, after all checks of them.

    Messages call points and targets by ``names``.
    """
    points_name, targets_name = names
    shaped(points_name, X, like, dim)
    if X.ndim != 2:
        raise _no_rows(points_name, X, dim)
    if tensor(targets_name, y).shape != X.shape[:1]:
        raise InvalidInput(
            f"{targets_name} must have shape [{X.shape[0]}], one target per row of {points_name}, got {tuple(y.shape)}."
        )
    if y.dtype in (torch.float32, torch.float64) and y.dtype != X.dtype:
        raise InvalidInput(
            f"{points_name} is {X.dtype} but {targets_name} is {y.dtype}: give both the same dtype, best float64."
        )
    if weights is not None:
        _above_zero("weights", weights, y, "leave out an observation that is to count nothing")
    if not X.shape[0]:
        return OnHost([], [], None)
    places, targets = X.tolist(), shaped(targets_name, y, X).tolist()
    if not math.isfinite(
        sum(map(sum, places)) + sum(targets)
    ):  # which is quick, and may overflow by itself
        points(points_name, X)
        points(targets_name, y)
    if (largest := max(map(abs, targets))) > (most := largest_target(y.dtype)):
        raise InvalidInput(
            f"{targets_name} has a value of size {largest:.3g}; squares of sizes above {most:.2g} overflow: "
            "drop that row if it is a fault, or use other units."
        )
    return OnHost(list(map(tuple, places)), targets, None if weights is None else weights.tolist())


def largest_target(dtype: torch.dtype) -> float:
    """Return the largest size of a target, so that sums of squares, also over a small ridge, stay finite."""
    return torch.finfo(dtype).max ** 0.4


def variances(name: str, value: Tensor, Y: Tensor) -> Tensor:
    """Return noise variances of the targets Y, of the same shape, dtype and device, and above zero."""
    return _above_zero(name, value, Y, "variances of the noise, in squared units of the targets")


def _above_zero(name: str, value: Tensor, Y: Tensor, hint: str) -> Tensor:
    if tensor(name, value).shape != Y.shape:
        raise InvalidInput(
            f"{name} must have the shape of the targets, {tuple(Y.shape)}, got {tuple(value.shape)}."
        )
    if value.numel() and not bool((points(name, value, Y) > 0).all()):
        raise InvalidInput(f"{name} must be above 0: {hint}.")
    return value
