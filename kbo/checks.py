"""Checks of what users pass in: one sentence each on what was wrong, what was expected, what to do."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kbo.errors import InvalidInput


def positive(name: str, value: float) -> float:
    """``value`` as a float, if it is a finite number above zero."""
    return _number(name, value, value_ok=lambda v: v > 0, expected="a finite number above 0")


def non_negative(name: str, value: float) -> float:
    """``value`` as a float, if it is a finite number of at least zero."""
    return _number(name, value, value_ok=lambda v: v >= 0, expected="a finite number of at least 0")


def at_least(name: str, value: float, least: float) -> float:
    """``value`` as a float, if it is a finite number of at least ``least``."""
    return _number(name, value, value_ok=lambda v: v >= least, expected=f"a finite number of at least {least:g}")


def probability(name: str, value: float) -> float:
    """``value`` as a float, if it lies strictly between 0 and 1."""
    return _number(name, value, value_ok=lambda v: 0 < v < 1, expected="a number strictly between 0 and 1")


def _number(name: str, value, value_ok, expected: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{name} must be {expected}, got {value!r}.") from error
    if not math.isfinite(number) or not value_ok(number):
        raise InvalidInput(f"{name} must be {expected}, got {value!r}.")
    return number


def points(name: str, X: Tensor, like: Tensor | None = None, dim: int | None = None) -> Tensor:
    """``X`` [... d] if it is a finite floating-point tensor that fits the data seen so far."""
    if not isinstance(X, Tensor):
        raise InvalidInput(f"{name} must be a torch.Tensor, got {type(X).__name__}: use torch.as_tensor(...).")
    if X.dtype not in (torch.float64, torch.float32):
        raise InvalidInput(f"{name} must be float64 (or float32), got {X.dtype}: use {name}.double().")
    if X.ndim < 1 or X.shape[-1] == 0:
        raise InvalidInput(f"{name} must have shape [... d] with d > 0, got {tuple(X.shape)}.")
    if like is not None and X.dtype != like.dtype:
        raise InvalidInput(f"{name} is {X.dtype} but the data are {like.dtype}: use {name}.to({like.dtype}).")
    if like is not None and X.device != like.device:
        raise InvalidInput(
            f"{name} is on {X.device} but the data are on {like.device}: use {name}.to({str(like.device)!r})."
        )
    if dim is not None and X.shape[-1] != dim:
        raise InvalidInput(f"{name} has {X.shape[-1]} columns (shape {tuple(X.shape)}) but the data have {dim}.")
    if not _finite(X):
        raise InvalidInput(f"{name} contains NaN or infinite values; drop or repair those rows first.")
    return X


def _finite(X: Tensor) -> bool:
    """Whether all entries are finite: a finite sum proves it at a third of the price of looking at each."""
    return math.isfinite(float(X.detach().sum())) or bool(torch.isfinite(X).all())


def observations(X: Tensor, y: Tensor, like: Tensor | None = None, dim: int | None = None) -> None:
    """Check points X [n d] and their targets y [n]."""
    points("X", X, like, dim)
    if X.ndim != 2:
        raise InvalidInput(f"X must have shape [n d], got {tuple(X.shape)}: one row per observation.")
    if not isinstance(y, Tensor) or y.shape != X.shape[:1]:
        shape = tuple(y.shape) if isinstance(y, Tensor) else type(y).__name__
        raise InvalidInput(f"y must have shape [{X.shape[0]}], one target per row of X, got {shape}.")
    if y.numel():
        points("y", y, X)
