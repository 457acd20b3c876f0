"""What a problem is: something to tune, or a bandit that offers arms."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from kbo.space import Params, Space


class TuningProblem(ABC):
    """Something to tune, called with parameters of its space; smaller is better.

    Attributes:
        name: Its name on the command line.
        space: Its parameters.
        optimum: The least value without noise, if it is known.
    """

    name: str
    space: Space
    optimum: float | None = None

    @abstractmethod
    def __call__(self, params: Params) -> float:
        """One noisy evaluation."""

    def noiseless(self, params: Params) -> float | None:
        """The value without noise, if it is known."""
        return None


class Bandit(ABC):
    """A problem that offers arms every round and answers a choice with a noisy reward.

    Attributes:
        kernel: A kernel whose RKHS contains the mean reward, or a sensible one where none is known to.
        noise_std: Sub-Gaussian constant of the noise; the standard deviation of Gaussian noise.
        norm_bound: Bound of the RKHS norm of the mean reward; nominal where no kernel is known to contain it.
        norm_is_known: Whether the mean reward is known to have at most that norm.
        n_arms: Arms per round.
        fixed_arms: The arms, if every round offers the same ones; else None.
    """

    kernel: Kernel
    noise_std: float
    norm_bound: float
    norm_is_known = False
    n_arms: int
    fixed_arms: Tensor | None = None

    @abstractmethod
    def arms(self) -> Tensor:
        """The arms of the next round, [A d]."""

    @abstractmethod
    def mean(self, X: Tensor) -> Tensor:
        """Mean reward [n] of X [n d]."""

    @abstractmethod
    def observe(self, X: Tensor) -> Tensor:
        """Noisy rewards [n] of X [n d]."""


def normal_noise(count: int, generator: torch.Generator) -> Tensor:
    """Independent standard normal numbers [count], one draw of the generator each.

    So the noise of round t does not depend on how many observations came together.
    """
    u = torch.rand(count, generator=generator, dtype=torch.float64)
    return torch.special.ndtri(u.clamp_min(torch.finfo(u.dtype).tiny))
