"""Contextual bandits: ten actions on a line (Zenati et al. 2022, Sec. 5 and App. F), and classes of examples."""

from __future__ import annotations

import math
from abc import abstractmethod

import torch
from gpytorch.kernels import Kernel, ProductKernel, RBFKernel
from torch import Tensor

from experiments.problems.base import RowNumbers, generators, sklearn_datasets, unit_scaled
from experiments.problems.rkhs import stationary_kernel
from kbo._base import checks
from kbo.bandit.problem import Bandit
from kbo.errors import InvalidInput

ACTIONS = (0.08, 0.70, 0.82, 0.28, 0.63, 0.0, 0.05, 0.50, 0.81, 0.04)
"""The actions of every round, in the order of the paper's code."""


class ContextualBandit(Bandit):
    """A bandit with contexts: each round has a context x, uniform in [0, 1]^d, and the points (x, a) of ten actions a.

    The rewards have edges or kinks, so no RKHS of a smooth kernel contains them. ``norm_bound`` is nominal, and a bound
    that uses it has no guarantee. The best of the ten actions is often worse than the best real number.

    Args:
        lengthscale: Lengthscale of the Gaussian kernel on (x, a); on ``Bump``, 0.1 makes all contexts nearly
            uncorrelated.
        noise_std: Standard deviation of the Gaussian noise.
        norm_bound: Norm bound given to methods.
        seed: Seed of contexts and noise.

    Attributes:
        actions: The actions [A 1].
        context: The context [d] of the present round; None before the first.
    """

    context_dim = 1

    def __init__(
        self,
        lengthscale: float = 0.1,
        noise_std: float = 0.1,
        norm_bound: float = 1.0,
        seed: int = 0,
    ) -> None:
        self.kernel: Kernel = stationary_kernel("rbf", lengthscale)
        self.noise_std: float = checks.positive("noise_std", noise_std)
        self.norm_bound: float = checks.positive("norm_bound", norm_bound)
        actions = torch.tensor(ACTIONS, dtype=torch.float64, device="cpu")
        self.actions: Tensor = actions.unsqueeze(-1)
        self.n_arms: int = len(ACTIONS)
        self.context: Tensor | None = None
        seed = checks.seed(seed)
        self._context_rng, noise_rng = generators(3 * seed + 1, 3 * seed + 2)
        self.noise_rng: torch.Generator = noise_rng

    def arms(self) -> Tensor:
        """The joint points (x, a) [A d+1] of the next round, whose context x is drawn now."""
        self.context = torch.rand(
            self.context_dim, generator=self._context_rng, dtype=torch.float64, device="cpu"
        )
        return torch.cat([self.context.expand(self.n_arms, -1), self.actions], -1)

    def mean(self, X: Tensor) -> Tensor:
        checks.rows("X", X, dim=self.context_dim + 1)
        return self.reward(X[:, :-1], X[:, -1])

    @abstractmethod
    def reward(self, x: Tensor, a: Tensor) -> Tensor:
        """Mean reward [n] of actions a [n] in contexts x [n d]."""

    def standard_noise(self, X: Tensor) -> Tensor:
        return torch.randn(len(X), generator=self.noise_rng, dtype=X.dtype, device="cpu")


class Bump(ContextualBandit):
    """The reward ``max(0, 1 - |a - 0.81| - <w, x - x0>)``, with contexts of five numbers."""

    context_dim = 5

    def reward(self, x: Tensor, a: Tensor) -> Tensor:
        offset = (x - x.new_tensor(_BUMP_CENTRE)) @ x.new_tensor(_BUMP_SLOPE)
        return (1 - (a - 0.81).abs() - offset).clamp_min(0)


_BUMP_CENTRE = (0.10854, 0.51165, 0.90977, 0.21838, 0.36310)
_BUMP_SLOPE = (0.70995, 0.42278, -0.21411, -0.53740, -0.23965)


class Chessboard(ContextualBandit):
    """A reward per cell (floor(4x), floor(4a)): 1 on three cells, 0.5 on three others, else 0."""

    def reward(self, x: Tensor, a: Tensor) -> Tensor:
        rows = (4 * x[:, 0]).floor()
        columns = (4 * a).floor()
        reward = torch.zeros_like(a)
        for (row, column), value in _CHESSBOARD.items():
            reward[(rows == row) & (columns == column)] = value
        return reward


_CHESSBOARD = {(1, 0): 1.0, (1, 2): 1.0, (3, 2): 1.0, (0, 1): 0.5, (2, 1): 0.5, (2, 3): 0.5}


class StepDiagonal(ContextualBandit):
    """1 where ``|x - (a + 0.15)| < 0.1``; else 0.5 where ``|x - (a - 0.15)| < 0.1``; else 0."""

    def reward(self, x: Tensor, a: Tensor) -> Tensor:
        upper = (x[:, 0] - (a + 0.15)).abs() < 0.1
        lower = (x[:, 0] - (a - 0.15)).abs() < 0.1
        return torch.where(upper, 1.0, torch.where(lower, 0.5, 0.0)).to(a)


# Data sets of scikit-learn, and the number of principal components that are used; None uses the features.
_COMPONENTS = {"digits": 10, "wine": None, "breast_cancer": None}


