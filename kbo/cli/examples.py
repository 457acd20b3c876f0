"""Examples that ``kbo tune`` can tune without a script: a neural network on the digits data, and a cheap function."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kbo._base.extras import require
from kbo._base.lazy import Lazy
from kbo.space import Choice, Float, Int, Params, Space

if TYPE_CHECKING:
    from sklearn import datasets, exceptions, model_selection, neural_network
else:
    datasets = Lazy("sklearn.datasets")
    exceptions = Lazy("sklearn.exceptions")
    model_selection = Lazy("sklearn.model_selection")
    neural_network = Lazy("sklearn.neural_network")

DIGITS: Space = Space(
    {
        "learning_rate": Float(1e-4, 1e-1, log=True),
        "alpha": Float(1e-6, 10.0, log=True),
        "width": Int(8, 256, log=True),
        "layers": Int(1, 3),
        "batch_size": Int(16, 256, log=True),
        "activation": Choice(["relu", "tanh"]),
    }
)
"""Parameters of the neural network on the digits data."""


def digits(params: Params) -> float:
    """Return the test error of a neural network on a random half of the digits data; smaller is better.

    Every evaluation draws a new split and new initial weights. So the error is noisy (standard deviation about 0.005),
    and the best observed value is optimistically biased. A trial takes 0.3 to 0.7 seconds.
    """
    split, start = np.random.default_rng().integers(2**31, size=2)
    return digits_error(params, int(split), int(start))


def digits_error(params: Params, split: int, start: int) -> float:
    """Return the test error of ``digits`` for one split of the data and one set of initial weights.

    Args:
        params: Params of the space ``DIGITS``.
        split: Seed of the split into two halves.
        start: Seed of the initial weights and of the order of the training data.

    Raises:
        MissingExtra: scikit-learn is not installed.
    """
    require("this problem", "cli", "sklearn")
    assert isinstance(params, dict)
    X, y = datasets.load_digits(return_X_y=True)
    X_train, X_test, y_train, y_test = model_selection.train_test_split(
        X / 16, y, test_size=0.5, random_state=split
    )
    network = neural_network.MLPClassifier(
        hidden_layer_sizes=[params["width"]] * params["layers"],
        activation=params["activation"],
        learning_rate_init=params["learning_rate"],
        alpha=params["alpha"],
        batch_size=params["batch_size"],
        max_iter=60,
        random_state=start,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", exceptions.ConvergenceWarning)
        network.fit(X_train, y_train)
    return 1 - float(network.score(X_test, y_test))


BRANIN: Space = Space([(-5.0, 10.0), (0.0, 15.0)])
"""The usual search space of Branin's function."""


def branin(params: Params) -> float:
    """Return Branin's function, whose minimum is 0.398, plus Gaussian noise of standard deviation 1."""
    assert isinstance(params, list)
    x, y = params
    parabola = y - 5.1 / (4 * math.pi**2) * x**2 + 5 / math.pi * x - 6
    value = parabola**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10
    return value + float(np.random.default_rng().standard_normal())


class Example(NamedTuple):
    """An objective to minimise, and its search space."""

    objective: Callable[[Params], float]
    bounds: Space


EXAMPLES: dict[str, Example] = {
    "digits": Example(digits, DIGITS),
    "branin": Example(branin, BRANIN),
}
"""Examples by name."""
