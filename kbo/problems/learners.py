"""Tuning tasks on the data sets of scikit-learn: a neural network and a support vector machine."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from kbo.problems.base import TuningProblem, sklearn_datasets
from kbo.space import Choice, Float, Int, Params, Space


class DigitsMLP(TuningProblem):
    """Test error of ``MLPClassifier`` on a fresh random half of the digits; smaller is better.

    Every evaluation draws a new split and new initial weights, so the error is noisy (standard deviation about 0.005)
    and the best observed value is optimistically biased. 0.3 to 0.7 seconds a trial.

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
        X, y = sklearn_datasets().load_digits(return_X_y=True)
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.neural_network import MLPClassifier

        assert isinstance(params, dict)
        split, start = (int(s) for s in self._rng.integers(2**31, size=2))
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


class DiabetesSVR(TuningProblem):
    """One minus the R2 of ``SVR`` on a fresh random quarter of the diabetes data; smaller is better.

    Every evaluation draws a new split: at the best settings, near 0.5, the values vary by about 0.05, more than the
    best settings differ.

    Args:
        seed: Seed of the splits; None draws from the system, as a tuning run should.
    """

    name = "diabetes"

    def __init__(self, seed: int | None = None) -> None:
        self.space = Space(
            {
                "C": Float(1e-2, 1e4, log=True),
                "gamma": Float(1e-4, 1e1, log=True),
                "epsilon": Float(1e-1, 1e2, log=True),
            }
        )
        self._rng = np.random.default_rng(seed)

    def __call__(self, params: Params) -> float:  # noqa: D102
        X, y = sklearn_datasets().load_diabetes(return_X_y=True)
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler
        from sklearn.svm import SVR

        assert isinstance(params, dict)
        machine = make_pipeline(StandardScaler(), SVR(**params))
        return _test_error(machine, X, y, 0.25, int(self._rng.integers(2**31)))


def _test_error(model: Any, X: np.ndarray, y: np.ndarray, test_size: float, split: int) -> float:
    """One minus the score on a random part of the data, after a fit to the rest."""
    from sklearn.model_selection import train_test_split

    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=test_size, random_state=split)
    return 1 - float(model.fit(X_train, y_train).score(X_test, y_test))
