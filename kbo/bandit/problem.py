"""The base class of bandit problems."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from gpytorch.kernels import Kernel
from torch import Tensor


class Bandit(ABC):
    """A problem that offers arms every round and answers a choice with a noisy reward.

    A subclass defines ``mean``, and either sets ``fixed_arms`` or defines ``arms``. For Gaussian
    noise it sets ``noise_rng``; for other noise it defines ``standard_noise`` or ``observe``.

    Attributes:
        kernel: A kernel whose RKHS contains the mean reward; if none is known, a sensible kernel.
        noise_std: Sub-Gaussian constant of the noise; the standard deviation of Gaussian noise.
        norm_bound: Bound of the RKHS norm of the mean reward; nominal if no RKHS is known to
            contain it.
        norm_is_known: Whether the mean reward is known to have at most that norm.
        n_arms: Arms per round.
        fixed_arms: The arms, if they are the same in every round; else None.
        noise_rng: Generator of the noise alone, so that the noise of a round does not depend on
            earlier choices.
    """

    kernel: Kernel
    noise_std: float
    norm_bound: float
    norm_is_known = False
    n_arms: int
    fixed_arms: Tensor | None = None
    noise_rng: torch.Generator

    def arms(self) -> Tensor:
        """Return the arms of the next round, [A d]."""
        if self.fixed_arms is None:
            raise NotImplementedError(
                f"{type(self).__name__} must set fixed_arms or define arms()."
            )
        return self.fixed_arms

    @abstractmethod
    def mean(self, X: Tensor) -> Tensor:
        """Return the mean rewards [n] of arms X [n d]."""

    def observe(self, X: Tensor) -> Tensor:
        """Return noisy rewards [n] of arms X [n d]."""
        return self.mean(X) + self.noise_std * self.standard_noise(X)

    def standard_noise(self, X: Tensor) -> Tensor:
        """Return independent noise [n] of mean 0 and variance 1, for arms X [n d].

        Each number is one draw of ``noise_rng``, so the noise of round t does not depend on the
        grouping of observations.
        """
        u = torch.rand(len(X), generator=self.noise_rng, dtype=torch.float64, device="cpu")
        return self.noise_quantile(u.clamp_min(torch.finfo(u.dtype).tiny)).to(X)

    def noise_quantile(self, u: Tensor) -> Tensor:
        """Return the quantiles [n] of the standardised noise at probabilities u [n]."""
        return torch.special.ndtri(u)
