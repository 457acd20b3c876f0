"""Named algorithms: posterior + confidence + rule, in one registry for every front end.

A new method is one entry here. ``make`` turns a name and the numbers of a problem into a ``Method``, which plays
finite action sets (``choose``) and continuous boxes (``model`` and ``acquisition``) alike.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from kbo import checks
from kbo.acquisition import KernelUCB
from kbo.confidence import (
    PRACTICAL_MULTIPLE,
    Confidence,
    FiniteSet,
    ImprovedGPUCB,
    MartingaleMixture,
    SelfNormalized,
    UnknownNorm,
)
from kbo.errors import InvalidInput
from kbo.models import KernelRidgeGP
from kbo.regression import KernelRidge, Regression


@dataclass(frozen=True)
class Setting:
    """The numbers that a recipe may need; ``ridge = noise_std^2 / scale`` unless the recipe fixes it."""

    kernel: Kernel
    noise_std: float
    norm_bound: float
    delta: float
    scale: float = 1.0
    horizon: int | None = None
    n_points: int | None = None
    ridges: list[float] | None = None


@dataclass(frozen=True)
class Method:
    """A posterior, a confidence and a rule.

    Attributes:
        name: Its name in the registry.
        kernel: The kernel of the posterior.
        ridge: The ridge of the posterior.
        confidence: The bound whose upper end is maximised; None chooses uniformly at random.
    """

    name: str
    kernel: Kernel
    ridge: float
    confidence: Confidence | None

    def state(self) -> KernelRidge:
        """An empty posterior."""
        return KernelRidge(self.kernel, self.ridge)

    def choose(self, state: Regression, points: Tensor, generator: torch.Generator | None = None) -> int:
        """The index of the next point among ``points`` [A d]; ties go to the first."""
        if self.confidence is None:
            return int(torch.randint(len(points), (), generator=generator))
        return self.confidence.leader(state, points)[0]

    def model(self, train_X: Tensor, train_Y: Tensor) -> KernelRidgeGP:
        """The posterior as a BoTorch model of train_X [n d], train_Y [n 1]."""
        return KernelRidgeGP(train_X, train_Y, self.kernel, self.ridge)

    def acquisition(self, model: KernelRidgeGP) -> KernelUCB:
        """The rule as a BoTorch acquisition function."""
        if self.confidence is None:
            raise InvalidInput(f"{self.name!r} chooses at random: it has no acquisition function.")
        return KernelUCB(model, self.confidence)


def names() -> list[str]:
    """The names that ``make`` knows."""
    return sorted(_RECIPES)


def make(
    name: str,
    kernel: Kernel,
    noise_std: float,
    norm_bound: float,
    delta: float,
    *,
    scale: float = 1.0,
    horizon: int | None = None,
    n_points: int | None = None,
    ridges: list[float] | None = None,
) -> Method:
    """The method of that name for a problem.

    Args:
        name: One of ``names()``.
        kernel: An unbatched GPyTorch kernel.
        noise_std: Sub-Gaussian constant of the noise, in units of the targets.
        norm_bound: Bound of the RKHS norm of the function; not used by "cmm-ucb-doubling" and "cmm-ucb-practical",
            which do without.
        delta: Probability that the bounds may fail.
        scale: Covariance scale c of the mixtures; the ridge is ``noise_std^2 / c``.
        horizon: Number of rounds T, needed by "igp-ucb" (its ridge is 1 + 2 / T).
        n_points: Size of the finite set, needed by "gp-ucb".
        ridges: The grid of "dmm-ucb", instead of the paper's.

    Raises:
        InvalidInput: An unknown name (the message has near ones), or a number that the recipe needs is missing.
    """
    if name not in _RECIPES:
        near = difflib.get_close_matches(str(name), _RECIPES, n=3, cutoff=0.3)
        hint = f" did you mean {' or '.join(map(repr, near))}?" if near else ""
        raise InvalidInput(f"unknown method {name!r}:{hint} Known: {', '.join(names())}.")
    checks.positive("scale", scale)
    for what, number in (("horizon", horizon), ("n_points", n_points)):
        if number is not None:
            checks.positive(what, number)
    return _RECIPES[name](name, Setting(kernel, noise_std, norm_bound, delta, scale, horizon, n_points, ridges))


def _needed(name: str, what: str, value: int | None) -> int:
    if value is None:
        raise InvalidInput(f"method {name!r} needs {what}: pass {what}=... to recipes.make.")
    return value


def _random(name: str, s: Setting) -> Method:
    return Method(name, s.kernel, s.noise_std**2 / s.scale, None)


def _gp_ucb(name: str, s: Setting) -> Method:
    return Method(name, s.kernel, s.noise_std**2, FiniteSet(_needed(name, "n_points", s.n_points), s.delta))


def _igp_ucb(name: str, s: Setting) -> Method:
    eta = 2 / _needed(name, "horizon", s.horizon)
    return Method(name, s.kernel, 1 + eta, ImprovedGPUCB(s.noise_std, s.norm_bound, s.delta, eta))


def _ay_gp_ucb(name: str, s: Setting) -> Method:
    return Method(name, s.kernel, s.noise_std**2 / s.scale, SelfNormalized(s.noise_std, s.norm_bound, s.delta))


def _amm_ucb(name: str, s: Setting) -> Method:
    confidence = MartingaleMixture(s.noise_std, s.norm_bound, s.delta, "amm", s.scale)
    return Method(name, s.kernel, confidence.mixture_ridge, confidence)


def _dmm_ucb(name: str, s: Setting) -> Method:
    confidence = MartingaleMixture(s.noise_std, s.norm_bound, s.delta, "dmm", s.scale, s.ridges)
    return Method(name, s.kernel, confidence.mixture_ridge, confidence)


def _cmm_ucb(name: str, s: Setting) -> Method:
    confidence = MartingaleMixture(s.noise_std, s.norm_bound, s.delta, "cmm", s.scale)
    return Method(name, s.kernel, confidence.mixture_ridge, confidence)


def _cmm_ucb_doubling(name: str, s: Setting) -> Method:
    confidence = UnknownNorm(s.noise_std, s.delta, scale=s.scale)
    return Method(name, s.kernel, s.noise_std**2 / s.scale, confidence)


def _cmm_ucb_practical(name: str, s: Setting) -> Method:
    confidence = UnknownNorm(s.noise_std, s.delta, scale=s.scale, multiple=PRACTICAL_MULTIPLE)
    return Method(name, s.kernel, s.noise_std**2 / s.scale, confidence)


_RECIPES: dict[str, Callable[[str, Setting], Method]] = {
    "random": _random,
    "gp-ucb": _gp_ucb,
    "igp-ucb": _igp_ucb,
    "ay-gp-ucb": _ay_gp_ucb,
    "amm-ucb": _amm_ucb,
    "dmm-ucb": _dmm_ucb,
    "cmm-ucb": _cmm_ucb,
    "cmm-ucb-doubling": _cmm_ucb_doubling,
    "cmm-ucb-practical": _cmm_ucb_practical,
}
