"""The models: exact, sketched, with a moving ridge, and of any posterior."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any, Self

import torch
from botorch.models import SingleTaskGP
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import ChainedOutcomeTransform, OutcomeTransform
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from gpytorch.means import ConstantMean, ZeroMean
from gpytorch.mlls import AddedLossTerm
from linear_operator.operators import LowRankRootLinearOperator
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor

from kbo._base import checks
from kbo.confidence import NoiseLevel
from kbo.errors import InvalidInput
from kbo.kernels import freeze
from kbo.models.base import PosteriorModel
from kbo.models.offset import Offset
from kbo.models.streaming import StreamingGP
from kbo.regression import (
    MOST_ANCHORS,
    AdaptiveRidge,
    Candidate,
    Dictionary,
    GreedyDictionary,
    KernelRidge,
    NystromRidge,
    Posterior,
)
from kbo.regression.sketch.dictionary import Observed


class KernelRidgeGP(StreamingGP):
    """A Gaussian process with fixed kernel and noise variance, ready for ``optimize_acqf``.

    Nothing is fitted and targets are not rescaled unless an outcome transform is passed; bounds are stated in
    the units that the model sees. ``condition_on_observations`` with plain data costs O(n^2) per row and keeps
    no autograd graph; with batches, or with data that require gradients, it returns a differentiable fantasy.

    Args:
        train_X: Points [n d].
        train_Y: Targets [n 1].
        kernel: An unbatched GPyTorch kernel.
        ridge: The regulariser = noise variance of the GP reading, in (transformed) units.
        input_transform: Applied to training and test points.
        outcome_transform: Applied to targets, undone in ``posterior``.
        train_Yvar: Known noise variances [n 1] of the single targets, in their units; by default the ridge. The weight
            of an observation is ``ridge`` over its (transformed) variance, so the ``noise_std`` of a confidence is the
            level that goes with the variance ``ridge``.

    Raises:
        InvalidInput: Wrong shapes, values that are not finite, or a ridge or variance that is not positive.

    Example:
        >>> model = KernelRidgeGP(train_X, train_Y, MaternKernel(nu=2.5), ridge=0.01)
        >>> acqf = KernelUCB(model, SelfNormalized(noise_std=0.1, norm_bound=2.0, delta=0.1))
        >>> x, value = optimize_acqf(acqf, bounds, q=1, num_restarts=4, raw_samples=64)
    """

    @classmethod
    @torch.no_grad()
    def from_gp(cls, gp: SingleTaskGP) -> Self:
        """Return the model with the data, kernel, mean, noise and transforms of another, and so with its posterior.

        Nothing is proved about it, since these were fitted to the data. Known noise variances are kept; the ridge is
        then their mean.

        Args:
            gp: A fitted ``SingleTaskGP`` of one output, with constant mean and Gaussian noise.

        Raises:
            InvalidInput: Another kind of model, or one whose transforms have learned from other data than it has.
        """
        known = isinstance(gp, SingleTaskGP) and isinstance(
            gp.likelihood, FixedNoiseGaussianLikelihood
        )
        simple = isinstance(gp, SingleTaskGP) and (
            known or type(gp.likelihood) is GaussianLikelihood
        )
        if (
            not simple
            or gp.train_targets.ndim > 1
            or not isinstance(gp.mean_module, (ConstantMean, ZeroMean))
        ):
            raise InvalidInput(
                "gp must be a botorch SingleTaskGP with one output, a constant mean and Gaussian noise, got "
                f"{checks.shown(gp)}: take from other models what fits, as kernel, ridge and transforms."
            )
        fitted: Any = copy.deepcopy(gp).eval()
        P, y, noise = (
            fitted.train_inputs[0],
            fitted.train_targets.unsqueeze(-1),
            fitted.likelihood.noise,
        )
        parts: dict[str, Any] = {"offset": Offset(fitted.mean_module(P[:1]).squeeze())}
        Y, Yvar = y, noise.unsqueeze(-1) if known else None
        if hasattr(fitted, "outcome_transform"):
            parts = {"outcome": fitted.outcome_transform, **parts}
            Y, Yvar = fitted.outcome_transform.untransform(y, Yvar)
        options = {"input_transform": getattr(fitted, "input_transform", None), "train_Yvar": Yvar}
        X, ridge = fitted.train().train_inputs[0], float(noise.mean())
        model = cls(
            X,
            Y,
            fitted.covar_module,
            ridge,
            outcome_transform=ChainedOutcomeTransform(**parts),
            **options,
        )
        targets = y.squeeze(-1) - parts["offset"].offset
        if not (
            torch.allclose(model.train_inputs[0], P)
            and torch.allclose(model.train_targets, targets)
        ):
            raise InvalidInput(
                "the transforms of gp have learned from other data than it has: build it from all data."
            )
        model.add_caveat("kernel, ridge and transforms come from a model that was fitted to data")
        return model

    def forward(self, X: Tensor) -> MultivariateNormal:
        """Return the prior at X [... q d], transformed already unless the model is in training mode."""
        X = self.transform_inputs(X) if self.training else X
        return MultivariateNormal(X.new_zeros(X.shape[:-1]), self.covar_module(X))

    def _new_state(self) -> KernelRidge:
        return KernelRidge(self.covar_module, self.ridge.item())


_FEW = 100
"""Points up to which the default dictionary takes all that are not explained by the others to a fraction ``_FINE``."""

_FINE = 1e-7
"""Fraction of the prior variance, well above rounding."""

_SHARE = 0.1
"""Variance that later points of it may leave, in units of the noise."""


class _FewOrGreedy(GreedyDictionary):
    """As ``GreedyDictionary``, but nearly exact up to the first hundred points."""

    def accepts(self, point: Candidate, sketch: Observed) -> bool:
        if sketch.m < _FEW and point.residual > _FINE * point.prior:
            return self.has_capacity(sketch.m)
        return super().accepts(point, sketch)

    def allowed(self, sketch: Observed) -> Tensor:
        coarse = super().allowed(sketch)
        if sketch.m >= _FEW:
            return coarse
        return coarse.minimum(_FINE * sketch.rows.prior)

    def chosen(self, sketch: Observed) -> list[int]:
        chosen = self._pivots(sketch, super().allowed(sketch), self.most)
        if len(chosen) >= _FEW:
            return chosen
        fine = super().allowed(sketch).minimum(_FINE * sketch.rows.prior)
        return self._pivots(sketch, fine, _FEW)


class NystromGP(StreamingGP):
    """A Gaussian process in the features of a dictionary; the cost of a step does not grow with n.

    Martingale-mixture bounds on it are valid with every dictionary (``kbo.confidence.MartingaleMixture``), but only as
    tight as the dictionary is good: ``model.state.error.trace`` is the part of the kernel that it misses. Models
    that are conditioned on new data update the dictionary. Differentiable fantasies leave it as it is, and condition
    the DTC posterior as if it were a prior, which is not the DTC posterior of all data (law of total variance off by
    up to a tenth).

    A fit by ``ExactMarginalLogLikelihood`` maximises the marginal likelihood of the exact model over kernel and ridge
    while there are at most 500 observations and no dictionary is given. Otherwise it maximises the collapsed bound of
    Titsias (2009), which is at most that; the anchors stay until its end, and are then chosen again. A step costs
    O(n m^2) within ``gpytorch.settings.fast_computations(log_prob=True)``, which BoTorch turns off, otherwise O(n^3).

    Args:
        train_X, train_Y, kernel, ridge, input_transform, outcome_transform, train_Yvar: As for ``KernelRidgeGP``.
        dictionary: Chooses the points that span the sketch; given points are in the units of train_X. By default
            pivoted Cholesky takes the points that are explained least: until nothing is left, or if that takes more
            than 100 points until no point is left with more than a tenth of the noise variance, at most 500 in all.
            Data that come later, by conditioning, enter by the same rule, so a model that is conditioned may have
            other points than one that is built from all data; the law of what may be left is the same. Where 500 are
            not enough, ``state.approximations`` says so. Tight bounds on many observations need a smaller
            residual, for example ``GreedyDictionary(0.01 * noise_std**2 / norm_bound**2)``.

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
        self._given = dictionary
        self._new_state()  # a dictionary that cannot be used is an error now, not later

    def train(self, mode: bool = True) -> Self:
        """As in PyTorch; the anchors at the beginning of training stay until its end, for one objective of a fit."""
        if mode and not self.training:
            self._anchors: Any = self.state.anchors
        return super().train(mode)

    @property
    def _fits_exactly(self) -> bool:
        """Whether a fit is that of the exact model: with so few points it takes no longer, and needs no anchors."""
        return self._given is None and len(self.train_targets) <= MOST_ANCHORS

    def forward(self, X: Tensor) -> MultivariateNormal:
        """Return the prior at X [... q d] for a fit, in training mode: in the span of the anchors, if there are many.

        Raises:
            InvalidInput: The model is not in training mode.
        """
        if not self.training:
            raise InvalidInput(  # it would leave out the residual
                f"{type(self).__name__} has no leave-one-out formula: take a KernelRidgeGP, which has one."
            )
        P = self.transform_inputs(X)
        prior = (
            self.covar_module(P)
            if self._fits_exactly
            else LowRankRootLinearOperator(self._features(P))
        )
        return MultivariateNormal(X.new_zeros(X.shape[:-1]), prior)

    def added_loss_terms(self) -> Iterator[AddedLossTerm]:
        """Yield what a fit adds to the likelihood: ``-1/2 sum_i (K - Q)_ii / noise_i`` (Titsias 2009, Eq. 9)."""
        if self._fits_exactly:
            return
        X = self.transform_inputs(self.train_inputs[0])
        missed: Any = self.covar_module(X, diag=True) - self._features(X).square().sum(-1)
        yield _Term(-0.5 * (missed / self.likelihood.noise).sum())

    def _features(self, X: Tensor) -> Tensor:
        """Return ``k(X, Z) L^-T`` [... q m], Q being its square; jitter of ``K_ZZ = L L'`` leaves Q below K."""
        Z = self._anchors.to(X)
        L = psd_safe_cholesky(self.covar_module(Z).to_dense())
        return torch.linalg.solve_triangular(L, self.covar_module(Z, X).to_dense(), upper=False).mT

    @property
    def dictionary(self) -> Dictionary:
        """The dictionary that was given, or the default for the present kernel and ridge."""
        if self._given is not None:
            return self._given
        X = self.train_inputs[0]  # transformed already: the model is in evaluation mode
        prior = freeze(self.covar_module, X).diagonal(X)
        least = (
            0.1 * float(prior.max()) if len(X) else math.inf
        )  # there are anchors however large the noise is
        return _FewOrGreedy(_SHARE * min(self.ridge.item(), least), most=MOST_ANCHORS)

    def _new_state(self) -> NystromRidge:
        return NystromRidge(self.covar_module, self.ridge.item(), self.transformed(self.dictionary))


