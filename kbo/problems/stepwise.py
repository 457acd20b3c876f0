"""Tuning problems that train step by step and report the error after every step, so that they can be stopped early."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

from kbo.problems.learners import Learner, standardized
from kbo.space import Choice, Float, Int, Params, Space


class StepwiseLearner(Learner):
    """A learner whose error on a fresh random part of its data is known after every step of training.

    Called with parameters alone it trains to the end; called with a running trial as well it reports the error after
    every step, and ends when that trial should stop.

    Attributes:
        steps: Steps of a whole training.
    """

    steps: int
    data: str

    def __call__(self, params: Params, trial: Any = None) -> float:
        error = 1.0
        for step, error in enumerate(self.errors(params), 1):
            if trial is not None:
                trial.report(step, error)
                if step < self.steps and trial.should_stop():
                    break
        return error

    def errors(self, params: Params) -> Iterator[float]:
        """Train on a part of the data, at most 500 rows, and yield the error on as many others after every step."""
        from sklearn.model_selection import train_test_split

        assert isinstance(params, dict)
        split, start = self._draw(), self._draw()
        X, y = standardized(self.data)
        size = min(500, len(y) // 2)
        parts = train_test_split(X, y, train_size=size, test_size=size, random_state=split)
        return self._train(dict(params), start, *parts)

    @abstractmethod
    def _train(self, params: dict[str, Any], start: int, X: Any, X_test: Any, y: Any, y_test: Any) -> Iterator[float]:
        """Yield the errors of a training; ``start`` is the seed of what it draws."""


class EpochsMLP(StepwiseLearner):
    """``MLPClassifier`` on the digits, odd or even, epoch by epoch."""

    name = "mlp-epochs"
    data = "digits"
    steps = 25
    space: Space = Space(
        {
            "learning_rate_init": Float(1e-4, 1e-1, log=True),
            "alpha": Float(1e-6, 10.0, log=True),
            "width": Int(8, 48, log=True),
            "batch_size": Int(32, 256, log=True),
        }
    )

    def _train(self, params: dict[str, Any], start: int, X: Any, X_test: Any, y: Any, y_test: Any) -> Iterator[float]:
        from sklearn.neural_network import MLPClassifier

        network = MLPClassifier([params.pop("width")], **params, random_state=start)
        for _ in range(self.steps):
            network.partial_fit(X, y, classes=[0, 1])
            yield 1 - float(network.score(X_test, y_test))


class StagesBoosting(StepwiseLearner):
    """``GradientBoostingRegressor`` on a table like California housing, stage by stage; one minus the R2."""

    name = "boosting-stages"
    data = "housing"
    steps = 40
    space: Space = Space(
        {
            "learning_rate": Float(0.01, 1.0, log=True),
            "max_depth": Int(1, 6),
            "min_samples_leaf": Int(1, 50, log=True),
            "subsample": Float(0.2, 1.0),
            "max_features": Float(0.1, 1.0),
        }
    )

    def _train(self, params: dict[str, Any], start: int, X: Any, X_test: Any, y: Any, y_test: Any) -> Iterator[float]:
        from sklearn.ensemble import GradientBoostingRegressor

        trees = GradientBoostingRegressor(**params, random_state=start, warm_start=True)
        for stages in range(1, self.steps + 1):
            yield 1 - float(trees.set_params(n_estimators=stages).fit(X, y).score(X_test, y_test))


class SubsetsSVM(StepwiseLearner):
    """``SVC`` on the digits, odd or even, trained on a tenth of the training data, then on two tenths, and so on."""

    name = "svm-subsets"
    data = "digits"
    steps = 10
    space: Space = Space(
        {
            "C": Float(1e-3, 1e4, log=True),
            "gamma": Float(1e-5, 10.0, log=True),
            "kernel": Choice(["rbf", "sigmoid"]),
        }
    )

    def _train(self, params: dict[str, Any], start: int, X: Any, X_test: Any, y: Any, y_test: Any) -> Iterator[float]:
        from sklearn.svm import SVC

        for step in range(1, self.steps + 1):
            size = len(X) * step // self.steps
            yield 1 - float(SVC(**params, random_state=start).fit(X[:size], y[:size]).score(X_test, y_test))
