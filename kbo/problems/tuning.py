"""Tuning problems: test functions with noise, a grid of arms, and learners on scikit-learn's data."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from botorch.test_functions import Ackley, Branin, Hartmann, Levy, SyntheticTestFunction
from torch import Tensor

from kbo import checks
from kbo.errors import InvalidInput
from kbo.problems.base import TuningProblem, sklearn_datasets
from kbo.problems.rkhs import RKHSBandit
from kbo.space import Choice, Float, Int, Params, Space


class NoisyFunction(TuningProblem):
    """A test function to minimise, or one to maximise with its sign changed, observed with Gaussian noise.

    Args:
        name: Name of the problem.
        function: A synthetic test function of BoTorch.
        noise_std: Standard deviation of the noise.
        seed: Seed of the noise; None draws from the system.
    """

    def __init__(self, name: str, function: SyntheticTestFunction, noise_std: float, seed: int | None = None) -> None:
        self.name, self.noise_std = name, checks.non_negative("noise_std", noise_std)
        self.function = function.to(torch.float64)
        self.space = Space([tuple(pair) for pair in self.function.bounds.T.tolist()])
        self._sign = 1 if self.function.is_minimization_problem else -1
        self.optimum = self._sign * float(self.function.optimal_value)
        self._rng = torch.Generator().manual_seed(_seed(seed))

    def __call__(self, params: Params) -> float:  # noqa: D102
        noise = torch.randn((), generator=self._rng, dtype=torch.float64)
        return self.noiseless(params) + self.noise_std * float(noise)

    def noiseless(self, params: Params) -> float:  # noqa: D102
        return self._sign * float(self.function(torch.tensor(list(params), dtype=torch.float64)))


def branin(noise_std: float = 1.0, seed: int | None = None) -> NoisyFunction:
    """Branin on its usual box, minimum 0.398."""
    return NoisyFunction("branin", Branin(), noise_std, seed)


def hartmann6(noise_std: float = 0.1, seed: int | None = None) -> NoisyFunction:
    """Hartmann in six dimensions, minimum -3.322."""
    return NoisyFunction("hartmann6", Hartmann(dim=6), noise_std, seed)


def ackley(dim: int = 5, noise_std: float = 0.3, seed: int | None = None) -> NoisyFunction:
    """Ackley, minimum 0 at the origin."""
    return NoisyFunction("ackley", Ackley(dim=checks.whole("dim", dim, 1, 1000)), noise_std, seed)


def levy(dim: int = 4, noise_std: float = 1.0, seed: int | None = None) -> NoisyFunction:
    """Levy on [-10, 10]^dim, minimum 0 at (1, ..., 1)."""
    return NoisyFunction("levy", Levy(dim=checks.whole("dim", dim, 1, 1000)), noise_std, seed)


class GridBandit(TuningProblem):
    """The negative of a function of RKHS norm 5 (Matern 5/2, lengthscale 0.3) on a grid of arms, observed with noise.

    Arms may be pulled again and again, and with noise as large as the function's spread they have to be.

    Args:
        side: Arms along each axis.
        dim: Number of axes.
        noise_std: Standard deviation of the Gaussian noise.
        seed: Seed of function and noise; None draws from the system.
    """

    name = "arms"

    def __init__(self, side: int = 10, dim: int = 3, noise_std: float = 1.0, seed: int | None = None) -> None:
        self.side, self.noise_std = checks.whole("side", side, 2), checks.non_negative("noise_std", noise_std)
        if self.side ** checks.whole("dim", dim, 1, 1000) > 10**7:
            raise InvalidInput(f"side ** dim must be at most 10**7 arms, got {side} ** {dim}.")
        self.space = Space({f"x{i}": Int(0, side - 1) for i in range(dim)})
        self._bandit = RKHSBandit("matern52", 0.3, dim, norm=5.0, noise_std=noise_std, seed=_seed(seed))
        axis = torch.linspace(0, 1, side, dtype=torch.float64)
        self.optimum = -float(self._bandit.mean(torch.cartesian_prod(*[axis] * dim)).max())

    def __call__(self, params: Params) -> float:  # noqa: D102
        return -float(self._bandit.observe(self._arm(params)))

    def noiseless(self, params: Params) -> float:  # noqa: D102
        return -float(self._bandit.mean(self._arm(params)))

    def _arm(self, params: Params) -> Tensor:
        assert isinstance(params, dict)
        return torch.tensor([list(params.values())], dtype=torch.float64) / (self.side - 1)


def _seed(seed: int | None) -> int:
    """A given seed, or one that the system draws."""
    return torch.Generator().seed() % 2**31 if seed is None else checks.seed(seed)


class Learner(TuningProblem):
    """A learner of scikit-learn, whose score on a part of its data is an objective.

    Args:
        seed: Seed of all that is random; None draws from the system, as a tuning run should.
    """

    def __init__(self, seed: int | None = None) -> None:
        self._rng = np.random.default_rng(seed)

    def _draw(self) -> int:
        """A seed for one evaluation."""
        return int(self._rng.integers(2**31))


class DigitsMLP(Learner):
    """Test error of ``MLPClassifier`` on a fresh random half of the digits; smaller is better.

    Every evaluation draws a new split and new initial weights, so the error is noisy (standard deviation about 0.005)
    and the best observed value is optimistically biased. 0.3 to 0.7 seconds a trial.
    """

    name = "digits"
    space = Space(
        {
            "learning_rate": Float(1e-4, 1e-1, log=True),
            "alpha": Float(1e-6, 10.0, log=True),
            "width": Int(8, 256, log=True),
            "layers": Int(1, 3),
            "batch_size": Int(16, 256, log=True),
            "activation": Choice(["relu", "tanh"]),
        }
    )

    def __call__(self, params: Params) -> float:  # noqa: D102
        X, y = sklearn_datasets().load_digits(return_X_y=True)
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.neural_network import MLPClassifier

        assert isinstance(params, dict)
        split, start = self._draw(), self._draw()
        network = MLPClassifier(
            hidden_layer_sizes=[params["width"]] * params["layers"],
            activation=params["activation"],
            learning_rate_init=params["learning_rate"],
            alpha=params["alpha"],
            batch_size=params["batch_size"],
            max_iter=60,
            random_state=start,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return _test_error(network, X / 16, y, 0.5, split)


class DiabetesSVR(Learner):
    """One minus the R2 of ``SVR`` on a fresh random quarter of the diabetes data; smaller is better.

    Every evaluation draws a new split: at the best settings, near 0.5, the values vary by about 0.05, more than the
    best settings differ.
    """

    name = "diabetes"
    space = Space(
        {
            "C": Float(1e-2, 1e4, log=True),
            "gamma": Float(1e-4, 1e1, log=True),
            "epsilon": Float(1e-1, 1e2, log=True),
        }
    )

    def __call__(self, params: Params) -> float:  # noqa: D102
        X, y = sklearn_datasets().load_diabetes(return_X_y=True)
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler
        from sklearn.svm import SVR

        assert isinstance(params, dict)
        machine = make_pipeline(StandardScaler(), SVR(**params))
        return _test_error(machine, X, y, 0.25, self._draw())


def _test_error(model: Any, X: np.ndarray, y: np.ndarray, test_size: float, split: int) -> float:
    """One minus the score on a random part of the data, after a fit to the rest."""
    from sklearn.model_selection import train_test_split

    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=test_size, random_state=split)
    return 1 - float(model.fit(X_train, y_train).score(X_test, y_test))
