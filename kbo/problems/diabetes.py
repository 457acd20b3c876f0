"""A real tuning task that takes milliseconds: a support vector machine on scikit-learn's diabetes data."""

from __future__ import annotations

import numpy as np

from kbo.problems.base import TuningProblem
from kbo.space import Float, Params, Space


class DiabetesSVR(TuningProblem):
    """One minus the R2 of ``SVR`` on a fresh random quarter of the diabetes data; smaller is better.

    Every evaluation splits the data anew: at the best settings, near 0.5, the values vary by about 0.05, more than the
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
        from sklearn.datasets import load_diabetes
        from sklearn.model_selection import train_test_split
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler
        from sklearn.svm import SVR

        assert isinstance(params, dict)
        X, y = load_diabetes(return_X_y=True)
        split = int(self._rng.integers(2**31))
        X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.25, random_state=split)
        machine = make_pipeline(StandardScaler(), SVR(**params))
        machine.fit(X_train, y_train)
        return 1 - float(machine.score(X_test, y_test))
