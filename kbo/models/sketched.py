"""``NystromGP``: a sketched posterior as a BoTorch model, for any number of observations."""

from __future__ import annotations

import math
from typing import Any

from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.utils.datasets import SupervisedDataset
from gpytorch.kernels import Kernel
from torch import Tensor

from kbo.errors import InvalidInput
from kbo.kernels import freeze
from kbo.models.streaming import StreamingGP
from kbo.regression import MOST_ANCHORS, Dictionary, GreedyDictionary, NystromRidge


class NystromGP(StreamingGP):
    """A Gaussian process seen through the features of a dictionary: a step does not cost more as n grows.

    Martingale-mixture bounds on it stay valid whatever the dictionary (``kbo.confidence.MartingaleMixture``), but are
    only as tight as the dictionary is good: ``model.state.residual_trace`` says how much of the kernel it misses, and
    with a useless one the bound is the norm bound itself. Models conditioned on new data go on with the dictionary and
    its memory, so the dictionary lives; differentiable fantasies leave it as it is, and condition the DTC posterior as
    if it were a prior, which is not the DTC posterior of all data (law of total variance off by up to a tenth).

    Args:
        train_X: Points [n d].
        train_Y: Targets [n 1].
        kernel: An unbatched GPyTorch kernel.
        ridge: The regulariser = noise variance of the GP reading, in (transformed) units.
        dictionary: Chooses the points that span the sketch; given points are in the units of train_X. By default a
            ``GreedyDictionary`` of at most 500 points that leaves no observation more variance than the noise has.
            Data enter it in the order of train_X. That is for predictions; tight bounds want less left out, for example
            ``GreedyDictionary(0.01 * noise_std**2 / norm_bound**2)``.
        input_transform: Applied to training and test points, and to given points of the dictionary.
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
        dictionary: Dictionary | None = None,
        input_transform: InputTransform | None = None,
        outcome_transform: OutcomeTransform | None = None,
    ) -> None:
        super().__init__(train_X, train_Y, kernel, ridge, input_transform, outcome_transform)
        self.dictionary = self._default() if dictionary is None else dictionary
        points = self.dictionary.points if isinstance(self.dictionary, Dictionary) else None
        if points is not None and points.shape[-1] != train_X.shape[-1]:
            raise InvalidInput(
                f"the dictionary's points have {points.shape[-1]} columns but train_X has {train_X.shape[-1]}."
            )
        self._new_state()  # a dictionary that cannot be used is an error now, not later

    def _default(self) -> GreedyDictionary:
        X = self.train_inputs[0]  # transformed already: the model is in evaluation mode
        prior = freeze(self.covar_module, X).diagonal(X)
        least = 0.1 * float(prior.max()) if len(X) else math.inf  # however large the noise, it should see something
        return GreedyDictionary(min(float(self.ridge), least), most=MOST_ANCHORS)

    def _new_state(self) -> NystromRidge:
        return NystromRidge(self.covar_module, float(self.ridge), self.transformed(self.dictionary))

    @classmethod
    def construct_inputs(  # pyright: ignore[reportIncompatibleMethodOverride]
        cls,
        training_data: SupervisedDataset,
        kernel: Kernel,
        ridge: float,
        dictionary: Dictionary | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Constructor arguments from a BoTorch data set; the others are passed through."""
        return {**super().construct_inputs(training_data, kernel, ridge), "dictionary": dictionary}
