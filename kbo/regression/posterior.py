"""The interface of a posterior: everything that confidences, views, models and acquisition functions read.

A new posterior subclasses ``Posterior`` and ``PosteriorAt``; tests/third_party_posterior.py is one in full,
docs/extending.md explains it, and ``tests/laws`` states what both must obey. Notation: K is the kernel matrix of the n
observations, y their targets, E = K - K~ the error of an approximate kernel matrix K~ (zero for exact posteriors).
Observations of weights w count as ``sqrt(w) k(x, .)`` and ``sqrt(w) y`` in all of them: K, E and y stand for
``W^1/2 K W^1/2``, ``W^1/2 E W^1/2`` and ``W^1/2 y``, and residuals are weighted (docs/theory/weights.md).

On paper                                            | in code
``mean(x) = k(x)'(K + ridge I)^-1 y``               | ``predict(X)[0]``
``k(x, x) - k(x)'(K + ridge I)^-1 k(x)``            | ``predict(X)[1]``; ``covariance(X, Z)``
``ln det(I + K / ridge)``                           | ``log_det()``, twice the information gain
``y'(I + K / ridge)^-1 y``                          | ``quad()``
``|y - mean(X)|^2``                                 | ``at().rss()``
``Tr K (K + ridge I)^-1``                           | ``effective_dimension()``
``Tr E``, a bound of the operator norm of E         | ``error.trace``, ``error.norm()``
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any, Self

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from kbo._base import checks
from kbo._base.stateful import Stateful, fresh_version
from kbo.errors import InvalidInput
from kbo.regression.all_ridges import AllRidges
from kbo.regression.numerics import as_ridges, joint_draws
from kbo.regression.provenance import Error, Provenance, some
from kbo.regression.sampling import Function, PriorPath, draw_prior

Ridge = float | Tensor | Sequence[float] | None

_MOST_ANSWERS = 8
"""Ridges whose answers are remembered until the state changes."""

MOST_JOINT = 2048
"""Points whose joint covariance is decomposed or remembered."""


class RidgeSchedule(Stateful, ABC):
    """Rule that moves the ridge of a posterior as data come in; see ``views/adaptive_ridge.py``.

    Attributes:
        ridge: The ridge after the data seen so far.
        n: Observations seen so far.
    """

    ridge: float
    n: int = 0

    @abstractmethod
    def update(self, state: Posterior) -> None:
        """Take in what ``state`` has learned since the last update."""


class PosteriorAt(ABC):
    """A posterior at one ridge, valid until the posterior changes.

    Methods that take points begin with ``self.state.check(X)``. ``predict`` and ``covariance`` have gradients in X.

    Args:
        state: The posterior.
        ridge: The ridge.
    """

    def __init__(self, state: Posterior, ridge: float) -> None:
        self.state = state
        self.ridge = ridge

    @abstractmethod
    def predict(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean [...] and variance [...] of the function, without noise, at points X [... d]."""

    @abstractmethod
    def covariance(self, X: Tensor, Z: Tensor) -> Tensor:
        """Return the posterior covariance [... a b] of X [... a d] and Z [... b d] (equal batch shapes)."""

    @abstractmethod
    def log_det(self) -> Tensor:
        """Return ``ln det(I + K / ridge)``, []."""

    @abstractmethod
    def quad(self) -> Tensor:
        """Return ``y'(I + K / ridge)^-1 y``, [], in squared units of y."""

    @abstractmethod
    def rss(self) -> Tensor:
        """Return ``|y - mean(X)|^2``, [], the residual sum of squares of the fit, in squared units of y."""

    @abstractmethod
    def effective_dimension(self) -> Tensor:
        """Return ``Tr K (K + ridge I)^-1``, [], the sum of the training leverages."""

    def factored(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the mean [... q] at X [... q d], and U, V [... r q] with ``covariance = prior - U'V`` among X.

        By default r = q and V is the identity; a posterior of low rank overrides it.
        """
        explained = self.state.prior(X, X) - self.covariance(X, X)
        identity = torch.eye(X.shape[-2], dtype=X.dtype, device=X.device)
        return self.predict(X)[0], explained, identity.expand(explained.shape)

    def draw(self, X: Tensor, count: int = 1, generator: torch.Generator | None = None) -> Tensor:
        """Return joint draws [count N] of the function at X [N d] from its Gaussian posterior, less its mean.

        Sketched posteriors take any N, in O(N m^2 + count N m); others up to ``MOST_JOINT`` points jointly, in O(N^3),
        and more of them as functions. No N x N matrix is formed for more points than that.

        Args:
            X: Points [N d].
            count: Number of independent draws.
            generator: Source of randomness, on the CPU; None for torch's global one.

        Raises:
            InvalidInput: X or count cannot be used, or there are too many points for such a posterior.
        """
        count = checks.whole("count", count, 1)
        self.state.check(X)
        checks.points("X", X)  # a draw over a finite set decides which point is taken
        if X.ndim != 2 or not len(X):
            raise InvalidInput(
                f"X must be a tensor of shape [N d] with at least one row, got {tuple(X.shape)}."
            )
        with torch.no_grad():
            return self._draw(X, count, checks.generator(generator))

    def _draw(self, X: Tensor, count: int, generator: torch.Generator | None) -> Tensor:
        """By the eigenvalues of the covariance; those that rounding makes negative count as zero."""
        if len(X) > MOST_JOINT:
            return torch.stack([self.draw_function(X, generator)(X) for _ in range(count)])
        return joint_draws(self.covariance(X, X), count, generator)

    def draw_function(self, like: Tensor, generator: torch.Generator | None = None) -> Function:
        """Return a draw of the function less its mean, [... d] -> [...], to be evaluated and differentiated anywhere.

        Args:
            like: Any points [... d] of the dtype, device and columns of those to come.
            generator: Source of randomness, on the CPU; None for torch's global one.

        Raises:
            InvalidInput: The kernel has no random features, or this posterior draws no functions.
        """
        self.state.check(like, "like")
        return self._draw_function(like, checks.generator(generator))

    def _draw_function(self, like: Tensor, generator: torch.Generator | None) -> Function:
        raise InvalidInput(
            f"a {type(self.state).__name__} draws no functions: draw over a finite set of at most {MOST_JOINT} points, "
            f"or define _draw_function in {type(self).__name__}."
        )


class LowRankPosteriorAt(PosteriorAt):
    """PosteriorAt whose covariance is the prior less a product of factors: ``covariance = prior - U'V``.

    A subclass defines ``factored``, which checks its points, and the other methods but ``covariance``.
    """

    @abstractmethod
    def factored(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor]: ...

    def covariance(self, X: Tensor, Z: Tensor) -> Tensor:
        self.state.check(Z, "Z")
        if Z is not X:
            self.state.check(X)
        _, U, V = self.factored(X)
        return self.state.prior(X, Z) - U.mT @ (V if Z is X else self.factored(Z)[2])


class PriorAt(LowRankPosteriorAt):
    """Answers without data."""

    def predict(self, X: Tensor) -> tuple[Tensor, Tensor]:
        self.state.check(X)
        prior = self.state.prior_variance(X)
        return torch.zeros_like(prior), prior

    def factored(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        self.state.check(X)
        none = X.new_zeros(*X.shape[:-2], 0, X.shape[-2])
        return X.new_zeros(X.shape[:-1]), none, none

    def log_det(self) -> Tensor:
        return self.state.like.new_zeros((), dtype=torch.float64)

    quad = log_det
    rss = log_det
    effective_dimension = log_det

    def _draw_function(self, like: Tensor, generator: torch.Generator | None) -> Function:
        return PriorPath(self.state.draw_prior(like, generator))


class Followed(Stateful):
    """Answers for a fixed set of points that follow a posterior as it learns; by default computed each time.

    Args:
        state: The posterior.
        points: The points [A d]; never written to.
    """

    def __init__(self, state: Posterior, points: Tensor) -> None:
        self.state = state
        self.points = points

    def predict(self, ridge: float) -> tuple[Tensor, Tensor]:
        """Return mean and variance [A] at one ridge."""
        return self.state.at(ridge).predict(self.points)

    def covariance(self, ridge: float) -> Tensor:
        """Return the joint covariance [A A] at one ridge."""
        return self.state.at(ridge).covariance(self.points, self.points)

    def across(self) -> AllRidges:
        """Return the points, as A groups of one, at any ridge."""
        return self.state.across(self.points.unsqueeze(-2))

    def draw(self, ridge: float, count: int, generator: torch.Generator | None) -> Tensor:
        """Return joint draws [count A] less their mean; see ``PosteriorAt.draw``."""
        if len(self.points) > MOST_JOINT:
            return self.state.at(ridge).draw(self.points, count, generator)
        return joint_draws(self.covariance(ridge), count, generator)


class Posterior(Stateful, ABC):
    """A kernel ridge regression of everything observed so far.

    A subclass defines ``n``, ``trace``, ``prior``, ``prior_variance``, ``update`` and ``answer``, sets ``like`` with
    the first data, calls ``changed`` at the end of every change, and lists in ``saved`` what a state dict holds. It
    copies what it keeps of kernel and data, and writes no tensor in place, because forks share them. Points are the
    rows of X, of any batch shape. A ``ridge`` argument is None for the state's own ridge, a number, or a tensor or list
    [r], which gives every result a leading axis r, also if r is 1; each of them is answered by ``at``. Many ridges are
    cheaper by ``across()``.

    Args:
        ridge: The regulariser, in units of the kernel; the noise variance in the GP reading.

    Raises:
        InvalidInput: The ridge is not a finite number above zero.

    Attributes:
        batch_shape: Batch shape of the data; empty unless they include batches of hypothetical observations. Mean and
            variance at X [... q d] have the batch shape to which that of X and this one broadcast.
        like: An empty tensor [0 d] on the device and in the dtype of the data; d = 0 while they are unknown.
        kernel: The GPyTorch kernel of the prior; None if there is none.
        anchors: The points [m d] that span an approximate posterior; None if it is exact.
        needs_refresh: Whether a frozen fork has taken in so much that its anchors should be chosen again.
        schedule: The rule that moves the ridge as data come in; None if it stays.
        provenance: What was given up of the assumptions of theorems.
    """

    batch_shape: torch.Size = torch.Size()
    like: Tensor = torch.empty(0, 0, dtype=torch.float64, device="cpu")
    kernel: Kernel | None = None
    provenance: Provenance = Provenance()
    anchors: Tensor | None = None
    needs_refresh: bool = False
    schedule: RidgeSchedule | None = None

    def __init__(self, ridge: float) -> None:
        self._ridge: float = checks.positive("ridge", ridge)
        self.changed()

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_answers": {}}

    # What every posterior defines

    @property
    @abstractmethod
    def n(self) -> int:
        """Number of observations, repeats included."""

    @abstractmethod
    def prior(self, X: Tensor, Z: Tensor) -> Tensor:
        """Return the kernel ``k(X, Z)`` [... a b] itself, for X [... a d] and Z [... b d]."""

    @abstractmethod
    def prior_variance(self, X: Tensor) -> Tensor:
        """Return ``k(x, x)`` [...] for X [... d]."""

    @abstractmethod
    def update(self, X: Tensor, y: Tensor, weights: Tensor | None = None) -> None:
        """Add observations X [r d], y [r] in place.

        Args:
            X: Points [r d].
            y: Targets [r].
            weights: Weights [r] above 0; ones if omitted. Where ``ridge`` is the noise variance, or ``noise_std`` the
                level that a confidence assumes, weight w stands for an observation of variance ``ridge / w``, of level
                ``noise_std / sqrt(w)``. A posterior that takes none leaves the argument out.

        Raises:
            InvalidInput: Wrong shape, dtype or device, or values that are not finite, or weights that are not above 0;
                nothing is added.
        """

    @abstractmethod
    def _at(self, ridge: float) -> PosteriorAt:
        """Return the answers at a ridge, given that there are data; ``at`` remembers them."""

    @property
    @abstractmethod
    def trace(self) -> float:
        """``Tr K``, the sum of ``w k(x, x)`` over the observations."""

    # What a posterior may define better

    def across(self, X: Tensor | None = None) -> AllRidges:
        """Return the answers at any ridges, and the moments of groups of points X [... g d] there."""
        return AllRidges(self, X)

    def follow(self, points: Tensor) -> Followed:
        """Return answers for the fixed points [A d] that follow this state; ``views.Tracked`` reads them."""
        return Followed(self, points)

    def draw_prior(self, like: Tensor, generator: torch.Generator | None = None) -> Function:
        """Return a draw of the function from the prior, [N d] -> [N]; arguments as ``PosteriorAt.draw_function``."""
        if self.kernel is None:
            raise InvalidInput(
                f"a {type(self).__name__} draws no functions: draw over a finite set of at most {MOST_JOINT} points, "
                "or define draw_prior."
            )
        return draw_prior(self.kernel, like, generator)

    def fork_frozen(self) -> Posterior:
        """Return a fork for hypothetical observations: its ridge and its anchors stay as they are."""
        return self.fork()

    @property
    def error(self) -> Error:
        """Bounds of the errors that an approximation of the kernel matrix and rounding cause in the answers."""
        return Error(self)

    @property
    def locations(self) -> tuple[Tensor, Tensor] | None:
        """Observed locations [m d] and the weights of each row's observations together [m]; None if not kept."""
        return None

    @property
    def observed(self) -> Posterior:
        """The posterior of the observed data alone, without hypothetical ones."""
        return self

    # Written once

    def at(self, ridge: float | None = None) -> PosteriorAt:
        """Return the answers at one ridge; None for the state's own."""
        ridge = self._ridge if ridge is None else checks.positive("ridge", ridge)
        found = self._answers.get(ridge)
        if found is None:
            found = self._answers[ridge] = self._new_at(ridge)
            if len(self._answers) > _MOST_ANSWERS:
                del self._answers[next(iter(self._answers))]
        return found

    def _new_at(self, ridge: float) -> PosteriorAt:
        return self._at(ridge) if self.n else PriorAt(self, ridge)

    @property
    def ridge(self) -> float:
        """The regulariser; ``move_ridge`` replaces it."""
        return self._ridge

    @ridge.setter
    def ridge(self, ridge: float) -> None:
        raise InvalidInput(
            f"ridge of a {type(self).__name__} is read-only: use move_ridge({ridge!r:.30})."
        )

    @property
    def version(self) -> int:
        """A number that every change of the answers replaces; equal versions give equal answers."""
        return self._version

    def changed(self) -> None:
        """Give the state a new version."""
        self._version, self._answers = fresh_version(), {}

    def _fork_with(self, memo: dict[int, Any]) -> Self:
        fork = super()._fork_with(memo)
        fork._answers = {}  # these are about the original
        return fork

    def _restored(self) -> None:
        self.changed()

    def note(self, *caveats: str, **changes: Any) -> None:
        """Change entries of ``provenance``, and add reasons why no theorem covers bounds on these data, also of forks.

        Caveats are for what only the caller knows, for example that a kernel was changed after the data had come.

        Args:
            *caveats: The reasons, in words.
            **changes: Entries of ``Provenance``, for example ``unit_variance=0.01``.
        """
        reasons = [checks.text("a caveat", reason) for reason in caveats]
        self.provenance = replace(
            self.provenance, caveats=(*self.provenance.caveats, *reasons), **changes
        )

    def state_dict(self) -> dict[str, Any]:
        """Return plain values and tensors, from which ``load_state_dict`` continues exactly.

        Beside what is ``saved`` they are the assumptions of bounds on the data: ridge, provenance and kernel. Of the
        kernel these are its classes, its numbers, and its values among a few of the state's own points.
        """
        assumed = {
            "ridge": self.ridge,
            "provenance": asdict(self.provenance),
            **self._assumed_kernel(),
        }
        return {**super().state_dict(), "assumed": assumed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Replace the memory by that of ``state_dict``, for an equally constructed state.

        One caveat more if the data came under another kernel, or if loading fails on the way.

        Raises:
            InvalidInput: The state is of another class, or of an object that was constructed otherwise.
        """
        self._check_state(state, "assumed")
        self.note("a saved state was loaded in part")
        self.changed()
        self._ridge = state["assumed"]["ridge"]
        self._load(state)
        self.provenance = Provenance(**state["assumed"]["provenance"])
        own, saved = self._assumed_kernel(), state["assumed"]
        same = own["classes"] == saved["classes"] and all(
            map(_equal, own["numbers"], saved["numbers"])
        )
        if self.n and not same:
            self.note("the data were saved under another kernel")
        self._restored()

    def _assumed_kernel(self) -> dict[str, Any]:
        kernel, sets = self.kernel, [self.anchors, (self.locations or (None,))[0]] if self.n else []
        points = [some(part) for part in sets if part is not None and len(part)]
        numbers = [] if kernel is None else [*kernel.parameters(), *kernel.buffers()]
        if points:
            numbers = [*numbers, self.prior(torch.cat(points), torch.cat(points))]
        return {
            "classes": []
            if kernel is None
            else [type(part).__qualname__ for part in kernel.modules()],
            "numbers": [number.detach().clone() for number in numbers] if self.n else [],
        }

    def check(self, X: Tensor, name: str = "X") -> None:
        """Raise InvalidInput unless X [... d] fits the data in dtype, device and columns; NaN in gives NaN out."""
        checks.shaped(name, X, *self._known)

    def check_data(self, X: Tensor, y: Tensor, weights: Tensor | None = None) -> checks.OnHost:
        """Return observations as plain numbers if they fit the data so far; for ``update``, whose errors it raises."""
        return checks.observations(X, y, *self._known, weights=weights)

    @property
    def _known(self) -> tuple[Tensor | None, int | None]:
        """The data to which others must fit, and their columns; None as long as they are unknown."""
        d = self.like.shape[-1]
        return (self.like, d) if d else (None, None)

    def move_ridge(self, ridge: float) -> None:
        """Replace the state's own ridge, a finite number above zero."""
        self._ridge = checks.positive("ridge", ridge)
        if self.n:
            self.note(ridge_moved=True)
        self.changed()

    def predict(self, X: Tensor, ridge: Ridge = None) -> tuple[Tensor, Tensor]:
        """Return mean and variance of the function (without observation noise), in units of y and of the kernel.

        Args:
            X: Points [... d].
            ridge: None, a number, or r numbers.

        Returns:
            Mean [...] and variance [...]; with a leading r if r ridges were given.
        """
        if _is_single(ridge):
            return self.at(ridge).predict(X)  # pyright: ignore[reportArgumentType]
        mean, variance = zip(
            *(self.at(value).predict(X) for value in as_ridges(ridge)), strict=True
        )
        return torch.stack(mean), torch.stack(variance)

    def covariance(self, X: Tensor, Z: Tensor, ridge: Ridge = None) -> Tensor:
        """Return the posterior covariance [... a b] or [r ... a b] of X [... a d] and Z [... b d]."""
        return self._each(ridge, lambda answers: answers.covariance(X, Z))

    def log_det(self, ridge: Ridge = None) -> Tensor:
        """Return ``ln det(I + K / ridge)``, twice the information gain; [] or [r]."""
        return self._each(ridge, lambda answers: answers.log_det())

    def quad(self, ridge: Ridge = None) -> Tensor:
        """Return ``y'(I + K / ridge)^-1 y``, in squared units of y; [] or [r]."""
        return self._each(ridge, lambda answers: answers.quad())

    def effective_dimension(self, ridge: Ridge = None) -> Tensor:
        """Return ``Tr K (K + ridge I)^-1``, the sum of the training leverages ``variance / ridge``; [] or [r]."""
        return self._each(ridge, lambda answers: answers.effective_dimension())

    def _each(self, ridge: Ridge, value: Callable[[PosteriorAt], Tensor]) -> Tensor:
        if _is_single(ridge):
            return value(self.at(ridge))  # pyright: ignore[reportArgumentType]
        return torch.stack([value(self.at(number)) for number in as_ridges(ridge)])


def _equal(a: Tensor, b: Tensor) -> bool:
    """Return whether two tensors agree up to rounding, which differs between machines."""
    if a.shape != b.shape:
        return False
    tolerance = 1e4 * torch.finfo(a.dtype).eps * float(a.abs().max()) if a.numel() else 0.0
    return bool(torch.allclose(a, b.to(a), rtol=0.0, atol=tolerance))


def _is_single(ridge: Ridge) -> bool:
    several = isinstance(ridge, Sequence) and not isinstance(ridge, (str, bytes))
    return not (several or (isinstance(ridge, (Tensor, np.ndarray)) and ridge.ndim))
