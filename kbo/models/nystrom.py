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
"""Number of points up to which the default dictionary leaves only ``_FINE`` unexplained."""

_FINE = 1e-7
"""Fraction of the prior variance, well above rounding."""

_COARSE = 0.1
"""Variance that a dictionary of more points may leave unexplained, in units of the noise variance."""


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
    """A Gaussian process for many observations: a step costs the same however many there are.

    It is approximated by the features of inducing points, which a dictionary chooses.

    Martingale-mixture bounds on it are valid with every dictionary
    (``kbo.confidence.MartingaleMixture``), but only as tight as the dictionary is good:
    ``model.state.error.trace`` is the part of the kernel that it misses. Models that are
    conditioned on new data update the dictionary. Differentiable fantasies leave it as it is, and
    condition the DTC posterior as if it were a prior, which is not the DTC posterior of all data
    (law of total variance off by up to a tenth).

    A fit by ``ExactMarginalLogLikelihood`` maximises the marginal likelihood of the exact model
    over kernel and ridge while there are at most 500 observations and no dictionary is given.
    Otherwise it maximises the collapsed bound of Titsias (2009), which is at most that; the
    inducing points stay until its end, and are then chosen again. A step costs O(n m^2) within
    ``gpytorch.settings.fast_computations(log_prob=True)``, which BoTorch turns off, otherwise
    O(n^3).

    Args:
        train_X, train_Y, kernel, ridge: As for ``KernelRidgeGP``.
        dictionary: Chooses the points that span the sketch; given points are in the units of
            train_X. By default pivoted Cholesky takes the points that are explained least: until
            nothing is left, or if that takes more than 100 points until no point is left with more
            than a tenth of the noise variance, at most 500 in all. Data that come later, by
            conditioning, enter by the same rule, so a model that is conditioned may have other
            points than one that is built from all data; the law of what may be left is the same.
            Where 500 are not enough, ``state.dictionary.capped`` is true. Bounds are wider than
            those of ``KernelRidgeGP``: 2.5 against 1.6 for 2000 observations of three columns
            (CMM, Matern 5/2, lengthscale 0.5). ``GreedyDictionary(1e-4, most=1000)`` gives 1.9 at
            four times the cost of a step; tight bounds need about
            ``GreedyDictionary(0.01 * noise_std**2 / norm_bound**2)``.
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
        self.empty_state()  # a dictionary that cannot be used is an error now, not later

    @property
    def dictionary(self) -> Dictionary:
        """The dictionary that was given, or the default for the present kernel and ridge."""
        if self._given_dictionary is not None:
            return self._given_dictionary
        X = self.train_inputs[0]  # transformed already: the model is in evaluation mode
        largest = math.inf
        if len(X):  # however large the noise is, something is in the dictionary
            largest = 0.1 * float(freeze(self.covar_module, X).diagonal(X).max())
        return DefaultDictionary(_COARSE * min(self.ridge.item(), largest), most=MOST_ANCHORS)

    def empty_state(self) -> NystromRidge:
        return NystromRidge(self.covar_module, self.ridge.item(), self.transformed(self.dictionary))

    # Fits

    @property
    def _fits_exactly(self) -> bool:
        """Whether a fit is that of the exact model, which takes no longer with so few points."""
        return self._given_dictionary is None and len(self.train_targets) <= MOST_ANCHORS

    def train(self, mode: bool = True) -> Self:
        """Set the mode as in PyTorch. Inducing points stay during training: one objective a fit."""
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
        """Return ``k(X, Z) L^-T`` [... q m], with ``K_ZZ = L L'`` and Q their Gram matrix.

        Jitter of L leaves Q below K.
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
