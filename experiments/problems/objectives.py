"""Problems with several objectives whose true values are known: pairs of functions of COCO, ZDT, DTLZ2, learners."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from experiments.problems.base import seed_or_drawn
from experiments.problems.bbob import BBOB
from experiments.problems.learners import standardized
from kbo._base import checks
from kbo.space import Choice, Float, Int, Params, Space

FUNCTIONS = (1, 2, 6, 8, 13, 14, 15, 17, 20, 21)
"""Functions of bbob whose pairs are in bbob-biobj (Brockhoff, Auger, Hansen and Tušar 2022)."""

PAIRS = [(a, b) for i, a in enumerate(FUNCTIONS) for b in FUNCTIONS[i:]]
"""The pairs of bbob-biobj; its problem ``number`` is ``PAIRS[number - 1]``."""


class SeveralObjectives:
    """Objectives to minimise, with Gaussian noise.

    Args:
        name: The name of the problem.
        space: Its parameters.
        truth: Returns the values of the objectives without noise.
        reference: The reference of the hypervolume: points above it do not count. By default the upper quartiles over
            ``points`` points of a Sobol sequence.
        noise: The standard deviation of the noise of each objective, in interquartile ranges over these points.
        points: Number of these points.
        seed: Seed of the noise; None draws from the system.
    """

    def __init__(
        self,
        name: str,
        space: Space,
        truth: Callable[[Params], Sequence[float]],
        reference: Sequence[float] | None = None,
        noise: float = 0.0,
        points: int = 1024,
        seed: int | None = None,
    ) -> None:
        self.name: str = name
        self.space: Space = space
        self.truth: Callable[[Params], Sequence[float]] = truth
        checks.non_negative("noise", noise)
        lower, upper = _quartiles(truth, space, points)
        if reference is None:
            reference = upper.tolist()
        self.reference: list[float] = list(reference)
        self.names: list[str] = [f"f{i + 1}" for i in range(len(self.reference))]
        self.noise_std: Tensor = noise * (upper - lower)
        self._rng = torch.Generator().manual_seed(seed_or_drawn(seed))

    def __call__(self, params: Params) -> list[float]:
        """Return one noisy evaluation of each objective."""
        noise = torch.randn(len(self.names), generator=self._rng, dtype=torch.float64)
        values = torch.tensor(self.truth(params), dtype=torch.float64)
        return (values + self.noise_std * noise).tolist()


def _quartiles(truth: Callable[[Params], Sequence[float]], space: Space, points: int) -> Tensor:
    """Return the lower and the upper quartile of each objective, [2 m]."""
    sobol = torch.quasirandom.SobolEngine(space.dimension, scramble=True, seed=0)
    units = sobol.draw(points, dtype=torch.float64)
    values = torch.tensor([truth(space.params(unit)) for unit in units], dtype=torch.float64)
    return values.quantile(torch.tensor([0.25, 0.75], dtype=torch.float64), dim=0)


def pair(
    number: int, dim: int, instance: int, noise: float = 0.0, seed: int | None = None
) -> SeveralObjectives:
    """Return a problem of bbob-biobj: two functions of COCO, in instances 2 k + 1 and 2 k + 2 for the given k.

    The reference is the nadir, the value of each function at the minimum of the other, as in COCO.

    Args:
        number: Number of the problem, 1 to 55.
        dim: Number of parameters, 2, 3, 5, 10 or 20.
        instance: Number of the instance, k.
        noise: As for ``SeveralObjectives``.
        seed: Seed of the noise.
    """
    a, b = PAIRS[checks.whole("number", number, 1, len(PAIRS)) - 1]
    first = BBOB(a, dim, 2 * instance + 1, "none", seed=0)
    second = BBOB(b, dim, 2 * instance + 2, "none", seed=0)

    def truth(params: Params) -> list[float]:
        return [first.noiseless(params), second.noiseless(params)]

    nadir = [first.noiseless(second.solution), second.noiseless(first.solution)]
    name = f"pair{number}-d{dim}"
    return SeveralObjectives(name, first.space, truth, nadir, noise, seed=seed)


def zdt(number: int, dim: int, noise: float = 0.0, seed: int | None = None) -> SeveralObjectives:
    """Return ZDT1, ZDT2 or ZDT3 (Zitzler, Deb and Thiele 2000), with the reference (1.1, 1.1)."""
    checks.whole("number", number, 1, 3)

    def truth(params: Params) -> list[float]:
        first, *others = _values(params)
        g = 1 + 9 * sum(others) / len(others)
        share = first / g
        if number == 1:
            shape = 1 - math.sqrt(share)
        elif number == 2:
            shape = 1 - share**2
        else:
            shape = 1 - math.sqrt(share) - share * math.sin(10 * math.pi * first)
        return [first, g * shape]

    space = Space([(0.0, 1.0)] * dim)
    return SeveralObjectives(f"zdt{number}-d{dim}", space, truth, [1.1, 1.1], noise, seed=seed)


def dtlz2(
    objectives: int, dim: int, noise: float = 0.0, seed: int | None = None
) -> SeveralObjectives:
    """Return DTLZ2 (Deb, Thiele, Laumanns and Zitzler 2002): the front is a part of a sphere; the reference is 1.1."""

    def truth(params: Params) -> list[float]:
        x = _values(params)
        radius = 1 + sum((value - 0.5) ** 2 for value in x[objectives - 1 :])
        values = []
        for i in range(objectives):
            value = radius
            for angle in x[: objectives - 1 - i]:
                value *= math.cos(angle * math.pi / 2)
            if i > 0:
                value *= math.sin(x[objectives - 1 - i] * math.pi / 2)
            values.append(value)
        return values

    space = Space([(0.0, 1.0)] * dim)
    name = f"dtlz2-{objectives}-d{dim}"
    return SeveralObjectives(name, space, truth, [1.1] * objectives, noise, seed=seed)


def _values(params: Params) -> list[float]:
    """Return the values of parameters without names."""
    assert not isinstance(params, dict)
    return [float(value) for value in params]


_NETWORK = Space(
    {
        "width": Int(2, 64, log=True),
        "layers": Int(1, 3),
        "learning_rate_init": Float(1e-4, 1e-1, log=True),
        "alpha": Float(1e-6, 10.0, log=True),
        "activation": Choice(["relu", "tanh"]),
    }
)

_FOREST = Space(
    {
        "n_estimators": Int(1, 64, log=True),
        "max_depth": Int(1, 16, log=True),
        "min_samples_leaf": Int(1, 30, log=True),
        "max_features": Float(0.05, 1.0),
    }
)


def network(data: str, noise: float = 0.0, seed: int | None = None) -> SeveralObjectives:
    """Return error and prediction time of a neural network on data of ``LearnerOnData``.

    The error is measured on a fixed half of the data, after training on the other half. The time is the number of
    multiplications of one prediction, which does not depend on the machine.
    """
    split = _Split(data)

    def truth(params: Params) -> list[float]:
        from sklearn import neural_network

        assert isinstance(params, dict)
        kind: Any = neural_network.MLPClassifier
        if split.is_regression:
            kind = neural_network.MLPRegressor
        sizes = [params["width"]] * params["layers"]
        options = {k: v for k, v in params.items() if k not in ("width", "layers")}
        model = kind(hidden_layer_sizes=sizes, max_iter=20, random_state=0, **options)
        error = split.error(model)
        return [error, float(sum(weights.size for weights in model.coefs_))]

    return SeveralObjectives(f"network-{data}", _NETWORK, truth, None, noise, 32, seed)


def forest(data: str, noise: float = 0.0, seed: int | None = None) -> SeveralObjectives:
    """Return error, as for ``network``, and size of a random forest: the number of the nodes of its trees."""
    split = _Split(data)

    def truth(params: Params) -> list[float]:
        from sklearn import ensemble

        assert isinstance(params, dict)
        kind: Any = ensemble.RandomForestClassifier
        if split.is_regression:
            kind = ensemble.RandomForestRegressor
        model = kind(random_state=0, **params)
        error = split.error(model)
        return [error, float(sum(tree.tree_.node_count for tree in model.estimators_))]

    return SeveralObjectives(f"forest-{data}", _FOREST, truth, None, noise, 32, seed)


class _Split:
    """A fixed split of data into two halves, of at most 300 rows each."""

    def __init__(self, data: str) -> None:
        from sklearn.model_selection import train_test_split

        X, y = standardized(data)
        size = min(300, len(y) // 2)
        parts = train_test_split(X, y, train_size=size, test_size=size, random_state=0)
        self._X, self._X_test, self._y, self._y_test = parts
        self.is_regression: bool = y.dtype == float

    def error(self, model: Any) -> float:
        """Train a model on one half, and return one minus its score on the other."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of training that ends early
            return 1 - float(model.fit(self._X, self._y).score(self._X_test, self._y_test))