class _Term(AddedLossTerm):
    """A number [] that is added to a marginal likelihood."""

    def __init__(self, value: Tensor) -> None:
        self._value = value

    def loss(self, *params: Any) -> Tensor:
        return self._value


class AdaptiveRidgeGP(StreamingGP):
    """A Gaussian process with fixed kernel and a noise level that is bounded online.

    ``model.state.schedule`` has the bounds. The data enter in the order of train_X, and ridge and bounds are a function
    of data and order alone: a model that is conditioned on new data equals one that is built from all of them.
    Building costs what n updates cost, conditioning one.

    Args:
        train_X, train_Y, kernel, input_transform, outcome_transform: As for ``KernelRidgeGP``.
        noise_bounds: Bounds of the noise level before the data, in (transformed) units; a copy follows the data.
        dictionary: Chooses the points of a sketched posterior, as in ``NystromGP``; None for the exact one.

    Raises:
        InvalidInput: As ``KernelRidgeGP``; or the noise bounds have seen data.

    Example:
        >>> model = AdaptiveRidgeGP(train_X, train_Y, MaternKernel(nu=2.5), NoiseBounds(5.0, delta=0.1, upper=1.0))
        >>> acqf = KernelUCB(model, AdaptiveSelfNormalized())
        >>> x, value = optimize_acqf(acqf, bounds, q=1, num_restarts=4, raw_samples=64)
    """

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        kernel: Kernel,
        noise_bounds: NoiseLevel,
        dictionary: Dictionary | None = None,
        input_transform: InputTransform | None = None,
        outcome_transform: OutcomeTransform | None = None,
    ) -> None:
        checks.instance("noise_bounds", noise_bounds, NoiseLevel, ", for example NoiseBounds(...)")
        if noise_bounds.n:
            raise InvalidInput(
                f"noise_bounds have seen {noise_bounds.n} observations: pass new ones."
            )
        super().__init__(
            train_X, train_Y, kernel, noise_bounds.ridge, input_transform, outcome_transform
        )
        self.noise_bounds: NoiseLevel = noise_bounds.fork()
        self.dictionary = dictionary
        self._new_state()  # a dictionary that cannot be used is an error now, not later

    likelihood = PosteriorModel.likelihood  # the ridge follows the data

    def _new_state(self) -> AdaptiveRidge:
        kernel, ridge, dictionary = self.covar_module, self.noise_bounds.ridge, self.dictionary
        exact = dictionary is None
        state = (
            KernelRidge(kernel, ridge)
            if exact
            else NystromRidge(kernel, ridge, self.transformed(dictionary))
        )
        return AdaptiveRidge(state, self.noise_bounds)


