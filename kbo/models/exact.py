"""``KernelRidgeGP``: exact kernel ridge regression as a BoTorch model that streams."""

from __future__ import annotations

from kbo.models.streaming import StreamingGP
from kbo.regression import KernelRidge


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

    Raises:
        InvalidInput: Wrong shapes, values that are not finite, or a ridge that is not positive.

    Example:
        >>> model = KernelRidgeGP(train_X, train_Y, MaternKernel(nu=2.5), ridge=0.01)
        >>> acqf = KernelUCB(model, SelfNormalized(noise_std=0.1, norm_bound=2.0, delta=0.1))
        >>> x, value = optimize_acqf(acqf, bounds, q=1, num_restarts=4, raw_samples=64)
    """

    def _new_state(self) -> KernelRidge:
        return KernelRidge(self.covar_module, float(self.ridge))
