"""``NystromGP``: a sketched posterior as a BoTorch model, for any number of observations."""

from __future__ import annotations

from typing import Any

from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.utils.datasets import SupervisedDataset
from gpytorch.kernels import Kernel
from torch import Tensor

from kbo.errors import InvalidInput
from kbo.models.streaming import StreamingGP
from kbo.regression import FixedDictionary, NystromRidge


class NystromGP(StreamingGP):
    """A Gaussian process seen through the features of a dictionary: a step does not cost more as n grows.

    Martingale-mixture bounds on it stay valid whatever the dictionary (``kbo.confidence.MartingaleMixture``), but are
    only as tight as the dictionary is good: ``model.state.residual_trace`` says how much of the kernel it misses, and
    with a useless one the bound is the norm bound itself. Everything else is as in ``KernelRidgeGP``; models
    conditioned on new data keep the dictionary.

    Args:
        train_X: Points [n d].
        train_Y: Targets [n 1].
        kernel: An unbatched GPyTorch kernel.
        ridge: The regulariser = noise variance of the GP reading, in (transformed) units.
        dictionary: The points that span the sketch, in the units of train_X.
        input_transform: Applied to training and test points, and to the dictionary.
        outcome_transform: Applied to targets, undone in ``posterior``.

    Raises:
        InvalidInput: Wrong shapes, values that are not finite, or a ridge that is not positive.

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
        dictionary: FixedDictionary,
        input_transform: InputTransform | None = None,
        outcome_transform: OutcomeTransform | None = None,
    ) -> None:
        super().__init__(train_X, train_Y, kernel, ridge, input_transform, outcome_transform)
        if not isinstance(dictionary, FixedDictionary):
            raise InvalidInput(f"dictionary must be a kbo.regression.FixedDictionary, got {type(dictionary).__name__}.")
        columns, wanted = dictionary.points.shape[-1], train_X.shape[-1]
        if columns != wanted:
            raise InvalidInput(f"the dictionary's points have {columns} columns but train_X has {wanted}.")
        self.dictionary = dictionary
        self._new_state()  # a dictionary that cannot be used is an error now, not later

    def _new_state(self) -> NystromRidge:
        points = self.transform_inputs(self.dictionary.to(self.train_targets).points)
        return NystromRidge(self.covar_module, float(self.ridge), FixedDictionary(points))

    @classmethod
    def construct_inputs(  # pyright: ignore[reportIncompatibleMethodOverride]
        cls, training_data: SupervisedDataset, kernel: Kernel, ridge: float, dictionary: FixedDictionary, **kwargs: Any
    ) -> dict[str, Any]:
        """Constructor arguments from a BoTorch data set; the others are passed through."""
        return {**super().construct_inputs(training_data, kernel, ridge), "dictionary": dictionary}
