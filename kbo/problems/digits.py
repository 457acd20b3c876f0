"""A real tuning task: a small neural network on scikit-learn's handwritten digits."""

from __future__ import annotations

import warnings

import numpy as np

from kbo.problems.base import TuningProblem
from kbo.space import Choice, Float, Int, Params, Space


class DigitsMLP(TuningProblem):
    """Test error of ``MLPClassifier`` on a fresh random half of the digits; smaller is better.

    Every evaluation splits the data anew and starts from other weights, so the error is noisy (standard
    deviation about 0.005): the best observed value flatters itself. 0.3 to 0.7 seconds a trial.

    Args:
        seed: Seed of splits and weights; None draws from the system, as a tuning run should.
    """

    name = "digits"

    def __init__(self, seed: int | None = None) -> None:
        self.space = Space(
            {
                "learning_rate": Float(1e-4, 1e-1, log=True),
                "alpha": Float(1e-6, 10.0, log=True),
                "width": Int(8, 256, log=True),
                "layers": Int(1, 3),
                "batch_size": Int(16, 256, log=True),
                "activation": Choice(["relu", "tanh"]),
            }
        )
        self._rng = np.random.default_rng(seed)

    def __call__(self, params: Params) -> float:  # noqa: D102
        from sklearn.datasets import load_digits
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.model_selection import train_test_split
        from sklearn.neural_network import MLPClassifier

        assert isinstance(params, dict)
        split, start = (int(s) for s in self._rng.integers(2**31, size=2))
        X, y = load_digits(return_X_y=True)
        X_train, X_test, y_train, y_test = train_test_split(X / 16, y, test_size=0.5, random_state=split)
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
            network.fit(X_train, y_train)
        return 1 - float(network.score(X_test, y_test))
