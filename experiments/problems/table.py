"""A tuning task as a bandit of ten thousand arms: kernel ridge regression on scikit-learn's diabetes data."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from experiments.problems.base import (
    FixedArms,
    RowNumbers,
    generators,
    sklearn_datasets,
    unit_scaled,
)
from experiments.problems.rkhs import SMOOTHNESS, stationary_kernel
from kbo._base import checks
from kbo.errors import InvalidInput
from kbo.kernels import freeze

_TRAINED_ON = 150
"""Number of the 442 examples to which a model is fitted; the others are used for its score."""

_LENGTHSCALES = (10**-1.5, 10**1.5)
_RIDGES = (1e-6, 1e2)

_WORST = -1.0
"""The smallest reported R^2; without a limit, the worst settings would determine the scale."""


class TuningTable(FixedArms):
    """A bandit whose arms are settings of kernel ridge regression; the reward is R^2 on a random split of the data.

    The settings combine four kernels, lengthscales (0.03 to 30, in features scaled to [0, 1]) and ridges (1e-6 to 100),
    the last two evenly on a logarithmic scale. All values are computed when the first table of a size is made (some
    seconds) and kept for the process; every seed has the same table. A pull draws the split, so the noise is that of
    the task: bounded, but neither Gaussian nor of equal size for all arms. ``noise_std`` is the largest standard
    deviation among the settings with at least half of the best mean R^2. ``norm_bound`` is nominal: a function of norm
    13 is within 0.03 of the mean values, in root mean square.

    Args:
        n_lengthscales: Lengthscales per kernel.
        n_ridges: Ridges per lengthscale.
        n_splits: Random splits into 150 training and 292 validation examples.
        lengthscale: Lengthscale of the Matern 5/2 kernel on the arms.
        norm_bound: Norm bound given to methods.
        seed: Seed of the splits that are drawn in the rounds.

    Attributes:
        fixed_arms: The settings [A 6]: kernel as one-hot columns of length 1/sqrt(2), then the logarithms of
            lengthscale and ridge scaled to [0, 1].
        values: R^2 [S A] by split and setting, cut below at -1.

    Raises:
        InvalidInput: scikit-learn is not installed.
    """

    def __init__(
        self,
        n_lengthscales: int = 50,
        n_ridges: int = 50,
        n_splits: int = 10,
        lengthscale: float = 0.5,
        norm_bound: float = 10.0,
        seed: int = 0,
    ) -> None:
        checks.whole("n_lengthscales", n_lengthscales, 2)
        checks.whole("n_ridges", n_ridges, 2)
        checks.whole("n_splits", n_splits, 2)
        self._lengthscales = _logarithmic(*_LENGTHSCALES, n_lengthscales)
        self._ridges = _logarithmic(*_RIDGES, n_ridges)
        self.values: Tensor = _table(n_lengthscales, n_ridges, n_splits).clone()
        self.fixed_arms: Tensor = _features(n_lengthscales, n_ridges)
        self.n_arms: int = self.values.shape[-1]
        self.kernel: Kernel = stationary_kernel("matern52", lengthscale)
        self.norm_bound: float = checks.positive("norm_bound", norm_bound)
        self._means = self.values.mean(0)
        decent = self._means >= self._means.max() / 2
        self.noise_std: float = float(self.values[:, decent].std(0, correction=0).max())
        self._numbers = RowNumbers(self.fixed_arms)
        (noise_rng,) = generators(checks.seed(seed))
        self.noise_rng: torch.Generator = noise_rng

    def setting(self, index: int) -> dict[str, Any]:
        """Kernel, lengthscale and ridge of an arm."""
        rest, ridge = divmod(self.checked(index), len(self._ridges))
        kernel, lengthscale = divmod(rest, len(self._lengthscales))
        names = list(SMOOTHNESS)
        return {
            "kernel": names[kernel],
            "lengthscale": float(self._lengthscales[lengthscale]),
            "ridge": float(self._ridges[ridge]),
        }

    def mean(self, X: Tensor) -> Tensor:
        """R^2 [n] of the arms X [n 6], averaged over the splits.

        Raises:
            InvalidInput: A row is no arm; values are known for arms only.
        """
        if X is self.fixed_arms:
            return self._means
        return self._means[self._rows(X)]

    def observe(self, X: Tensor) -> Tensor:
        """R^2 [n] of the arms X [n 6] on a random split each."""
        rows = self._rows(X)
        count = len(self.values)
        splits = torch.randint(count, (len(rows),), generator=self.noise_rng, device="cpu")
        return self.values[splits, rows]

    def _rows(self, X: Tensor) -> Tensor:
        """The numbers [n] of the arms X [n 6]."""
        numbers = self._numbers(checks.rows("X", X, self.fixed_arms, self.fixed_arms.shape[-1]))
        if bool((numbers < 0).any()):
            raise InvalidInput(
                "X has a row that is no arm, and values are known for arms only: use rows of arms()."
            )
        return numbers


def _logarithmic(low: float, high: float, count: int) -> Tensor:
    """Numbers [count] from low to high, evenly on a logarithmic scale."""
    exponents = (math.log10(low), math.log10(high))
    return torch.logspace(*exponents, count, dtype=torch.float64, device="cpu")


def _features(n_lengthscales: int, n_ridges: int) -> Tensor:
    """The arms [A 6]: kernels, lengthscales and ridges, the last changing fastest."""
    kernels = torch.eye(len(SMOOTHNESS), dtype=torch.float64, device="cpu") / math.sqrt(2)
    numbers = torch.arange(len(kernels), dtype=torch.float64, device="cpu")
    lengthscales = torch.linspace(0, 1, n_lengthscales, dtype=torch.float64, device="cpu")
    ridges = torch.linspace(0, 1, n_ridges, dtype=torch.float64, device="cpu")
    grid = torch.cartesian_prod(numbers, lengthscales, ridges)
    return torch.cat([kernels[grid[:, 0].long()], grid[:, 1:]], -1)


@functools.cache
def _table(n_lengthscales: int, n_ridges: int, n_splits: int) -> Tensor:
    """R^2 [S A] of every setting on every split, at least -1."""
    features, targets = sklearn_datasets().load_diabetes(return_X_y=True, scaled=False)
    X = unit_scaled(torch.tensor(features, dtype=torch.float64, device="cpu"))
    y = torch.tensor(targets, dtype=torch.float64, device="cpu")
    lengthscales = _logarithmic(*_LENGTHSCALES, n_lengthscales)
    ridges = _logarithmic(*_RIDGES, n_ridges)
    (rng,) = generators(0)
    splits = [torch.randperm(len(y), generator=rng, device="cpu") for _ in range(n_splits)]
    scores = X.new_empty(n_splits, len(SMOOTHNESS), n_lengthscales, n_ridges)
    for i, name in enumerate(SMOOTHNESS):
        for j, lengthscale in enumerate(lengthscales.tolist()):
            gram = freeze(stationary_kernel(name, lengthscale), X)(X, X)
            for split, order in enumerate(splits):
                train = order[:_TRAINED_ON]
                test = order[_TRAINED_ON:]
                scores[split, i, j] = _scores(gram, y, train, test, ridges)
    return scores.clamp_min(_WORST).reshape(n_splits, -1)


def _scores(gram: Tensor, y: Tensor, train: Tensor, test: Tensor, ridges: Tensor) -> Tensor:
    """R^2 [r] on ``test`` of kernel ridge regression on ``train`` with centred targets, for each ridge [r]."""
    centre = y[train].mean()
    spectrum, basis = torch.linalg.eigh(gram[train][:, train])
    weights = (basis.T @ (y[train] - centre)).unsqueeze(-1) / (spectrum.unsqueeze(-1) + ridges)
    error = y[test].unsqueeze(-1) - centre - gram[test][:, train] @ (basis @ weights)
    return 1 - error.square().sum(0) / (y[test] - y[test].mean()).square().sum()
