"""Widths as pure functions of numbers: the multiplier of the posterior standard deviation in each theorem.

A paper that states a radius in the ``V^-1`` norm has it divided by ``sqrt(ridge)`` here, so that every width
multiplies ``sqrt(variance)`` with the variance of the function itself, never divided by the ridge.
Arguments may be floats or tensors; ``log_det`` is twice the information gain.
"""

from __future__ import annotations

import math

import torch
from scipy.special import ndtri_exp
from torch import Tensor

Number = float | Tensor


def abbasi_yadkori(log_det: Number, ridge: float, noise_std: float, norm_bound: float, delta: float) -> Tensor:
    """``(sigma sqrt(log_det + 2 ln(1/delta)) + sqrt(ridge) B) / sqrt(ridge)``.

    Valid for all n and x at once with probability 1 - delta, at a ridge fixed in advance.
    Abbasi-Yadkori (2012), Theorem 3.11; Durand, Maillard & Pineau (2018), Theorem 1.
    """
    noise = noise_std * torch.sqrt(torch.as_tensor(log_det) + 2 * math.log(1 / delta))
    return noise / math.sqrt(ridge) + norm_bound


def calandriello(
    leverage_sum: Number, trace: float, ridge: float, eps: float, noise_std: float, norm_bound: float, delta: float
) -> Tensor:
    """BKB, Calandriello et al. (2019), Theorem 2, for leverages within ``alpha = (1 + eps) / (1 - eps)``.

    ``(sigma sqrt(alpha (1 + ln(1 + Tr K / ridge)) leverage_sum + 2 ln(1/delta)) + (1 + 1/sqrt(1 - eps)) sqrt(ridge) B)
    / sqrt(ridge)``. The bound of the log-determinant is the one that its proof needs: in print, ``ln(kappa^2 t)`` is
    0 at t = 1 and lacks a factor 1/ridge. ``Tr K <= kappa^2 t``, with equality for stationary kernels.
    """
    gain = (1 + eps) / (1 - eps) * log_factor(trace, ridge) * leverage_sum
    noise = noise_std * torch.sqrt(torch.as_tensor(gain) + 2 * math.log(1 / delta))
    return noise / math.sqrt(ridge) + (1 + 1 / math.sqrt(1 - eps)) * norm_bound


def calandriello_printed(
    leverage_sum: Number, trace: float, ridge: float, eps: float, noise_std: float, norm_bound: float, delta: float
) -> Tensor:
    """The same as printed: ``2 xi sqrt(alpha ln(kappa^2 t) leverage_sum + ln(1/delta)) + ...``; comparison only."""
    gain = (1 + eps) / (1 - eps) * math.log(max(trace, 1.0)) * torch.as_tensor(leverage_sum)
    noise = 2 * noise_std * torch.sqrt(gain + math.log(1 / delta))
    return noise / math.sqrt(ridge) + (1 + 1 / math.sqrt(1 - eps)) * norm_bound


def zenati(
    leverage_sum: Number,
    trace: float,
    ridge: float,
    projection: float,
    noise_std: float,
    norm_bound: float,
    delta: float,
    factor: float = 1.0,
) -> Tensor:
    """``(sigma sqrt(2 ln(1/delta) + factor ln(e + e Tr K / ridge) d_eff) + (sqrt(ridge) + sqrt(mu)) B) / sqrt(ridge)``.

    K-UCB (projection = 0) and EK-UCB of Zenati et al. (2022), Lemma 4.1, if ``|K - K~| <= mu = projection``; the factor
    2 that is printed is unnecessary. ``leverage_sum`` is at least the effective dimension d_eff.
    """
    gain = factor * log_factor(trace, ridge) * leverage_sum
    noise = noise_std * torch.sqrt(torch.as_tensor(gain) + 2 * math.log(1 / delta))
    return noise / math.sqrt(ridge) + (1 + math.sqrt(projection / ridge)) * norm_bound


def valko(n_points: int, horizon: int, ridge: float, noise_std: float, norm_bound: float, delta: float) -> float:
    """``(sigma sqrt(2 ln(2 T N S / delta)) + sqrt(ridge) B) / sqrt(ridge)`` with ``S = ceil(log2 T)`` stages.

    SupK-UCB of Valko et al. (2013) with its constants worked out: within a stage noise and choices are independent, so
    one Hoeffding bound per round, arm and stage is enough; the weights of the noise have norm at most
    ``sqrt(leverage)``.
    """
    stages = max(1, math.ceil(math.log2(horizon)))
    return noise_std * math.sqrt(2 * math.log(2 * horizon * n_points * stages / delta) / ridge) + norm_bound


