"""What a posterior must tell: the handful of numbers that every confidence bound is made of."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from kbo import checks
from kbo.errors import IllConditionedWarning, InvalidInput
from kbo.regression.ridge_path import AskedPath, RidgePath

Ridge = float | Tensor | Sequence[float] | None


class RidgeSchedule(ABC):
    """What moves the ridge of a posterior as data come in; see ``adaptive.py``.

    Attributes:
        ridge: The ridge after the data seen so far.
        n: Observations seen so far.
        continuous: Whether the ridge may move at every observation, so that no factor of its own is worth having.
    """

    ridge: float
    n: int = 0
    continuous: bool

    @abstractmethod
    def update(self, state: Posterior) -> None:
        """Take in what ``state`` has learned since the last update."""

    @abstractmethod
    def fork(self) -> RidgeSchedule:
        """An independent copy."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Plain numbers, from which ``load_state_dict`` continues exactly."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of ``state_dict``, for an equally constructed schedule."""


class Posterior(ABC):
    """A kernel ridge regression of everything observed so far.

    ``ridge=None`` means the state's own ridge; a number overrides it; a tensor [r] (or a list) asks for r
    ridges at once and gives every result a leading axis r, also if r is 1.
    Points are the rows of X, of any batch shape.
    """

    ridge: float

    imagined = False
    """Whether observations were imagined: then no bound on it is a theorem."""

    ridge_moved = False
    """Whether the ridge was moved after data had come: then bounds about a fixed ridge are no theorems on it."""

    @property
    @abstractmethod
    def n(self) -> int:
        """Number of observations, repeats included."""

    @property
    def schedule(self) -> RidgeSchedule | None:
        """What moves the ridge as data come in; None if it stays."""
        return None

    def move_ridge(self, ridge: float) -> None:
        """From here on the state's own ridge is this one.

        Raises:
            InvalidInput: It is not a finite number above zero.
        """
        self.ridge = checks.positive("ridge", ridge)
        self.ridge_moved |= self.n > 0

    @abstractmethod
    def update(self, X: Tensor, y: Tensor) -> None:
        """Add observations X [r d], y [r] in place.

        Raises:
            InvalidInput: Wrong shape, dtype or device, or values that are not finite; nothing is added.
        """

    @abstractmethod
    def predict(self, X: Tensor, ridge: Ridge = None) -> tuple[Tensor, Tensor]:
        """Mean and variance ``k(x)'(K + ridge I)^-1 y``, ``k(x,x) - k(x)'(K + ridge I)^-1 k(x)``.

        Args:
            X: Points [... d].
            ridge: None, a number, or r numbers.

        Returns:
            Mean [...] and variance [...] of the function (without observation noise), in the units of y
            and of the kernel; with a leading r if r ridges were given.
        """

    @abstractmethod
    def covariance(self, X: Tensor, Z: Tensor, ridge: Ridge = None) -> Tensor:
        """Posterior covariance [... a b] of X [... a d] and Z [... b d] (equal batch shapes)."""

    @abstractmethod
    def log_det(self, ridge: Ridge = None) -> Tensor:
        """``ln det(I + K / ridge)``, twice the information gain; [] or [r]."""

    @abstractmethod
    def quad(self, ridge: Ridge = None) -> Tensor:
        """``y'(I + K / ridge)^-1 y``, in squared units of y; [] or [r]."""

    @abstractmethod
    def rss(self, ridge: Ridge = None) -> Tensor:
        """``|y - mean(X)|^2``, the residual sum of squares of the fit to the data, in squared units of y; [] or [r]."""

    @abstractmethod
    def effective_dimension(self, ridge: Ridge = None) -> Tensor:
        """``Tr K (K + ridge I)^-1``, the sum of the training leverages; [] or [r]."""

    @property
    @abstractmethod
    def trace(self) -> Tensor:
        """``Tr K``, the sum of ``k(x, x)`` over the observations; []."""

    @property
    @abstractmethod
    def least_ridge(self) -> float:
        """The least ridge at which log-determinants and variances keep their digits."""

    @property
    @abstractmethod
    def residual_trace(self) -> Tensor:
        """Trace of ``K`` minus its approximation; zero for an exact state."""

    @abstractmethod
    def residual_norm(self) -> Tensor:
        """An upper bound of the operator norm of ``K`` minus its approximation; zero if exact."""

    @property
    def rounding(self) -> float:
        """What rounding may do to ``quad`` and ``rss``, in squared units of y; zero where they are sums of squares."""
        return 0.0

    def leverage_sum(self, ridge: Ridge = None) -> Tensor:
        """The sum of the leverages of the observations, [] or [r].

        At least the effective dimension of the exact kernel matrix: ``Tr (A + E)(A + E + a I)^-1`` is at most
        ``Tr A (A + a I)^-1 + Tr E / a`` (the function is operator concave and zero at zero, so its trace is
        subadditive).
        """
        ridges, single = as_ridges(self.ridge if ridge is None else ridge)
        inner = self.effective_dimension(self.ridge if ridge is None else ridge)
        return inner + self.residual_trace / (ridges[0] if single else inner.new_tensor(ridges))

    def ridge_path(self, X: Tensor) -> RidgePath:
        """The posterior of groups of points as a function of the ridge.

        Args:
            X: Groups of g points, [... g d]; the path numbers them in order of their flattened batch shape.
        """
        return AskedPath(self, X.reshape(-1, *X.shape[-2:]))

    @torch.no_grad()
    def sample(self, X: Tensor, count: int, generator: torch.Generator | None = None) -> Tensor:
        """Joint draws [count N] of the function at X [N d] from the Gaussian posterior at the state's ridge, O(N^3).

        Eigenvalues of the covariance that rounding makes negative count as zero: nothing is added to it.
        """
        return self.predict(X)[0] + self.deviations(X, count, generator)

    @torch.no_grad()
    def deviations(
        self, X: Tensor, count: int, generator: torch.Generator | None = None, ridge: float | None = None
    ) -> Tensor:
        """Joint draws [count N] as of ``sample`` less their mean, at any one ridge; ``draws.py`` has many points."""
        values, vectors = torch.linalg.eigh(self.covariance(X, X, ridge))
        normal = torch.randn(count, len(X), generator=generator, dtype=X.dtype).to(X.device)
        return (normal * values.clamp_min(0).sqrt()) @ vectors.mT

    def leverage(self, X: Tensor, ridge: Ridge = None) -> Tensor:
        """Ridge leverage scores ``variance / ridge`` of X [... d]; [...] or [r ...]."""
        ridges, squeeze = as_ridges(self.ridge if ridge is None else ridge)
        variance = self.predict(X, ridges)[1]
        leverage = torch.stack([v / r for v, r in zip(variance, ridges, strict=True)])
        return leverage[0] if squeeze else leverage


