"""Certificates of the exact mixture bound, and the cone program that it replaces.

The bound is the maximum of f(x) over ``F = {f : |f(X) - y| <= R, ||f|| <= B}`` (Flynn & Reeb 2024,
Thm 4.4). Its dual solution, a ridge a, gives the function that attains it. With the posterior mean
mu and covariance k_a at a::

    f = mu + s k_a(x, .),      s = sqrt(R^2(a) / (a variance(x; a))),
    |f(X) - y|^2 + a ||f||^2 = R^2 + a B^2,

so f lies in F exactly if ``|f(X) - y| = R``, which is true at the minimum of the bound over a. Every
function in F is a lower bound of the maximum, and every ridge gives an upper bound. Together they
certify the value, without trust in the search.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.optimize import brentq
from torch import Tensor

from kbo._base import checks
from kbo._base.extras import require
from kbo._base.lazy import Lazy
from kbo.confidence.base import checked_state
from kbo.confidence.confidence_set import ConfidenceSet
from kbo.confidence.mixture import MartingaleMixture
from kbo.confidence.ridge_search import ridge_range
from kbo.errors import InvalidInput, RefutedAssumptions
from kbo.regression import LeastSquares, Posterior

cp: Any = Lazy("cvxpy")  # an extra


@dataclass(frozen=True)
class Certificate:
    """A bound at a point, and a function of the confidence set F that nearly attains it.

    Attributes:
        bound: The bound: no function of F is above it (for a lower bound: below it) at the point.
        attained: The value of the function at the point.
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
        """The duality gap, an upper bound of the distance from the bound to the exact maximum."""
        return abs(self.bound - self.attained)

    @property
    def certified(self) -> bool:
        """Whether the bound is the exact maximum up to a millionth of its value.

        It is False where the ridge that solves the dual is below the precision of the kernel
        matrix: at observed points, with a norm bound that is many times too large. There the bound
        is valid but not the tightest.
        """
        return self.gap <= 1e-6 * max(abs(self.bound), abs(self.attained))


def certify(
    confidence: MartingaleMixture, state: Posterior, x: Tensor, side: str = "upper"
) -> Certificate:
    """Return the exact bound at x [d], with a function that attains it as its proof; O(n^3).

    Args:
        confidence: The mixture, of any kind. The exact maximum over its set F is certified.
        state: An exact posterior in float64.
        x: One point [d].
        side: "upper" or "lower".

    Raises:
        InvalidInput: The state is not exact, or x is not one point.
        RefutedAssumptions: F is empty.
    """
    sign = _sign(side)
    program = _Program(confidence, state, x, sign)
    low, high = ridge_range(state, confidence.mixture_ridge)
    limits = math.log10(low), math.log10(high)

    def slack_of_fit(t: float) -> float:
        c, _ = program.dual_function(10**t)
        return program.F.squared_radius - program.squared_misfit(c)

    ridge = 10 ** _root(slack_of_fit, *limits)
    c, weights = program.dual_function(ridge)
    bound = program.at_x(c)  # mean + s variance, which is h at this ridge
    centre, centre_weights = program.centre(*limits)
    if program.excess(centre) > 0:
        raise RefutedAssumptions(
            "F is empty: the data refute the assumptions", norm_bound=program.F.norm_bound
        )
    share = _share_of_centre(program, c, centre)
    c = (1 - share) * c + share * centre
    weights = (1 - share) * weights + share * centre_weights
    return Certificate(
        bound=sign * bound,
        attained=sign * program.at_x(c),
        ridge=ridge,
        norm=float(c.norm()),
        misfit=program.squared_misfit(c) ** 0.5,
        radius=program.F.squared_radius**0.5,
        centres=program.centres,
        weights=(sign * weights).to(program.centres),
    )