class ClassificationBandit(Bandit):
    """Classification as a bandit: a round shows an example, and the arms are its classes; the right one has reward 1.

    Other classes have reward 0. With probability ``flip`` the reward is inverted, so the mean reward is ``1 - flip``
    for the right class and ``flip`` for others. An arm is the features, scaled to [0, 1], and the class as one-hot
    columns of length 1/sqrt(2), so two classes are at distance 1. Rewards are 0 or 1, so the noise is 0.5-sub-Gaussian
    for any ``flip``, and ``noise_std`` is 0.5. The mean reward is defined only on the examples, and ``norm_bound`` is
    nominal: the norm of a function that separates the classes is unknown.

    Args:
        name: "digits" (ten principal components, 10 classes), "wine" (13 features, 3) or "breast_cancer" (30, 2).
        flip: Probability that a reward is flipped.
        lengthscale: Lengthscale of the Gaussian kernel on the features, as a multiple of the median distance of two
            examples.
        action_lengthscale: Lengthscale of the Gaussian kernel on the one-hot columns.
        norm_bound: Norm bound given to methods.
        seed: Seed of examples and flips.

    Attributes:
        examples: The features of all examples [N d].
        labels: Their classes [N].
        actions: The classes as columns [A A].
        context: The features [d] of the present example; None before the first round.

    Raises:
        InvalidInput: An unknown data set, or scikit-learn is not installed.
    """

    def __init__(
        self,
        name: str = "digits",
        flip: float = 0.1,
        lengthscale: float = 1.0,
        action_lengthscale: float = 0.3,
        norm_bound: float = 10.0,
        seed: int = 0,
    ) -> None:
        self.flip: float = checks.non_negative("flip", flip)
        if self.flip >= 0.5:
            raise InvalidInput(
                f"flip must be below 0.5, got {flip}: from there on the wrong classes have the rewards."
            )
        self.noise_std: float = 0.5
        self.norm_bound: float = checks.positive("norm_bound", norm_bound)
        examples, labels = _load(name)
        self.examples: Tensor = examples
        self.labels: Tensor = labels
        self.n_arms: int = int(self.labels.max()) + 1
        one_hot = torch.eye(self.n_arms, dtype=torch.float64, device="cpu")
        self.actions: Tensor = one_hot / math.sqrt(2)
        factor = checks.positive("lengthscale", lengthscale)
        median_distance = float(torch.pdist(self.examples[:500]).median())
        checks.positive("action_lengthscale", action_lengthscale)
        d = self.examples.shape[-1]
        features = RBFKernel(active_dims=tuple(range(d))).double()
        classes = RBFKernel(active_dims=tuple(range(d, d + self.n_arms))).double()
        features.initialize(lengthscale=factor * median_distance)
        classes.initialize(lengthscale=action_lengthscale)
        self.kernel: Kernel = ProductKernel(features, classes).requires_grad_(False)
        self.context: Tensor | None = None
        self._numbers = RowNumbers(self.examples)
        seed = checks.seed(seed)
        self._example_rng, noise_rng = generators(3 * seed + 1, 3 * seed + 2)
        self.noise_rng: torch.Generator = noise_rng

    def arms(self) -> Tensor:
        """The joint points [A d+A] of the next round, whose example is drawn now, with replacement."""
        drawn = torch.randint(len(self.examples), (), generator=self._example_rng, device="cpu")
        self.context = self.examples[int(drawn)]
        return torch.cat([self.context.expand(self.n_arms, -1), self.actions], -1)

    def mean(self, X: Tensor) -> Tensor:
        """Mean reward [n] of joint points X [n d+A]; each is an example of the data set and a class.

        Raises:
            InvalidInput: A row is no such point; the reward is unknown elsewhere.
        """
        return self.flip + (1 - 2 * self.flip) * self._right(X).to(X)

    def observe(self, X: Tensor) -> Tensor:
        right = self._right(X)
        uniform = torch.rand(len(X), generator=self.noise_rng, dtype=torch.float64, device="cpu")
        return (right ^ (uniform < self.flip)).to(X)

    def _right(self, X: Tensor) -> Tensor:
        """Whether each row of X [n d+A] names the class of its example, [n]."""
        d = self.examples.shape[-1]
        checks.rows("X", X, self.examples, d + self.n_arms)
        numbers = self._numbers(X[:, :d])
        named = X[:, d:].argmax(-1)
        if bool((numbers < 0).any()):
            raise InvalidInput(
                "X has a row that is no example of the data set, and rewards are known for examples only: use rows of "
                "arms()."
            )
        if not torch.equal(X[:, d:], self.actions[named]):
            raise InvalidInput("X has a row whose last columns are no class: use rows of arms().")
        return self.labels[numbers] == named


def _load(name: str) -> tuple[Tensor, Tensor]:
    """Features [N d], scaled to [0, 1], and classes [N] of a data set."""
    if name not in _COMPONENTS:
        raise InvalidInput(f"unknown data set {name!r}; known: {', '.join(_COMPONENTS)}.")
    features, classes = getattr(sklearn_datasets(), f"load_{name}")(return_X_y=True)
    X = torch.tensor(features, dtype=torch.float64, device="cpu")
    count = _COMPONENTS[name]
    if count is not None:
        X = _principal_components(X, count)
    return unit_scaled(X), torch.tensor(classes, device="cpu")


def _principal_components(X: Tensor, count: int) -> Tensor:
    """The first principal components [N count] of X [N d]; the largest entry of each direction is positive."""
    centred = X - X.mean(0)
    directions = torch.linalg.eigh(centred.T @ centred).eigenvectors[:, -count:].flip(-1)
    largest = directions.gather(0, directions.abs().argmax(0, keepdim=True))
    return centred @ (directions * largest.sign())
