"""Upper confidence bounds as BoTorch acquisition functions, for any bound and any model of kbo."""

from __future__ import annotations

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.utils.transforms import t_batch_mode_transform
from torch import Tensor

from kbo._base import checks
from kbo._base.linalg import safe_sqrt
from kbo.acquisition.base import ConfidenceAcquisition, check_model
from kbo.acquisition.input_constructors import register
from kbo.confidence import Chaining, MartingaleMixture
from kbo.confidence.confidence_set import Scale
from kbo.models.base import PosteriorModel
from kbo.regression import Hypothetical, Posterior


@register
class KernelUCB(ConfidenceAcquisition):
    """The upper confidence bound as an acquisition function, for any confidence and model of kbo.

    Bounds are in the units of the model's (transformed) targets. Pending points are hallucinated:
    the variance is conditioned on them, while mean and width stay those of the data (GP-BUCB,
    Desautels, Krause & Burdick 2014). The value of a batch of q > 1 points is the mean of their
    bounds, each with the points before it hallucinated. So joint and sequential optimisation of a
    batch agree. The guarantee for a single point stays the same. While the bounds are infinite
    (unknown noise, few observations; ``confidence.finite_on(model.state)`` is False), the value is
    the standard deviation.

    Args:
        model: A model of kbo.
        confidence: The bound.
        posterior_transform: None, or a ``ScalarizedPosteriorTransform`` with one weight: with
            weight -1 the value is the upper bound of ``-f``, so f is minimised.
        X_pending: Points [p d] that are being evaluated.

    Raises:
        InvalidInput: The model, the confidence or the posterior transform is of another kind.
    """

    @t_batch_mode_transform(assert_output_shape=False)  # pyright: ignore[reportArgumentType]
    def forward(self, X: Tensor) -> Tensor:
        """Return the values [b] of the batches X [b q d]."""
        state, P = self.model.state_and_points(X)
        return self.bounds(state, P).mean(-1)

    def bounds(self, view: Posterior, X: Tensor) -> Tensor:
        """Return the bound [b q] at each point of X [b q d], given after the input transform."""
        view = self.with_pending(view)
        values = [self._bound(view, X[..., :1, :])]
        for j in range(1, X.shape[-2]):
            with checks.inside("X"):
                after_others = Hypothetical(view, X[..., :j, :])
            values.append(self._bound(after_others, X[..., j : j + 1, :]))
        return self.differentiable(torch.cat(values, -1), X)

    def with_pending(self, state: Posterior) -> Posterior:
        """Return the posterior with the pending points, if any, hallucinated."""
        if self.X_pending is None:
            return state
        with checks.inside("X_pending"):
            return Hypothetical(state, self.model.transform_inputs(self.X_pending))

    def _bound(self, view: Posterior, X: Tensor) -> Tensor:
        """Return the upper bound of ``weight f + offset``; while it is infinite, the standard deviation."""
        if not self.confidence.finite_on(view):
            return safe_sqrt(view.predict(X)[1])
        if self.weight >= 0:
            bound = self.confidence.upper(view, X)
        else:
            bound = self.confidence.lower(view, X)
        return self.weight * bound + self.offset


@register
class AMMUCB(KernelUCB):
    """``KernelUCB`` with the mixture bound at one ridge, the quickest one: AMM-UCB.

    Flynn & Reeb (2024), ``MartingaleMixture(kind="amm")``.

    Args:
        model: A model of kbo.
        noise_std: Sub-Gaussian constant of the noise, in units of the model's (transformed)
            targets.
        norm_bound: Bound of the RKHS norm of the function, in units of these targets over
            sqrt(kernel).
        delta: Probability that the bounds may fail.
        scale: Covariance scale of the mixture, or several that are averaged, such as
            ``kbo.confidence.MIXED_SCALES``.
        posterior_transform, X_pending: As in ``KernelUCB``.

    Raises:
        InvalidInput: As ``KernelUCB``, or a number out of its range.
    """

    kind = "amm"

    def __init__(
        self,
        model: PosteriorModel,
        noise_std: float,
        norm_bound: float,
        delta: float,
        scale: Scale = 1.0,
        posterior_transform: PosteriorTransform | None = None,
        X_pending: Tensor | None = None,
    ) -> None:
        confidence = MartingaleMixture(noise_std, norm_bound, delta, kind=self.kind, scale=scale)
        super().__init__(model, confidence, posterior_transform, X_pending)


