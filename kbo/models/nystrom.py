"""The BoTorch model of a sketched posterior, its default dictionary, and its fit by a collapsed bound."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Self

import torch
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.mlls import AddedLossTerm
from linear_operator.operators import LowRankRootLinearOperator
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor

from kbo.errors import InvalidInput
from kbo.kernels import freeze
from kbo.models.streaming import StreamingGP
from kbo.regression import MOST_ANCHORS, Candidate, Dictionary, GreedyDictionary, NystromRidge
from kbo.regression.sketch.dictionary import Observed

_N_FINE = 100
"""Number of points up to which the default dictionary allows residuals of ``_FINE`` only."""

_FINE = 1e-7
"""Fraction of the prior variance, well above rounding."""

_COARSE = 0.1
"""Residual that a dictionary of more points may leave, in units of the noise variance."""


class DefaultDictionary(GreedyDictionary):
    """A ``GreedyDictionary`` that is nearly exact up to its first hundred points."""

    def accepts(self, point: Candidate, sketch: Observed) -> bool:
        if sketch.m < _N_FINE and point.residual > _FINE * point.prior:
            return self.has_capacity(sketch.m)
        return super().accepts(point, sketch)

    def allowed(self, sketch: Observed) -> Tensor:
        coarse = super().allowed(sketch)
        if sketch.m >= _N_FINE:
            return coarse
        return coarse.minimum(_FINE * sketch.rows.prior)

    def chosen(self, sketch: Observed) -> list[int]:
        coarse = super().allowed(sketch)
        rows = self._pivots(sketch, coarse, self.most)
        if len(rows) >= _N_FINE:
            return rows
        return self._pivots(sketch, coarse.minimum(_FINE * sketch.rows.prior), _N_FINE)


class NystromGP(StreamingGP):
    """A Gaussian process for many observations: the cost of a step does not grow with them.

    It is approximated by the features of inducing points, which a dictionary chooses.

    Martingale-mixture bounds (``kbo.confidence.MartingaleMixture``) on it are valid with every
    dictionary, but wide with a bad one: ``model.state.error.trace`` is the part of the kernel that
    the dictionary misses. Conditioning on new data updates the dictionary. Differentiable fantasies
    do not: they condition the DTC posterior as if it were a prior. The result differs from the DTC
    posterior of all data (by up to a tenth in the law of total variance).

    With at most 500 observations and no given dictionary, a fit by ``ExactMarginalLogLikelihood``
    maximises the marginal likelihood of the exact model over kernel and ridge. Otherwise it
    maximises its lower bound, the collapsed bound of Titsias (2009). The inducing points are fixed
    during the fit and then chosen again. A step of the fit costs O(n m^2) within
    ``gpytorch.settings.fast_computations(log_prob=True)``, which BoTorch turns off, otherwise
    O(n^3).

    Args:
        train_X, train_Y, kernel, ridge: As for ``KernelRidgeGP``.
        dictionary: Chooses the inducing points; given points are in the units of train_X. By
            default pivoted Cholesky takes the points with the largest residual, until every residual
            is at most a tenth of the noise variance, but at most 500. It takes 100 points in any
            case, unless residuals are below 1e-7 of the prior variance earlier. Data that come
            later, by conditioning, enter by the same rule; so a conditioned model may have other
            inducing points than one that is built from all data. If 500 points are not enough,
            ``state.dictionary.capped`` is true. Bounds are wider than those of ``KernelRidgeGP``:
            2.5 against 1.6 for 2000 observations of three columns (CMM, Matern 5/2, lengthscale
            0.5). ``GreedyDictionary(1e-4, most=1000)`` gives 1.9 at four times the cost of a step.
            Tight bounds need about ``GreedyDictionary(0.01 * noise_std**2 / norm_bound**2)``.
        input_transform, outcome_transform, train_Yvar: As for ``KernelRidgeGP``.

    Raises:
        InvalidInput: As ``KernelRidgeGP``; or the dictionary does not fit the data.

    Example:
        >>> dictionary = FixedDictionary.pivoted(kernel, train_X, m=200)
        >>> model = NystromGP(train_X, train_Y, kernel, ridge=0.01, dictionary=dictionary)
        >>> acqf = CMMUCB(model, noise_std=0.1, norm_bound=10.0, delta=0.05)
    """

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        kernel: Kernel,
        ridge: float,
        dictionary: Dictionary | None = None,
        input_transform: InputTransform | None = None,
        outcome_transform: OutcomeTransform | None = None,
        train_Yvar: Tensor | None = None,
    ) -> None:
        super().__init__(
            train_X, train_Y, kernel, ridge, input_transform, outcome_transform, train_Yvar
        )
        self._given_dictionary = dictionary
        self.empty_state()  # raises an error now, not later, if the dictionary cannot be used

    @property
    def dictionary(self) -> Dictionary:
        """The given dictionary, or the default one for the present kernel and ridge."""
        if self._given_dictionary is not None:
            return self._given_dictionary
        X = self.train_inputs[0]  # transformed already: the model is in evaluation mode
        largest = math.inf
        if len(X):  # at least one point, however large the noise is
            largest = 0.1 * float(freeze(self.covar_module, X).diagonal(X).max())
        return DefaultDictionary(_COARSE * min(self.ridge.item(), largest), most=MOST_ANCHORS)

    def empty_state(self) -> NystromRidge:
        return NystromRidge(self.covar_module, self.ridge.item(), self.transformed(self.dictionary))

    # Fits

    @property
    def _fits_exactly(self) -> bool:
        """Whether a fit uses the exact model, which is as fast for so few points."""
        return self._given_dictionary is None and len(self.train_targets) <= MOST_ANCHORS

    def train(self, mode: bool = True) -> Self:
        """Set the mode as in PyTorch. Inducing points are fixed in training, for a fixed objective."""
        if mode and not self.training:
            self._inducing_points: Any = self.state.anchors
        return super().train(mode)

    def forward(self, X: Tensor) -> MultivariateNormal:
        """Return the prior of a fit at X [... q d], in training mode.

        Raises:
            InvalidInput: The model is not in training mode.
        """
        if not self.training:  # a leave-one-out formula would miss the residual of the sketch
            raise InvalidInput(
                f"{type(self).__name__} has no leave-one-out formula: take a KernelRidgeGP, which "
                "has one."
            )
        P = self.transform_inputs(X)
        mean = X.new_zeros(X.shape[:-1])
        if self._fits_exactly:
            return MultivariateNormal(mean, self.covar_module(P))
        return MultivariateNormal(mean, LowRankRootLinearOperator(self._features(P)))

    def added_loss_terms(self) -> Iterator[AddedLossTerm]:
        """Yield ``-1/2 sum_i (K - Q)_ii / noise_i``, added to the likelihood (Titsias 2009, Eq. 9)."""
        if self._fits_exactly:
            return
        X = self.transform_inputs(self.train_inputs[0])
        prior: Any = self.covar_module(X, diag=True)
        missed = prior - self._features(X).square().sum(-1)
        yield TraceTerm(-0.5 * (missed / self.likelihood.noise).sum())

    def _features(self, X: Tensor) -> Tensor:
        """Return the features ``k(X, Z) L^-T`` [... q m], with ``K_ZZ = L L'``.

        Q is their Gram matrix. Jitter in L keeps Q below K.
        """
        Z = self._inducing_points.to(X)
        L = psd_safe_cholesky(self.covar_module(Z).to_dense())
        K_ZX = self.covar_module(Z, X).to_dense()
        return torch.linalg.solve_triangular(L, K_ZX, upper=False).mT


class TraceTerm(AddedLossTerm):
    """A number [] that GPyTorch adds to a marginal likelihood."""

    def __init__(self, value: Tensor) -> None:
        self._value = value

    def loss(self, *params: Any) -> Tensor:
        """Return the number."""
        return self._value