class PriorKernel(Kernel):
    """The prior of a posterior, which is never updated, as a GPyTorch kernel."""

    def __init__(self, posterior: Posterior) -> None:
        super().__init__()
        self.posterior = posterior

    def __deepcopy__(self, memo: dict[int, Any]) -> PriorKernel:
        return self

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Prior covariance [... a b] of x1 [... a d] and x2 [... b d]."""
        return self.posterior.prior_variance(x1) if diag else self.posterior.prior(x1, x2)


class PosteriorGP(StreamingGP):
    """A BoTorch model of any posterior, ready for ``optimize_acqf``.

    Args:
        train_X, train_Y, input_transform, outcome_transform, train_Yvar: As for ``KernelRidgeGP``.
        posterior: The posterior without data, in (transformed) units; a copy follows the data.

    Raises:
        InvalidInput: As ``KernelRidgeGP``; or the posterior has data.

    Example:
        >>> model = PosteriorGP(train_X, train_Y, KernelRidge(MaternKernel(nu=2.5), ridge=0.01))
    """

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        posterior: Posterior,
        input_transform: InputTransform | None = None,
        outcome_transform: OutcomeTransform | None = None,
        train_Yvar: Tensor | None = None,
    ) -> None:
        if checks.instance("posterior", posterior, Posterior).n:
            raise InvalidInput(
                f"posterior has {posterior.n} observations already: pass an empty one, and the data."
            )
        if train_Yvar is not None and posterior.schedule is not None:
            raise InvalidInput(
                "train_Yvar are known noise variances, but the posterior's schedule follows unknown ones."
            )
        self._empty = posterior.fork()
        super().__init__(
            train_X,
            train_Y,
            PriorKernel(self._empty),
            posterior.ridge,
            input_transform,
            outcome_transform,
            train_Yvar,
        )

    def _new_state(self) -> Posterior:
        state = self._empty.fork()
        if self.ridge.item() != state.ridge:  # it was changed by hand
            state.move_ridge(self.ridge.item())
        return state