def log_factor(trace: float, ridge: float) -> float:
    """``ln(e + e Tr K / ridge)``: the log-determinant is at most this times the effective dimension."""
    return 1 + math.log1p(trace / ridge)


def chowdhury_gopalan(log_det: Number, n: int, eta: float, noise_std: float, norm_bound: float, delta: float) -> Tensor:
    """``sigma sqrt(log_det + n eta + 2 ln(1/delta)) + B`` at ridge ``1 + eta`` (``log_det`` at that ridge).

    Valid for all n and x at once with probability 1 - delta. IGP-UCB of Chowdhury & Gopalan (2017),
    Theorem 2, with the factor ``n eta`` of its proof instead of the constant 2 that ``eta = 2/T`` gives.
    """
    return noise_std * torch.sqrt(torch.as_tensor(log_det) + n * eta + 2 * math.log(1 / delta)) + norm_bound


def wang_de_freitas(log_det: Number, noise_std: float, norm_bound: float, delta: float) -> Tensor:
    """Comparison only: ``ell`` of Durand et al. (2018), Lemma 3 (after Wang & de Freitas 2014).

    With ``g = log_det / 2`` at ridge ``noise_std^2``, the only ridge for which it holds:
    ``ell^2 = B^2 + sqrt(8 g ln(2/delta)) + sqrt(2 ln(4/delta)) B + 2 g + 2 sigma ln(2/delta)``.
    It holds for one n at a time and is not equivariant to units, as printed.
    """
    g = torch.as_tensor(log_det) / 2
    log2, log4 = math.log(2 / delta), math.log(4 / delta)
    square = norm_bound**2 + torch.sqrt(8 * g * log2) + math.sqrt(2 * log4) * norm_bound + 2 * g + 2 * noise_std * log2
    return torch.sqrt(square)


def srinivas(n_points: int, t: int, delta: float) -> float:
    """``sqrt(2 ln(|X| t^2 pi^2 / (6 delta)))`` for a Gaussian-process prior on a finite set.

    GP-UCB of Srinivas et al. (2010), Theorem 1; t >= 1 counts the rounds, the ridge is the noise variance.
    """
    return math.sqrt(2 * math.log(n_points * t**2 * math.pi**2 / (6 * delta)))


def exact_tail(width: float) -> float:
    """``w`` with ``P(|Z| > w) = exp(-width^2 / 2)`` for a standard normal Z; at most ``width``.

    Union bounds such as ``srinivas`` and ``contal`` bound each of their tails by ``exp(-width^2 / 2)``; with the exact
    quantile every event keeps its share of delta (docs/theory/gaussian.md). For ``srinivas``, w is the normal quantile
    at ``1 - 3 delta / (pi^2 t^2 |X|)``.
    """
    return -float(ndtri_exp(-(width**2) / 2 - math.log(2)))


def normal_mixture(variance: Tensor, spread: Tensor, n_points: int, delta: float) -> Tensor:
    """``sqrt((1 + v / spread) (ln(1 + spread / v) + 2 ln(|X| / delta)))`` at posterior variances v [...].

    For a Gaussian-process prior on a finite set, at all rounds at once, without a union over rounds:
    docs/theory/gaussian.md. ``spread`` is any number fixed beforehand, in units of the variance.
    """
    tiny = torch.finfo(variance.dtype).tiny
    ratio = (variance / spread.clamp_min(tiny)).clamp_min(tiny)
    return torch.sqrt((1 + ratio) * (torch.log1p(1 / ratio) + 2 * math.log(n_points / delta)))


def contal(size: int, level: int, t: int, delta: float) -> float:
    """``sqrt(2 ln((size + 1) level^2 t^2 pi^4 / (36 delta)))``, for a level of a chain that adds up to ``size`` points.

    Contal, Malherbe & Vayatis (2015), Algorithm 1, with the ``36 delta`` that a union over levels and rounds needs;
    t >= 1 counts the rounds, the ridge is the noise variance.
    """
    return math.sqrt(2 * math.log((size + 1) * level**2 * t**2 * math.pi**4 / (36 * delta)))
