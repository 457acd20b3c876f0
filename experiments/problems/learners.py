"""Tuning problems that train a learner of scikit-learn on its data sets, with a new split in each evaluation."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from experiments.problems.base import TuningProblem, sklearn_datasets
from kbo._base import checks
from kbo.cli.examples import DIGITS, digits_error
from kbo.space import Choice, Float, Int, Params, Space, When


class Learner(TuningProblem):
    """A learner of scikit-learn; the objective is its score on a part of the data.

    Args:
        seed: Seed of all random numbers; None draws from the system, as in a real tuning run.
    """

    def __init__(self, seed: int | None = None) -> None:
        self._seed = checks.maybe(checks.whole, "seed", seed, 0)
        self._rng = np.random.default_rng(self._seed)

    def renew(self) -> None:
        self._rng = np.random.default_rng()

    def _draw(self) -> int:
        """A seed for one evaluation."""
        return int(self._rng.integers(2**31))


class DigitsMLP(Learner):
    """Test error of a neural network on a fresh random half of the digits data, see ``kbo.cli.examples.digits``."""

    name = "digits"
    space: Space = DIGITS

    def __call__(self, params: Params) -> float:
        split = self._draw()
        start = self._draw()
        return digits_error(params, split, start)


class DiabetesSVR(Learner):
    """One minus the R2 of ``SVR`` on a fresh random quarter of the diabetes data; smaller is better.

    Every evaluation draws a new split. At the best settings, with values near 0.5, the values vary by about 0.05: more
    than the best settings differ.
    """

    name = "diabetes"
    space: Space = Space(
        {
            "C": Float(1e-2, 1e4, log=True),
            "gamma": Float(1e-4, 1e1, log=True),
            "epsilon": Float(1e-1, 1e2, log=True),
        }
    )

    def __call__(self, params: Params) -> float:
        X, y = sklearn_datasets().load_diabetes(return_X_y=True)
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler
        from sklearn.svm import SVR

        assert isinstance(params, dict)
        machine = make_pipeline(StandardScaler(), SVR(**params))
        return _test_error(machine, X, y, 0.25, self._draw())


class LearnerOnData(Learner):
    """A learner with three to six parameters on small data; a trial takes at most 0.3 s.

    Every evaluation trains it on a new random half of the data, at most 300 rows, and returns its error on as many
    others: the fraction of wrong classes, or one minus the R2.

    Args:
        learner: "svm", "forest", "boosting" or "mlp".
        data: "digits" (odd or even), "wine", "cancer", "diabetes" or "housing" (synthetic, like California housing).
        seed: Seed of all that is random; None draws from the system.

    Raises:
        InvalidInput: An argument has another value.
        MissingExtra: scikit-learn is not installed.
    """

    def __init__(self, learner: str = "svm", data: str = "wine", seed: int | None = None) -> None:
        super().__init__(seed)
        self.learner: str = checks.one_of("learner", learner, LEARNERS)
        self.data: str = checks.one_of("data", data, DATA)
        self.name: str = f"{learner}-{data}"
        self.space: Space = LEARNERS[learner]
        self._X, self._y = standardized(data)

    def __call__(self, params: Params) -> float:
        assert isinstance(params, dict)
        size = min(300, len(self._y) // 2)
        split = self._draw()
        model = _model(self.learner, self._y.dtype == float, dict(params), self._draw())
        with warnings.catch_warnings():
            # The warnings are about training that ends early, and about small bootstrap samples.
            warnings.simplefilter("ignore", UserWarning)
            return _test_error(model, self._X, self._y, size, split, train_size=size)


class AnyLearner(Learner):
    """The choice of a learner of ``LearnerOnData``, and its parameters, each named after its learner.

    Args:
        data: As for ``LearnerOnData``.
        seed: Seed of all that is random; None draws from the system.
    """

    name = "learners"

    def __init__(self, data: str = "wine", seed: int | None = None) -> None:
        super().__init__(seed)
        self._learners = {
            learner: LearnerOnData(learner, data, self._draw()) for learner in LEARNERS
        }
        own = []
        for learner, space in LEARNERS.items():
            named = {f"{learner} {name}": entry for name, entry in space.parameters.items()}
            own.append(When("learner", learner, named))
        self.space: Space = Space([{"learner": list(LEARNERS)}, *own])

    def __call__(self, params: Params) -> float:
        assert isinstance(params, dict)
        learner = params["learner"]
        own = {name.removeprefix(f"{learner} "): value for name, value in params.items()}
        del own["learner"]
        return self._learners[learner](own)


LEARNERS = {
    "svm": Space(
        {
            "C": Float(1e-3, 1e4, log=True),
            "gamma": Float(1e-5, 10.0, log=True),
            "kernel": Choice(["rbf", "sigmoid"]),
        }
    ),
    "forest": Space(
        {
            "max_depth": Int(1, 20, log=True),
            "min_samples_leaf": Int(1, 30, log=True),
            "max_features": Float(0.05, 1.0),
            "max_samples": Float(0.1, 1.0),
        }
    ),
    "boosting": Space(
        {
            "learning_rate": Float(0.01, 1.0, log=True),
            "max_leaf_nodes": Int(2, 32, log=True),
            "min_samples_leaf": Int(1, 50, log=True),
            "l2_regularization": Float(1e-6, 100.0, log=True),
            "max_features": Float(0.1, 1.0),
        }
    ),
    "mlp": Space(
        {
            "learning_rate_init": Float(1e-4, 1e-1, log=True),
            "alpha": Float(1e-6, 10.0, log=True),
            "width": Int(8, 64, log=True),
            "layers": Int(1, 2),
            "batch_size": Int(16, 64, log=True),
            "activation": Choice(["relu", "tanh"]),
        }
    ),
}
"""Learners and their parameters, named as in scikit-learn; ``width`` and ``layers`` are those of the hidden layers."""

DATA = ("digits", "wine", "cancer", "diabetes", "housing")


def _model(learner: str, regression: bool, params: dict[str, Any], start: int) -> Any:
    """The learner with its parameters, to train; ``start`` is the seed of what it draws."""
    from sklearn import ensemble, neural_network, svm

    classifiers: dict[str, Any] = {
        "svm": svm.SVC,
        "forest": ensemble.RandomForestClassifier,
        "boosting": ensemble.HistGradientBoostingClassifier,
        "mlp": neural_network.MLPClassifier,
    }
    regressors: dict[str, Any] = {
        "svm": svm.SVR,
        "forest": ensemble.RandomForestRegressor,
        "boosting": ensemble.HistGradientBoostingRegressor,
        "mlp": neural_network.MLPRegressor,
    }
    kind = classifiers[learner]
    if regression:
        kind = regressors[learner]
    if learner == "svm":
        return kind(**params, max_iter=20_000)
    if learner == "forest":
        return kind(**params, n_estimators=30, random_state=start)
    if learner == "boosting":  # on at most 300 rows it does not stop early
        return kind(**params, max_iter=40, random_state=start)
    params["hidden_layer_sizes"] = [params.pop("width")] * params.pop("layers")
    return kind(**params, max_iter=20, random_state=start)


@cache
def standardized(data: str) -> tuple[np.ndarray, np.ndarray]:
    """Inputs with columns of mean 0 and variance 1, and classes (int) or standardised targets (float)."""
    datasets = sklearn_datasets()
    load: dict[str, Callable[..., Any]] = {
        "digits": datasets.load_digits,
        "wine": datasets.load_wine,
        "cancer": datasets.load_breast_cancer,
        "diabetes": datasets.load_diabetes,
    }
    if data == "housing":
        X, y = _housing()
    else:
        X, y = load[data](return_X_y=True)
    if data == "digits":
        y = y % 2
    if y.dtype == float:
        y = (y - y.mean()) / y.std()
    return (X - X.mean(0)) / np.maximum(X.std(0), 1e-12), y


def _housing() -> tuple[np.ndarray, np.ndarray]:
    """A table like California housing [600 8]: skewed columns, interactions, two cities, capped prices."""
    rng = np.random.default_rng(0)
    logarithms = rng.normal([1.2, 1.6, 0.05, 1.0], [0.5, 0.3, 0.1, 0.3], (600, 4))
    income, rooms, bedrooms, occupancy = np.exp(logarithms).T
    age = rng.integers(1, 53, 600)
    population = np.exp(rng.normal(7.0, 0.8, 600))
    place = rng.uniform(-1, 1, (600, 2))
    first_city = np.exp(-8 * ((place - [-0.5, 0.5]) ** 2).sum(1))
    second_city = np.exp(-8 * ((place - [0.5, -0.4]) ** 2).sum(1))
    cities = first_city + second_city
    price = (
        0.4 * income * (1 + cities)
        + 1.5 * cities
        + 0.01 * age * cities
        - 0.3 * np.log(occupancy)
        + 0.1 * rooms
    )
    price = np.minimum(price * np.exp(0.2 * rng.standard_normal(600)), 5.0)
    return np.column_stack([income, age, rooms, bedrooms, population, occupancy, place]), price


def _test_error(
    model: Any, X: np.ndarray, y: np.ndarray, test_size: float, split: int, **more: Any
) -> float:
    """One minus the score on a random part of the data, after a fit to the rest, or to ``train_size`` of it."""
    from sklearn.model_selection import train_test_split

    X_train, X_test, y_train, y_test = train_test_split(
        X, y, test_size=test_size, random_state=split, **more
    )
    return 1 - float(model.fit(X_train, y_train).score(X_test, y_test))
