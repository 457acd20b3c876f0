"""Certificates of the exact mixture bound, and the cone program that it replaces.

The bound is the maximum of f(x) over ``F = {f : |f(X) - y| <= R, ||f|| <= B}`` (Flynn & Reeb 2024, Thm 4.4). Its dual
solution, a ridge a, names the function that attains it: with the posterior mean mu and covariance k_a at a::

    f = mu + s k_a(x, .),      s = sqrt(R^2(a) / (a variance(x; a))),      |f(X) - y|^2 + a ||f||^2 = R^2 + a B^2,

so f lies in F exactly if ``|f(X) - y| = R``, which is where the bound has its valley. A function in F is a lower bound
of the maximum, every ridge an upper bound: together they certify the value without trusting the search.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.optimize import brentq
from torch import Tensor

from kbo._base import checks
from kbo._base.extras import require
from kbo._base.lazy import Lazy
from kbo.confidence.mixture.bound import MartingaleMixture
from kbo.confidence.mixture.radius import ridge_range
from kbo.errors import InvalidInput, RefutedAssumptions
from kbo.regression import KernelRidge
from kbo.regression.observations import Observations

if TYPE_CHECKING:
    import cvxpy as cp
else:
    cp = Lazy("cvxpy")


@dataclass(frozen=True)
class Certificate:
    """A bound at a point, and a function of the confidence set that comes close to it.

    Attributes:
        bound: No function of F is above it (below it, for a lower bound) at the point.
        attained: The value of the function there.
        ridge: The dual solution.
        norm: RKHS norm of the function, at most ``norm_bound``.
        misfit: ``|f(X) - y|``, at most ``radius``.
        radius: R.
        centres, weights: [m d] and [m]: ``f = sum_i weights_i k(., centres_i)``.
    """

    bound: float
    attained: float
    ridge: float
    norm: float
    misfit: float
    radius: float
    centres: Tensor
    weights: Tensor

    @property
    def gap(self) -> float:
        """The duality gap: how far the bound may be from the exact maximum."""
        return abs(self.bound - self.attained)

    @property
    def certified(self) -> bool:
        """Whether the bound is the exact maximum to one part in a million of its value.

        It is not where the ridge that solves the dual is below the precision of the kernel matrix: at observed points
        and with a norm bound many times too large. The bound is valid there, only not the tightest.
        """
        return self.gap <= 1e-6 * max(abs(self.bound), abs(self.attained))


class _Program:
    """Maximise f(x) over F, in coordinates of the RKHS: an orthonormal basis of the span of the rows, and what x adds.

    With the kernel matrix ``K = Q diag(l) Q'`` of the rows, scaled by the roots of their counts, a function has
    coordinates c and a coordinate along what x adds. ``f(X) = Q diag(l)^1/2 c``, ``f(x) = phi'c + rho c_x`` and
    ``||f||^2 = |c|^2 + c_x^2``: no difference of large numbers, however small the ridge.
    """

    def __init__(
        self, confidence: MartingaleMixture, state: KernelRidge, x: Tensor, sign: int
    ) -> None:
        if not isinstance(state, KernelRidge):
            raise InvalidInput(
                f"state must be exact for a certificate, a kbo.KernelRidge, got {type(state).__name__}."
            )
        if not isinstance(confidence, MartingaleMixture):
            raise InvalidInput(
                f"confidence must be a MartingaleMixture for a certificate, got {type(confidence).__name__}; of "
                "UnknownNorm pass current(state)."
            )
        state.check(x, "x")
        if x.dtype != torch.float64:
            raise InvalidInput("certificates need float64: x and the data in torch.float64.")
        if x.ndim != 1:
            raise InvalidInput(f"x must be one point, a tensor [d], got shape {tuple(x.shape)}.")
        data = state.data or Observations(x[None][:0], x[:0])
        self.centres = torch.cat([data.X, x.unsqueeze(0)])
        # From here on the arithmetic is that of the host: hundreds of steps of root finding on single numbers.
        rows = torch.stack([data.counts, data.y]), state.prior(data.X, self.centres).mT
        prior = state.prior_variance(x.unsqueeze(0)).squeeze(0)
        numbers = torch.stack(
            [x.new_tensor(confidence.widened_squared_radius(state)), data.within, prior]
        )
        table, numbers = torch.cat(rows).cpu(), numbers.tolist()
        (counts, y), K, k_x = table[:2], table[2:-1], table[-1]
        self.B, self.scale, (self.square, within, variance) = (
            confidence.norm_bound,
            counts.sqrt(),
            numbers,
        )
        values, Q = torch.linalg.eigh(self.scale.unsqueeze(-1) * K * self.scale)
        kept = values > 1e-15 * values.sum()
        self.values, self.Q = values[kept], Q[:, kept]
        y = sign * self.scale * y
        self.v = self.Q.mT @ y
        self.rest = within + max(float(y @ y - self.v @ self.v), 0.0)  # no function reaches it
        self.phi = self.Q.mT @ (self.scale * k_x) / self.values.sqrt()
        self.rho = max(variance - float(self.phi @ self.phi), 0.0) ** 0.5

    def function(self, a: float, s: float) -> tuple[Tensor, Tensor]:
        """Return the coordinates [m + 1] of ``mu + s k_a(x, .)`` at ridge a, and its weights [n + 1] on rows and x."""
        w, last = 1 / (self.values + a), self.v.new_tensor([s])
        c = self.values.sqrt() * w * self.v + s * a * w * self.phi
        rows = self.scale * (self.Q @ (w * (self.v - s * self.values.sqrt() * self.phi)))
        return torch.cat([c, self.rho * last]), torch.cat([rows, last])

    def dual(self, a: float) -> tuple[Tensor, Tensor]:
        """Return the function of the bound at ridge a."""
        w = 1 / (self.values + a)
        slack = self.square + a * self.B**2 - self.rest - a * float(w @ self.v.square())
        if slack < 0:
            raise RefutedAssumptions(
                "F is empty: the data refute the assumptions", norm_bound=self.B, ridge=a
            )
        return self.function(
            a, (slack / (a * (self.rho**2 + a * float(w @ self.phi.square())))) ** 0.5
        )

    def centre(self, low: float, high: float) -> tuple[Tensor, Tensor]:
        """Return the posterior mean that is deepest in F: its norm falls with the ridge, its misfit grows."""

        def balance(t: float) -> float:
            c = self.function(10**t, 0.0)[0]
            return float(c @ c) / self.B**2 - self.misfit2(c) / self.square

        return self.function(10 ** _root(balance, low, high), 0.0)

    def misfit2(self, c: Tensor) -> float:
        """Return ``|f(X) - y|^2``."""
        return float((self.values.sqrt() * c[:-1] - self.v).square().sum()) + self.rest

    def at_x(self, c: Tensor) -> float:
        """Return ``f(x)``."""
        return float(self.phi @ c[:-1] + self.rho * c[-1])

    def excess(self, c: Tensor) -> float:
        """Return the worse of the two constraints, at most 0 exactly for functions in F."""
        return max(float(c @ c) / self.B**2, self.misfit2(c) / self.square) - 1


def certify(
    confidence: MartingaleMixture, state: KernelRidge, x: Tensor, side: str = "upper"
) -> Certificate:
    """Return the exact bound at x [d] with a function that attains it up to ``gap``; O(n^3).

    Args:
        confidence: The mixture; of any kind, what is certified is the exact maximum over its set F.
        state: An exact posterior in float64.
        x: One point [d].
        side: "upper" or "lower".

    Raises:
        InvalidInput: The state is not exact, or x is not one point.
        RefutedAssumptions: F is empty.
    """
    sign = _sign(side)
    program = _Program(confidence, state, x, sign)
    low, high = (math.log10(ridge) for ridge in ridge_range(state, confidence.mixture_ridge))
    t = _root(lambda t: program.square - program.misfit2(program.dual(10**t)[0]), low, high)
    (c, weights), (inside, inner) = program.dual(10**t), program.centre(low, high)
    bound = program.at_x(c)  # mean + s variance, which is h at this ridge
    if program.excess(inside) > 0:
        raise RefutedAssumptions(
            "F is empty: the data refute the assumptions", norm_bound=program.B
        )
    theta = 0.0
    if program.excess(c) > 0:  # by rounding, or at the end of the range of ridges: move into F
        theta = _between(lambda theta: program.excess((1 - theta) * c + theta * inside), 0.0, 1.0)
        theta = min(1.0, theta + 1e-12)
    c = (1 - theta) * c + theta * inside
    return Certificate(
        bound=sign * bound,
        attained=sign * program.at_x(c),
        ridge=10**t,
        norm=float(c.norm()),
        misfit=program.misfit2(c) ** 0.5,
        radius=program.square**0.5,
        centres=program.centres,
        weights=(sign * ((1 - theta) * weights + theta * inner)).to(program.centres),
    )


def cone_program(
    confidence: MartingaleMixture, state: KernelRidge, x: Tensor, side: str = "upper"
) -> float:
    """Return the exact bound at x [d] by the paper's second-order cone program, through CVXPY.

    The solver is Clarabel, or SCS where that fails. An independent reference for ``MartingaleMixture(kind="cmm")``,
    thousands of times slower.

    Args:
        confidence: The mixture.
        state: An exact posterior in float64.
        x: One point [d].
        side: "upper" or "lower".

    Raises:
        MissingExtra: CVXPY is not installed.
    """
    require("the cone program", "certify", "cvxpy")
    sign = _sign(side)
    program = _Program(confidence, state, x, sign)
    features = torch.diag(program.values.sqrt()).numpy()
    c = cp.Variable(len(program.values) + 1)  # f = B c
    value = np.append(program.phi.numpy(), program.rho) @ c
    constraints = [cp.norm(c) <= 1]
    if state.n:
        radius = (program.square - program.rest) ** 0.5
        constraints.append(
            cp.norm((program.B * features @ c[:-1] - program.v.numpy()) / radius) <= 1
        )
    problem = cp.Problem(cp.Maximize(value), constraints)  # pyright: ignore[reportArgumentType]
    try:
        problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    except (
        cp.SolverError
    ):  # numerical trouble, which some versions of CVXPY and Clarabel have where others have none
        problem.solve(solver=cp.SCS, eps_abs=1e-9, eps_rel=1e-9)
    if c.value is None:
        raise RefutedAssumptions(
            f"the cone program has no solution ({problem.status})", norm_bound=program.B
        )
    return sign * program.B * float(value.value)


def _sign(side: str) -> int:
    return 1 if checks.one_of("side", side, ("upper", "lower")) == "upper" else -1


def _root(f, low: float, high: float) -> float:
    """Return the root of a function that falls through zero once; an end of the range if it keeps its sign."""
    if f(low) <= 0:
        return low
    return high if f(high) >= 0 else _between(f, low, high)


def _between(f, low: float, high: float) -> float:
    """Return the root in between, to full precision."""
    return float(brentq(f, low, high, xtol=1e-15))  # pyright: ignore[reportArgumentType]
