"""``NystromGP``: a sketched posterior as a BoTorch model."""

from __future__ import annotations

import math

from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from gpytorch.kernels import Kernel
from torch import Tensor

from kbo.kernels import freeze
from kbo.models.streaming import StreamingGP
from kbo.regression import MOST_ANCHORS, Dictionary, GreedyDictionary, NystromRidge


class NystromGP(StreamingGP):
    """A Gaussian process in the features of a dictionary; the cost of a step does not grow with n.

    Martingale-mixture bounds on it are valid with every dictionary (``kbo.confidence.MartingaleMixture``), but only as
    tight as the dictionary is good: ``model.state.residual_trace`` is the part of the kernel that it misses. Models
    that are conditioned on new data update the dictionary. Differentiable fantasies leave it as it is, and condition
    the DTC posterior as if it were a prior, which is not the DTC posterior of all data (law of total variance off by
    up to a tenth).

    Args:
        train_X, train_Y, kernel, ridge, input_transform, outcome_transform: As for ``KernelRidgeGP``.
        dictionary: Chooses the points that span the sketch; given points are in the units of train_X. By default a
            ``GreedyDictionary`` of at most 500 points that leaves no observation more variance than the noise has.
            Data enter it in the order of train_X. That is for predictions; tight bounds need a smaller residual, for
            example ``GreedyDictionary(0.01 * noise_std**2 / norm_bound**2)``.

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
    ) -> None:
        super().__init__(train_X, train_Y, kernel, ridge, input_transform, outcome_transform)
        self.dictionary = self._default() if dictionary is None else dictionary
        self._new_state()  # a dictionary that cannot be used is an error now, not later

    def _default(self) -> GreedyDictionary:
        X = self.train_inputs[0]  # transformed already: the model is in evaluation mode
        prior = freeze(self.covar_module, X).diagonal(X)
        least = 0.1 * float(prior.max()) if len(X) else math.inf  # there are anchors however large the noise is
        return GreedyDictionary(min(float(self.ridge), least), most=MOST_ANCHORS)

    def _new_state(self) -> NystromRidge:
        return NystromRidge(self.covar_module, float(self.ridge), self.transformed(self.dictionary))
