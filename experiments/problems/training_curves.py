"""Training of the learners that ``experiments.problems.TrainingCurves`` replays; it writes their file in some minutes.

    python -m experiments.problems.training_curves

The learners are small networks, linear models and boosted trees of scikit-learn on its data sets. Each has random
parameters and is trained twice, with different splits, starts and orders. The error on the other half of the data is
stored after every step.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn import datasets
from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.preprocessing import StandardScaler

from experiments.problems.curves import FILE, SPACES, STEPS

CONFIGURATIONS = 200
"""Number of random parameters in each set of trainings."""

REPEATS = 2
"""Number of trainings with each of them."""


def split(data: Any, seed: int) -> tuple[Any, Any, Any, Any]:
    """Return scaled inputs to train and to validate, and their targets.

    Inputs, and targets that are no classes, have mean 0 and variance 1 in the part to train on.
    """
    X, y = data
    parts: Any = train_test_split(X, y, train_size=0.5, random_state=seed)
    X, X_test, y, y_test = parts
    scaler = StandardScaler().fit(X)
    if y.dtype.kind == "f":
        centre = y.mean()
        scale = y.std()
        y = (y - centre) / scale
        y_test = (y_test - centre) / scale
    return scaler.transform(X), scaler.transform(X_test), y, y_test


def trained(learner: Any, data: Any, seed: int) -> Iterator[float]:
    """Yield the error after each epoch."""
    X, X_test, y, y_test = split(data, seed)
    options = {}
    if y.dtype.kind == "i":
        options["classes"] = np.unique(data[1])
    for _ in range(STEPS):
        learner.partial_fit(X, y, **options)
        yield error(y_test, learner.predict(X_test))


def boosted(learner: Any, data: Any, seed: int) -> Iterator[float]:
    """Yield the error after each two trees."""
    X, X_test, y, y_test = split(data, seed)
    for step, predicted in enumerate(learner.fit(X, y).staged_predict(X_test)):
        if step % 2:
            yield error(y_test, predicted)


def error(y: np.ndarray, predicted: np.ndarray) -> float:
    """Return the share of wrong classes, or the root mean square of the errors, each of which counts as at most 2."""
    if y.dtype.kind == "i":
        return float(np.mean(y != predicted))
    errors = np.clip(np.nan_to_num(predicted - y, nan=2.0), -2, 2)
    return float(np.sqrt(np.mean(errors**2)))


def network(kind: Callable[..., Any], p: Any, seed: int) -> Any:
    """Return a neural network with parameters p."""
    return kind(
        hidden_layer_sizes=(p["width"],) * p["layers"],
        learning_rate_init=p["learning_rate"],
        alpha=p["alpha"],
        batch_size=p["batch_size"],
        random_state=seed,
    )


def trees(kind: Callable[..., Any], p: Any, seed: int) -> Any:
    """Return boosted trees with parameters p."""
    return kind(n_estimators=2 * STEPS, random_state=seed, **p)


def linear(p: Any, seed: int) -> Any:
    """Return a linear model with parameters p."""
    return SGDClassifier(
        "log_loss",
        alpha=p["alpha"],
        l1_ratio=p["l1_ratio"],
        penalty="elasticnet",
        learning_rate="invscaling",
        eta0=p["learning_rate"],
        power_t=p["power"],
        random_state=seed,
    )


def runs() -> dict[str, Callable[[Any, int], Iterator[float]]]:
    """Return the functions that train with parameters and a seed, and yield errors, by the name of their curves."""
    digits = datasets.load_digits(return_X_y=True)
    cancer = datasets.load_breast_cancer(return_X_y=True)
    diabetes = datasets.load_diabetes(return_X_y=True)
    friedman = datasets.make_friedman1(400, noise=1, random_state=0)
    return {
        "network-digits": lambda p, seed: trained(network(MLPClassifier, p, seed), digits, seed),
        "network-friedman": lambda p, seed: trained(network(MLPRegressor, p, seed), friedman, seed),
        "linear-digits": lambda p, seed: trained(linear(p, seed), digits, seed),
        "trees-cancer": lambda p, seed: boosted(
            trees(GradientBoostingClassifier, p, seed), cancer, seed
        ),
        "trees-diabetes": lambda p, seed: boosted(
            trees(GradientBoostingRegressor, p, seed), diabetes, seed
        ),
    }


def main(file: Path = FILE, configurations: int = CONFIGURATIONS) -> None:
    """Train all, and write the file."""
    arrays = {}
    for name, run in runs().items():
        space = SPACES[name]
        rng = np.random.default_rng(0)
        units = rng.random((configurations, space.dimension)).astype(np.float32)
        params = [space.params(torch.from_numpy(unit).double()) for unit in units]
        curves = [[list(run(p, 100 * repeat + 1)) for p in params] for repeat in range(REPEATS)]
        arrays[f"{name}/units"] = units
        arrays[f"{name}/curves"] = np.array(curves, dtype=np.float32)
        last = arrays[f"{name}/curves"][..., -1]
        print(name, np.quantile(last, [0, 0.1, 0.5, 0.9]), flush=True)
    np.savez_compressed(file, **arrays)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
