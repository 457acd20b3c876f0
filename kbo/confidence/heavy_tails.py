"""Bounds for noise of which only the variance is bounded: targets are clipped before a posterior sees them.

A target is clipped to ``[l - b, u + b]``, with l and u the bounds of the function at its point before it was observed,
and b a level of one's own. What is left of the noise has a small bias and is sub-Gaussian, of a level that depends on
``u - l + b``: an observation with a weight. docs/theory/heavy_tails.md proves all formulas.

On paper, s^2 the largest variance                              | in code
``beta = (sqrt(s^2 + b^2) - b) / 2``, at least the bias           | ``bias_at``
``kappa = s sqrt(sinh(2 L) / (2 L))``, ``L = ln(c / s)``          | ``level``, the sub-Gaussian constant
``sqrt(sum of w beta^2)``, ``w = s^2 / kappa^2``                  | ``Clipped.bias``
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from kbo import checks
from kbo.confidence import rounding
from kbo.confidence.base import SubGaussian, WidthConfidence
from kbo.errors import InvalidInput
from kbo.linalg import safe_sqrt
from kbo.regression import Posterior, View
from kbo.regression.views.view import given

_LEVELS = [0.5 * 1.05**j for j in range(100)]
"""Candidates for b, in units of s."""


class HeavyTailed(SubGaussian, WidthConfidence):
    """Bounds for noise with a bounded variance, on a posterior of clipped targets: ``Clipped(state, bounds)``.

    The width is that of the martingale mixture of Flynn & Reeb (2024) at the state's ridge, and the bias of clipping.
    Chowdhury & Gopalan (2019) truncate at fixed levels; here they follow the bounds, which is tighter.
    A ridge of about ``(4 noise_std / norm_bound)^2`` is a good choice.

    Args:
        noise_std: Bound s of the standard deviation of the noise given the past, in units of the targets.
        norm_bound: Bound of the RKHS norm of the function, in units of the targets over sqrt(kernel).
        delta: Probability that the bounds may fail, ever and anywhere.

    Raises:
        InvalidInput: A number out of its range.

    Example:
        >>> bounds = HeavyTailed(noise_std=0.5, norm_bound=3.0, delta=0.05)
        >>> state = Clipped(KernelRidge(kernel, ridge=0.05), bounds)
        >>> state.update(X, y)
        >>> lower, upper = bounds.interval(state, candidates)
    """

    covers_sketches = covers_weights = covers_clipping = True

    def statement(self, scope: str) -> str:  # noqa: D102
        return (
            f"holds for {scope} with probability at least 1 - {self.delta:g}, if the function has norm at most "
            f"{self.norm_bound:g}, the noise, given the past, mean 0 and a variance of at most {self.noise_std:g}^2, "
            "and kernel and numbers were fixed beforehand"
        )

    def objections(self, state: Posterior) -> list[str]:
        """Return the reasons as for any confidence; one more unless these bounds have clipped the targets."""
        rule = state.clipping
        clipped = rule is not None and rule.numbers == self.numbers and rule.seen == state.n
        return super().objections(state) + ["the targets were not clipped by these bounds: use Clipped"] * (not clipped)

    @property
    def numbers(self) -> dict[str, float]:
        """The three numbers on which the levels of clipping depend."""
        return {"noise_std": self.noise_std, "norm_bound": self.norm_bound, "delta": self.delta}

    def width(self, state: Posterior) -> Tensor:
        """Return ``(sqrt(s^2 (log_det + 2 ln(1/delta)) + a B^2) + bias) / sqrt(a)``, []; wider on a sketch."""
        a, B, bias = state.ridge, self.norm_bound, 0.0 if state.clipping is None else state.clipping.bias
        gain = state.log_det() + rounding.log_det_error(state, a) + state.residual_log_det(a)
        noise = self.noise_std**2 * (gain + 2 * math.log(1 / self.delta))
        missed = B * state.residual_norm().to(noise).sqrt()
        cross = 2 * ((state.quad() + noise).sqrt() + bias) * missed
        return ((noise + cross + missed**2 + a * B**2).sqrt() + bias) / math.sqrt(a)


class Clipped(View):
    """A posterior that clips targets before it takes them in, for noise with a bounded variance.

    Args:
        state: The posterior without data; keep updating it here.
        bounds: The bounds that will be used; the targets are clipped around them.

    Raises:
        InvalidInput: The state has data already, or is of another kind.

    Attributes:
        seen: Observations that were clipped.
        bias: Bound of ``|W^1/2 (E[clipped targets] - f)|``, in units of the targets.
    """

    saved: tuple[str, ...] = ("state", "square", "seen", "given_weights", "numbers")

    def __init__(self, state: Posterior, bounds: HeavyTailed) -> None:
        super().__init__(state)
        if state.n:
            raise InvalidInput(f"state has {state.n} observations already: begin with an empty one and update it here.")
        self.bounds: HeavyTailed = checks.instance("bounds", bounds, HeavyTailed)
        self.numbers: dict[str, float] = bounds.numbers
        self.square: float = 0.0
        self.seen: int = 0
        self.given_weights: bool = False

    @property
    def clipping(self) -> Clipped:  # noqa: D102
        return self

    @property
    def weighted(self) -> bool:
        """Whether weights were given; those of clipping are part of the theorem."""
        return self.given_weights

    @property
    def bias(self) -> float:  # noqa: D102
        return math.sqrt(self.square)

    def update(self, X: Tensor, y: Tensor, weights: Tensor | None = None) -> None:
        """Add observations X [r d], y [r] in place, one after the other: each is clipped around the bounds before it.

        The standard deviation of an observation of weight w is at most ``noise_std / sqrt(w)``.
        """
        checks.observations(X, y)
        self.state.check(X)
        known = checks.weights(weights, y).tolist()
        self.state.prior_variance(X)  # a kernel that cannot evaluate a point is an error before any is added
        self.given_weights |= weights is not None
        for x, target, weight in zip(X.split(1), y.split(1), known, strict=True):
            self._observe(x, target, self.bounds.noise_std / math.sqrt(weight))

    def check_state_dict(self, state: dict[str, Any]) -> None:
        """Raise InvalidInput unless the targets of the state were clipped by bounds with the same numbers."""
        super().check_state_dict(state)
        if state["numbers"] != self.numbers:
            raise InvalidInput(f"these targets are clipped for {self.numbers}, the saved ones for {state['numbers']}.")

    @torch.no_grad()
    def _observe(self, x: Tensor, y: Tensor, s: float) -> None:
        most = self.bounds.norm_bound * safe_sqrt(self.state.prior_variance(x))
        lower, upper = self.bounds.interval(self, x)
        numbers = *(part.double() for part in (lower, upper, most)), self.state.log_det().to(x).double().reshape(1)
        least, largest, bound, log_det = torch.cat(numbers).tolist()
        lower, upper = max(least, -bound), min(largest, bound)
        if lower > upper:  # the assumptions are refuted
            lower, upper = -bound, bound
        radius = math.sqrt(log_det + 2 * math.log(1 / self.bounds.delta))
        best = min(_LEVELS, key=lambda t: radius * level(upper - lower, t * s, s) + self._spread(t * s, s))
        b = best * s
        weight = (self.bounds.noise_std / level(upper - lower, b, s)) ** 2
        self.square += weight * bias_at(b, s) ** 2
        self.seen += 1
        clipped = y.clamp(min=lower - b, max=upper + b)
        self.state.update(x, clipped, **given(y.new_tensor([weight])))
        self.changed()

    def _spread(self, b: float, s: float) -> float:
        """Return the bias of all observations together, if each had this one."""
        return math.sqrt(self.n + 1) * bias_at(b, s)


def bias_at(b: float, s: float) -> float:
    """Return ``(sqrt(s^2 + b^2) - b) / 2``, the largest ``E (e - b)+`` of noise e with standard deviation s."""
    return s * s / (2 * (math.hypot(s, b) + b))


def level(width: float, b: float, s: float) -> float:
    """Return the sub-Gaussian constant of noise of standard deviation s that was clipped.

    The better one of Hoeffding's, half the range, and that of Bennett's two-point law (Kearns & Saul 1998).

    Args:
        width: ``u - l``.
        b: How far below l and above u targets are clipped.
        s: The standard deviation before.
    """
    c = max(width + b + bias_at(b, s), s)
    log = 2 * math.log(c / s)
    two_point = s * math.sqrt(math.sinh(log) / log) if log > 1e-6 else s * (1 + log**2 / 12)
    return min(width / 2 + b, two_point)
