"""Checks of arguments; each message says what was wrong, what was expected and what to do."""

from __future__ import annotations

import contextlib
import math
import os
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
    return value.item() if type(value).__module__ == "numpy" and not getattr(value, "ndim", 1) else value


def number(name: str, value: Any, expected: str = "a finite number") -> float:
    """Return ``value`` as a float if it is a finite number."""
    try:
        found = real(value)
    except Exception as error:
        raise InvalidInput(f"{name} must be {expected}, got {shown(value)}.") from error
    if not math.isfinite(found):
        raise InvalidInput(f"{name} must be {expected}, got {shown(value)}.")
    return found


_LEAST, _MOST = 1e-150, 1e150
"""Sizes of numbers whose squares and quotients float64 can hold; beyond them other units are needed."""


def positive(name: str, value: Any, most: float = _MOST) -> float:
    """Return ``value`` as a float if it is a number above zero, from 1e-150 to ``most``."""
    if type(value) is float and _LEAST <= value <= most:
        return value
    return _number(name, value, lambda v: _LEAST <= v <= most, f"a finite number above 0, from 1e-150 to {most:g}")


def non_negative(name: str, value: Any) -> float:
    """Return ``value`` as a float if it is a finite number of at least zero."""
    return _number(name, value, lambda v: v >= 0, "a finite number of at least 0")


def at_least(name: str, value: Any, least: float) -> float:
    """Return ``value`` as a float if it is a finite number of at least ``least``."""
    return _number(name, value, lambda v: least <= v <= _MOST, f"a finite number of at least {least:g}, up to 1e150")


def probability(name: str, value: Any) -> float:
    """Return ``value`` as a float if it lies strictly between 0 and 1."""
    return _number(name, value, lambda v: _LEAST <= v < 1, "a number strictly between 0 and 1, from 1e-150")


def whole(name: str, value: Any, least: int, most: int = 2**53) -> int:
    """Return ``value`` as an int if it is a whole number of these; ``True`` and ``3.0`` are none."""
    if isinstance(value, bool) or not isinstance(value, Integral) or not least <= int(value) <= most:
        limit = f"from {least} to {most}" if most < 2**53 else f"of at least {least}"
        raise InvalidInput(f"{name} must be a whole number {limit}, got {shown(value)}.")
    return int(value)


def seed(value: Any, name: str = "seed") -> int:
    """Return ``value`` as an int if it is a seed: a whole number that torch can start a generator from."""
    if isinstance(value, bool) or not isinstance(value, Integral) or abs(int(value)) >= 2**63:
        raise InvalidInput(f"{name} must be a whole number of less than 2**63 in size, got {shown(value)}.")
    return int(value)


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
        raise InvalidInput(f"{name} must be one of {', '.join(map(repr, options))}, got {shown(value)}.")
    return value


def generator(value: Any) -> torch.Generator | None:
    """Return ``value`` if it is a source of randomness, or None for torch's global one."""
    return maybe(instance, "generator", value, torch.Generator)


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
    if not callable(value) or not str(getattr(value, "__qualname__", "")).rpartition(".")[2].isidentifier():
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
    if not isinstance(value, (str, os.PathLike)) or not (text := os.fspath(value)) or not isinstance(text, str):
        raise InvalidInput(f"{name} must be a path as text or pathlib.Path, got {shown(value)}.")
    try:
        valid = b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        valid = False
    if not valid:
        raise InvalidInput(f"{name} must have only characters that a path can have, got {shown(value)}.")
    return Path(text)


def _number(name: str, value: Any, accepts: Callable[[float], bool], expected: str) -> float:
    found = number(name, value, expected)
    if not accepts(found):
        raise InvalidInput(f"{name} must be {expected}, got {shown(value)}.")
    return found


def kernel(value: Any, owner: str | None = None) -> Kernel:
    """Return ``value`` if it is a single unbatched GPyTorch kernel; messages name its ``owner``, a class."""
    name = "kernel" if owner is None else f"kernel of {owner}"
    if not isinstance(value, Kernel):
        raise InvalidInput(f"{name} must be a gpytorch.kernels.Kernel, got {type(value).__name__}.")
    if value.batch_shape != torch.Size([]):
        raise InvalidInput(f"{name} must be unbatched, got batch shape {tuple(value.batch_shape)}.")
    return value


def points(name: str, X: Tensor, like: Tensor | None = None, dim: int | None = None) -> Tensor:
    """Return ``X`` [... d] if it is a finite floating-point tensor that fits the data seen so far."""
    _refuse_infinite(name, shaped(name, X, like, dim))
    return X


def tensor(name: str, value: Any) -> Tensor:
    """Return ``value`` if it is a dense tensor with data."""
    if not isinstance(value, Tensor):
        raise InvalidInput(f"{name} must be a torch.Tensor, got {type(value).__name__}: use torch.as_tensor(...).")
    if value.layout is not torch.strided or value.is_nested or value.is_meta:
        kind = "meta" if value.is_meta else "nested" if value.is_nested else "sparse"
        raise InvalidInput(f"{name} must be a dense tensor with data, got a {kind} one.")
    return value