def cone_program(
    confidence: MartingaleMixture, state: Posterior, x: Tensor, side: str = "upper"
) -> float:
    """Return the exact bound at x [d] by the paper's second-order cone program, through CVXPY.

    It is an independent reference for ``MartingaleMixture(kind="cmm")``, thousands of times slower.
    The solver is Clarabel, or SCS if that fails.

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
    B = program.F.norm_bound
    c = cp.Variable(len(program.values) + 1)  # coordinates of f / B
    value = np.append(program.phi.numpy(), program.rho) @ c
    constraints = [cp.norm(c) <= 1]
    if state.n:
        features = torch.diag(program.values.sqrt()).numpy()
        radius = (program.F.squared_radius - program.unreachable) ** 0.5
        misfit = B * features @ c[:-1] - program.v.numpy()
        constraints.append(cp.norm(misfit / radius) <= 1)
    problem = cp.Problem(cp.Maximize(value), constraints)
    try:
        problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    except cp.SolverError:  # some versions of CVXPY and Clarabel have numerical trouble
        problem.solve(solver=cp.SCS, eps_abs=1e-9, eps_rel=1e-9)
    if c.value is None:
        raise RefutedAssumptions(
            f"the cone program has no solution ({problem.status})", norm_bound=B
        )
    return sign * B * float(value.value)


class _Program:
    """Maximise f(x) over F, in coordinates of the RKHS.

    The basis is an orthonormal basis of the span of the rows, and one direction that x adds. K = Q
    diag(l) Q' is the kernel matrix of the rows, scaled by the roots of their counts. A function has
    coordinates c, and c_x along the added direction: ``f(X) = Q diag(l)^1/2 c``, ``f(x) = phi'c +
    rho c_x`` and ``||f||^2 = |c|^2 + c_x^2``. So no large numbers are subtracted, however small the
    ridge is.

    Attributes:
        F: The confidence set.
        centres: The rows and x, [n + 1 d].
        values, Q: Eigenvalues [m] and eigenvectors [n m] of K.
        v: ``Q'y``, [m].
        unreachable: Squared distance of y from the values ``f(X)`` of all functions.
        phi, rho: Coordinates [m] of ``k(x, .)``, and its coordinate along the added direction.
    """

    def __init__(
        self, confidence: MartingaleMixture, state: Posterior, x: Tensor, sign: int
    ) -> None:
        _check_program(confidence, state, x)
        data = _data_of(state, x)
        self.centres = torch.cat([data.X, x.unsqueeze(0)])
        # Computed on the host: hundreds of steps of root finding on single numbers.
        y = data.y.cpu()
        self.scale = data.counts.cpu().sqrt()
        cross = state.prior(self.centres, data.X).cpu()
        K = cross[:-1]
        k_x = cross[-1]
        prior_variance = float(state.prior_variance(x.unsqueeze(0)))
        self.F = ConfidenceSet(confidence.widened_squared_radius(state), confidence.norm_bound)
        values, Q = torch.linalg.eigh(self.scale.unsqueeze(-1) * K * self.scale)
        is_positive = values > 1e-15 * values.sum()
        self.values = values[is_positive]
        self.Q = Q[:, is_positive]
        scaled_y = sign * self.scale * y
        self.v = self.Q.mT @ scaled_y
        outside_of_span = float(scaled_y @ scaled_y - self.v @ self.v)
        self.unreachable = float(data.within) + max(outside_of_span, 0.0)
        self.phi = self.Q.mT @ (self.scale * k_x) / self.values.sqrt()
        self.rho = max(prior_variance - float(self.phi @ self.phi), 0.0) ** 0.5

    def function(self, ridge: float, s: float) -> tuple[Tensor, Tensor]:
        """Return coordinates [m + 1] and weights [n + 1] of ``mu + s k_a(x, .)`` at ridge a."""
        w = 1 / (self.values + ridge)
        along_x = self.v.new_tensor([s])
        c = self.values.sqrt() * w * self.v + s * ridge * w * self.phi
        on_rows = self.scale * (self.Q @ (w * (self.v - s * self.values.sqrt() * self.phi)))
        return torch.cat([c, self.rho * along_x]), torch.cat([on_rows, along_x])

    def dual_function(self, ridge: float) -> tuple[Tensor, Tensor]:
        """Return the function whose value at x is the bound ``h(a; x)``, as ``function`` does."""
        w = 1 / (self.values + ridge)
        quad = self.unreachable + ridge * float(w @ self.v.square())
        variance = self.rho**2 + ridge * float(w @ self.phi.square())
        squared_width = self.F.squared_width(quad, ridge)
        if squared_width < 0:
            raise RefutedAssumptions(
                "F is empty: the data refute the assumptions",
                norm_bound=self.F.norm_bound,
                ridge=ridge,
            )
        return self.function(ridge, (squared_width / variance) ** 0.5)

    def centre(self, low: float, high: float) -> tuple[Tensor, Tensor]:
        """Return the posterior mean with the least ``excess``: norms fall with a, misfits grow."""

        def balance(t: float) -> float:
            c, _ = self.function(10**t, 0.0)
            return self.share_of_norm(c) - self.share_of_radius(c)

        return self.function(10 ** _root(balance, low, high), 0.0)

    def at_x(self, c: Tensor) -> float:
        """Return ``f(x)``."""
        return float(self.phi @ c[:-1] + self.rho * c[-1])

    def squared_misfit(self, c: Tensor) -> float:
        """Return ``|f(X) - y|^2``."""
        return float((self.values.sqrt() * c[:-1] - self.v).square().sum()) + self.unreachable

    def share_of_norm(self, c: Tensor) -> float:
        """Return ``||f||^2 / B^2``."""
        return float(c @ c) / self.F.norm_bound**2

    def share_of_radius(self, c: Tensor) -> float:
        """Return ``|f(X) - y|^2 / R^2``."""
        return self.squared_misfit(c) / self.F.squared_radius

    def excess(self, c: Tensor) -> float:
        """Return the violation of the worse constraint; it is at most 0 exactly if f lies in F."""
        return max(self.share_of_norm(c), self.share_of_radius(c)) - 1


def _share_of_centre(program: _Program, c: Tensor, centre: Tensor) -> float:
    """Return the least share in [0, 1] with which ``(1 - share) c + share centre`` lies in F.

    It is above 0 only if c is outside F, by rounding or because the range of ridges is limited.

    Args:
        program: The program.
        c: Coordinates [m + 1] of a function.
        centre: Coordinates [m + 1] of a function in F.
    """
    if program.excess(c) <= 0:
        return 0.0
    share = _between(lambda share: program.excess((1 - share) * c + share * centre), 0.0, 1.0)
    return min(1.0, share + 1e-12)


def _check_program(confidence: MartingaleMixture, state: Posterior, x: Tensor) -> None:
    """Raise InvalidInput unless there is a mixture, a posterior and a point [d]."""
    checked_state(state)
    if not isinstance(confidence, MartingaleMixture):
        raise InvalidInput(
            "confidence must be a MartingaleMixture for a certificate, got "
            f"{type(confidence).__name__}; of UnknownNorm pass current(state)."
        )
    state.check(x, "x")
    if x.dtype != torch.float64:
        raise InvalidInput("certificates need float64: x and the data in torch.float64.")
    if x.ndim != 1:
        raise InvalidInput(f"x must be one point, a tensor [d], got shape {tuple(x.shape)}.")
    state.error.refuse_no_kernel()


def _data_of(state: Posterior, x: Tensor) -> LeastSquares:
    """Return the data of a posterior as a misfit, with no rows if there are no data.

    Args:
        state: The posterior.
        x: A point [d], with the dtype and device of the data.

    Raises:
        InvalidInput: The posterior has data and is not exact.
    """
    if not state.n:
        none = x[:0]
        return LeastSquares(none.reshape(0, len(x)), none, none, x.new_zeros(()))
    if state.least_squares is None:
        raise InvalidInput(
            "state must be exact for a certificate, such as a kbo.KernelRidge, got "
            f"{type(state).__name__}."
        )
    return state.least_squares


def _sign(side: str) -> int:
    """Return 1 for "upper", -1 for "lower"."""
    if checks.one_of("side", side, ("upper", "lower")) == "upper":
        return 1
    return -1


def _root(f: Callable[[float], float], low: float, high: float) -> float:
    """Return the root of a decreasing function, or the nearer end of the range if it has none."""
    if f(low) <= 0:
        return low
    if f(high) >= 0:
        return high
    return _between(f, low, high)


def _between(f: Callable[[float], float], low: float, high: float) -> float:
    """Return the root of a function that changes its sign between low and high, to full precision."""
    return float(brentq(f, low, high, xtol=1e-15))  # pyright: ignore[reportArgumentType]