def as_ridges(ridge: float | Tensor | Sequence[float]) -> tuple[list[float], bool]:
    """The ridges as floats, and whether a single number was given.

    Raises:
        InvalidInput: A ridge is not a finite number above zero.
    """
    single = isinstance(ridge, (int, float)) or (isinstance(ridge, Tensor) and ridge.ndim == 0)
    values = [ridge] if single else (ridge.tolist() if isinstance(ridge, Tensor) else list(ridge))  # pyright: ignore[reportArgumentType]
    if not values:
        raise InvalidInput("ridge must be a number or at least one number, got none.")
    return [checks.positive("ridge", value) for value in values], single  # pyright: ignore[reportArgumentType]


def in_chunks(answer: Callable[[Tensor], tuple[Tensor, Tensor]], X: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Mean and variance [... N] of X [N d], asked ``size`` points at a time: temporaries stay small."""
    if len(X) <= size:
        return answer(X)
    if X.requires_grad:
        mean, variance = zip(*(answer(part) for part in X.split(size)), strict=True)
        return torch.cat(mean, -1), torch.cat(variance, -1)
    # Results in one piece: kept apart between freed temporaries, they would fragment the heap without bound.
    mean, variance = answer(X[:size])
    whole = [part.new_empty(*part.shape[:-1], len(X)) for part in (mean, variance)]
    for start in range(0, len(X), size):
        parts = answer(X[start : start + size]) if start else (mean, variance)
        for target, part in zip(whole, parts, strict=True):
            target[..., start : start + size] = part
    return whole[0], whole[1]


class View(Posterior):
    """Another posterior seen through a change of a few answers: everything else is passed on."""

    def __init__(self, state: Posterior) -> None:
        self.state = state
        self.imagined = state.imagined

    @property
    def ridge(self) -> float:
        """The ridge of the posterior behind, also after it moved."""
        return self.state.ridge

    @property
    def schedule(self) -> RidgeSchedule | None:  # noqa: D102
        return self.state.schedule

    @property
    def ridge_moved(self) -> bool:
        """Whether the ridge of the posterior behind was moved."""
        return self.state.ridge_moved

    def move_ridge(self, ridge: float) -> None:  # noqa: D102
        self.state.move_ridge(ridge)

    @property
    def n(self) -> int:  # noqa: D102
        return self.state.n

    def update(self, X: Tensor, y: Tensor) -> None:
        """Add observations to the posterior behind."""
        self.state.update(X, y)

    def predict(self, X: Tensor, ridge: Ridge = None) -> tuple[Tensor, Tensor]:  # noqa: D102
        return self.state.predict(X, ridge)

    def covariance(self, X: Tensor, Z: Tensor, ridge: Ridge = None) -> Tensor:  # noqa: D102
        return self.state.covariance(X, Z, ridge)

    def ridge_path(self, X: Tensor) -> RidgePath:  # noqa: D102
        return self.state.ridge_path(X)

    def log_det(self, ridge: Ridge = None) -> Tensor:  # noqa: D102
        return self.state.log_det(ridge)

    def quad(self, ridge: Ridge = None) -> Tensor:  # noqa: D102
        return self.state.quad(ridge)

    def rss(self, ridge: Ridge = None) -> Tensor:  # noqa: D102
        return self.state.rss(ridge)

    def effective_dimension(self, ridge: Ridge = None) -> Tensor:  # noqa: D102
        return self.state.effective_dimension(ridge)

    @property
    def trace(self) -> Tensor:  # noqa: D102
        return self.state.trace

    @property
    def least_ridge(self) -> float:  # noqa: D102
        return self.state.least_ridge

    @property
    def residual_trace(self) -> Tensor:  # noqa: D102
        return self.state.residual_trace

    def residual_norm(self) -> Tensor:  # noqa: D102
        return self.state.residual_norm()

    @property
    def rounding(self) -> float:  # noqa: D102
        return self.state.rounding


def floored(variance: Tensor, prior: Tensor, ridge: float | Tensor, trace: float | Tensor) -> Tensor:
    """``variance``, lifted to the least value that it can have; only rounding is ever below it.

    K has no eigenvalue above its trace, so ``(K + ridge I)^-1`` leaves at least ``ridge / (ridge + Tr K)`` of the prior
    variance (Durand et al. 2018, Sec. 2).

    Args:
        variance: Computed variances [...].
        prior: ``k(x, x)``, [...].
        ridge: The ridge.
        trace: ``Tr K``, [].
    """
    return torch.maximum(variance, ridge / (ridge + trace) * prior.detach())


def warn_below_precision(ridge: float, state: Posterior) -> None:
    """Warn about a ridge at which rounding shows in the results of ``state``."""
    if ridge < state.least_ridge:
        warnings.warn(
            f"ridge = {ridge:.3g} is below {state.least_ridge:.3g}, the precision of the kernel in this dtype: bounds "
            "may be off by rounding. Use a larger ridge.",
            IllConditionedWarning,
            stacklevel=4,
        )