@register
class DMMUCB(AMMUCB):
    """``KernelUCB`` with the mixture bound at the best of some ridges: DMM-UCB.

    Flynn & Reeb (2024), ``MartingaleMixture(kind="dmm")``. The gradient is taken at the minimising
    ridge (envelope theorem).

    Args:
        model, noise_std, norm_bound, delta, scale, posterior_transform, X_pending: As ``AMMUCB``.

    Raises:
        InvalidInput: As ``AMMUCB``.
    """

    kind = "dmm"


@register
class CMMUCB(AMMUCB):
    """``KernelUCB`` with the mixture bound at the best of all ridges, the tightest one: CMM-UCB.

    Flynn & Reeb (2024), ``MartingaleMixture(kind="cmm")``, the exact maximum over the confidence
    set. The gradient is taken at the minimising ridge (envelope theorem). On an exact model the
    first value after new data takes an eigendecomposition, O(n^3) operations (seconds for 2000
    observations), and each later value O(n^2). For thousands of observations use a ``NystromGP``,
    or ``AMMUCB`` at one ridge.

    Args:
        model, noise_std, norm_bound, delta, scale, posterior_transform, X_pending: As ``AMMUCB``.

    Raises:
        InvalidInput: As ``AMMUCB``.
    """

    kind = "cmm"


@register
class ChainingUCB(KernelUCB):
    """``KernelUCB`` over a finite set, with narrower bounds the more similar its points are.

    Chaining-UCB of Contal, Malherbe & Vayatis (2015). The covers of the set are computed with the
    first values. Pass the acquisition function of the last round as ``previous`` to keep them. The
    guarantee is about the points of the set, not about points between them.

    Args:
        model: A model of kbo; its ridge is the noise variance, its kernel the prior of the
            function.
        points: The finite set [N d], in the units of ``train_X``: the choices of
            ``optimize_acqf_discrete``, or a design that fills the box for ``optimize_acqf``.
        delta: Probability that the bounds may fail.
        rigorous: Whether to use the proved bound for the points of the set, not Algorithm 1.
        smooth: Whether to use the continuous majorant of Algorithm 1
            (``Chaining.quick_interval``), which has gradients, not its steps. Rigorous bounds are
            continuous.
        previous: The acquisition function of an earlier round; its covers are kept while they are
            valid.
        posterior_transform, X_pending: As in ``KernelUCB``.

    Example:
        >>> acqf = None
        >>> for _ in range(n_rounds):
        ...     model = KernelRidgeGP(X, Y, kernel, ridge)
        ...     acqf = ChainingUCB(model, choices, delta=0.1, previous=acqf)
        ...     x, value = optimize_acqf_discrete(acqf, q=1, choices=choices)
    """

    def __init__(
        self,
        model: PosteriorModel,
        points: Tensor,
        delta: float,
        rigorous: bool = False,
        smooth: bool = True,
        previous: ChainingUCB | None = None,
        posterior_transform: PosteriorTransform | None = None,
        X_pending: Tensor | None = None,
    ) -> None:
        check_model(model)
        model.eval()  # in training mode the input transform might learn from the points
        confidence = Chaining(delta, rigorous, model.transform_inputs(points))
        if previous is not None:
            hint = "; pass a Chaining of your own to KernelUCB(model, chaining) instead"
            checks.instance("previous", previous, ChainingUCB, hint)
            confidence.share_covers(previous.confidence)
        super().__init__(model, confidence, posterior_transform, X_pending)
        self.smooth: bool = checks.flag("smooth", smooth)

    def _bound(self, view: Posterior, X: Tensor) -> Tensor:
        if not self.smooth:
            return super()._bound(view, X)
        lower, upper = self.confidence.quick_interval(view, X)
        bound = upper if self.weight >= 0 else lower
        return self.weight * bound + self.offset