def _pairs(first: int, instance: int) -> dict[str, Callable[..., SeveralObjectives]]:
    """Return every fourth pair from a number on, in 5 and 10 dimensions in turn."""
    problems = {}
    for index, number in enumerate(range(first, len(PAIRS) + 1, 4)):
        dim = 5
        if index % 2 == 1:
            dim = 10
        problems[f"pair{number}-d{dim}"] = partial(pair, number, dim, instance)
    return problems


DEVELOPMENT: dict[str, Callable[..., SeveralObjectives]] = {
    **_pairs(1, 1),
    "zdt1-d5": partial(zdt, 1, 5),
    "zdt2-d5": partial(zdt, 2, 5),
    "zdt3-d5": partial(zdt, 3, 5),
    "dtlz2-2-d5": partial(dtlz2, 2, 5),
    "dtlz2-3-d5": partial(dtlz2, 3, 5),
    "network-digits": partial(network, "digits"),
    "forest-wine": partial(forest, "wine"),
}
"""Problems to develop on; each takes ``noise`` and ``seed``."""

HELD_OUT: dict[str, Callable[..., SeveralObjectives]] = {
    **_pairs(2, 7),
    "zdt1-d8": partial(zdt, 1, 8),
    "zdt3-d6": partial(zdt, 3, 6),
    "dtlz2-2-d8": partial(dtlz2, 2, 8),
    "dtlz2-3-d6": partial(dtlz2, 3, 6),
    "network-diabetes": partial(network, "diabetes"),
    "forest-housing": partial(forest, "housing"),
}
"""Problems for the reported figures; nothing was tuned on them."""