def shaped(name: str, X: Any, like: Tensor | None = None, dim: int | None = None) -> Tensor:
    """Return ``X`` [... d] if it is a floating-point tensor that fits the data seen so far, whatever its values."""
    tensor(name, X)
    if X.dtype not in (torch.float64, torch.float32):
        raise InvalidInput(f"{name} must be float64 (or float32), got {X.dtype}: use {name}.double().")
    if X.ndim < 1 or X.shape[-1] == 0:
        raise InvalidInput(f"{name} must have shape [... d] with d > 0, got {tuple(X.shape)}.")
    if like is not None and X.dtype != like.dtype:
        raise InvalidInput(f"{name} is {X.dtype} but the data are {like.dtype}: use {name}.to({like.dtype}).")
    if like is not None:
        device(name, X, like)
    if dim is not None and X.shape[-1] != dim:
        raise InvalidInput(f"{name} has {X.shape[-1]} columns (shape {tuple(X.shape)}) but the data have {dim}.")
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
    return _matrix(name, points(name, X, like, dim), dim)


def _matrix(name: str, X: Tensor, dim: int | None) -> Tensor:
    if X.ndim != 2:
        raise InvalidInput(f"{name} must have shape [n {dim or 'd'}], got {tuple(X.shape)}: one row per point.")
    return X


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
    """Return points X [n d], targets y [n] and weights [n] above zero on the host, after one copy from their device.

    Messages call points and targets by ``names``.
    """
    points_name, targets_name = names
    _matrix(points_name, shaped(points_name, X, like, dim), dim)
    if tensor(targets_name, y).shape != X.shape[:1]:
        raise InvalidInput(
            f"{targets_name} must have shape [{X.shape[0]}], one target per row of {points_name}, got {tuple(y.shape)}."
        )
    if y.dtype in (torch.float32, torch.float64) and y.dtype != X.dtype:
        raise InvalidInput(
            f"{points_name} is {X.dtype} but {targets_name} is {y.dtype}: give both the same dtype, best float64."
        )
    if weights is not None:
        _fits("weights", weights, y)
    if not X.shape[0]:
        return OnHost([], [], None)
    shaped(targets_name, y, X)
    rows = torch.column_stack([X, y] if weights is None else [X, y, weights]).tolist()
    d, most = X.shape[1], largest_target(y.dtype)
    targets = [row[d] for row in rows]
    if not math.isfinite(sum(map(sum, rows))):
        _refuse_infinite(points_name, X)
        _refuse_infinite(targets_name, y)
    if (largest := max(map(abs, targets))) > most:
        raise InvalidInput(
            f"{targets_name} has a value of size {largest:.3g}; squares of sizes above {most:.2g} overflow: "
            "drop that row if it is a fault, or use other units."
        )
    each = None if weights is None else [row[d + 1] for row in rows]
    if each is not None:
        _refuse_no_weights(each)
    return OnHost([tuple(row[:d]) for row in rows], targets, each)


def largest_target(dtype: torch.dtype) -> float:
    """Return the largest size of a target, so that sums of squares, also over a small ridge, stay finite."""
    return torch.finfo(dtype).max ** 0.4


def weights(value: Tensor | None, y: Tensor) -> Tensor:
    """Return weights [n] of the targets y [n], all above zero; None stands for ones."""
    if value is None:
        return torch.ones_like(y)
    if _fits("weights", value, y).numel():
        _refuse_no_weights(value.tolist())
    return value.detach()


def _fits(name: str, value: Tensor, y: Tensor) -> Tensor:
    if tensor(name, value).shape != y.shape:
        raise InvalidInput(f"{name} must have shape {tuple(y.shape)}, one for each target, got {tuple(value.shape)}.")
    return shaped(name, value, y) if value.numel() else value


def _refuse_no_weights(weights: list[float]) -> None:
    if not all(map(math.isfinite, weights)):
        raise InvalidInput("weights contains NaN or infinite values; drop or repair those rows first.")
    if min(weights) <= 0:
        raise InvalidInput("weights must be above 0: leave out an observation that is to count nothing.")


def variances(name: str, value: Tensor, Y: Tensor) -> Tensor:
    """Return noise variances of the targets Y, of the same shape, dtype and device, and above zero."""
    if tensor(name, value).shape != Y.shape:
        raise InvalidInput(f"{name} must have the shape of the targets, {tuple(Y.shape)}, got {tuple(value.shape)}.")
    if value.numel() and not bool((points(name, value, Y) > 0).all()):
        raise InvalidInput(f"{name} must be above 0: variances of the noise, in squared units of the targets.")
    return value


def _refuse_infinite(name: str, X: Tensor) -> None:
    """Raise unless all entries are finite: a finite sum proves it at a third of the cost of a test of each."""
    if not (math.isfinite(X.sum().item()) or bool(torch.isfinite(X).all())):
        raise InvalidInput(f"{name} contains NaN or infinite values; drop or repair those rows first.")
