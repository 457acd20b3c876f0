"""The exact mixture bound is the maximum over the confidence set: proved by a function, checked by a cone program.

``python -m tests.test_certificates 500`` compares on many more and larger problems and prints the worst errors.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import cvxpy as cp
import pytest
import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from torch import Tensor

from kbo import KernelRidge
from kbo.confidence import MartingaleMixture, norm_lower_bound
from kbo.confidence.certificate import Certificate, certify, cone_program
from kbo.errors import InvalidInput, RefutedAssumptions
from kbo.regression import FixedDictionary, NystromRidge
from tests import dense
from tests.conftest import DEVICE
from tests.dense import Dense, gram

SMOOTHNESS = (None, 2.5, 1.5, 0.5)
SIDES = {"upper": 1, "lower": -1}
TIMES = (1.0, 1.05, 2.0, 10.0, 30.0, 100.0)  # norm bound over true norm


@dataclass
class Problem:
    """A random function, data with it, and points of every kind; a function of the seed alone."""

    seed: int
    most: int = 60

    def __post_init__(self) -> None:
        seed = self.seed
        self.random = torch.Generator().manual_seed(seed)
        self.d = 1 + seed % 3
        nu = SMOOTHNESS[seed % 4]
        self.kernel: Kernel = ScaleKernel(MaternKernel(nu=nu) if nu else RBFKernel()).double()
        self.kernel.base_kernel.lengthscale = (0.2, 0.5, 1.0)[seed // 4 % 3]
        self.kernel.outputscale = torch.tensor((1.0, 0.3, 4.0)[seed // 12 % 3], dtype=torch.float64)
        n = int(torch.randint(0, self.most + 1, (), generator=self.random)) if seed % 5 else 0
        self.n = n if seed % 5 else seed // 5 % 5
        self.X = self.uniform(self.n, self.d)
        if seed % 3 == 0 and self.n > 3:
            self.X = self.X[torch.randint(self.n // 3, (self.n,), generator=self.random)]
        self.norm, self.noise_std = (10 ** (2 * float(self.uniform(1)) - low) for low in (0.5, 1.5))
        centres = self.uniform(10, self.d)
        weights = self.normal(10)
        weights *= self.norm / torch.sqrt(weights @ gram(self.kernel, centres, centres) @ weights)
        self.y = gram(self.kernel, self.X, centres) @ weights + self.noise_std * self.normal(self.n)
        self.scale = (1.0, 0.1, 3.0)[seed % 3]
        self.norm_bound = self.norm * TIMES[seed % 6]
        self.points = [self.uniform(self.d), 100 + self.uniform(self.d), *self.X[:1]]

    def uniform(self, *shape: int) -> Tensor:
        return torch.rand(*shape, generator=self.random, dtype=torch.float64)

    def normal(self, n: int) -> Tensor:
        return torch.randn(n, generator=self.random, dtype=torch.float64)

    @property
    def state(self) -> KernelRidge:
        state = KernelRidge(self.kernel, self.noise_std**2)
        state.update(self.X, self.y)
        return state

    @property
    def confidence(self) -> MartingaleMixture:
        return MartingaleMixture(self.noise_std, self.norm_bound, 0.1, "cmm", self.scale)

    @cached_property
    def radius(self) -> float:
        data = Dense(self.kernel, self.X, self.y)
        return float(dense.squared_radius(data, self.noise_std, 0.1, self.scale)) ** 0.5

    @property
    def least_norm(self) -> float:
        return float(norm_lower_bound(self.state, self.noise_std, 0.1, self.scale))

    def optimum(self, x: Tensor, side: str) -> float:
        """``max f(x)`` over F, or ``min f(x)``, as a cone program that shares nothing with kbo; NaN if not solved."""
        places, number = torch.unique(torch.cat([self.X, x[None]]), dim=0, return_inverse=True)
        values, vectors = torch.linalg.eigh(gram(self.kernel, places, places))
        kept = values > 1e-15 * values.sum()
        F = (self.norm_bound * vectors[:, kept] * values[kept].sqrt()).numpy()[number.numpy()]
        w = cp.Variable(F.shape[1])  # f = F w at the data and at x, |f| = B |w|
        fits = [cp.norm((F[:-1] @ w - self.y.numpy()) / self.radius) <= 1] if self.n else []
        program = cp.Problem(cp.Maximize(SIDES[side] * F[-1] @ w), [cp.norm(w) <= 1, *fits])
        try:
            program.solve(solver=cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
        except cp.SolverError:
            return math.nan
        return SIDES[side] * float(program.value)


def worst_errors(problem: Problem) -> Counter[str]:
    """Errors at every point and side, as parts of the bound, or of a thousandth of the norm bound if that is more.

    Where the certificate says that the bound is exact, it is compared with both cone programs and with the certificate;
    everywhere the bound is valid and the certificate's function lies in F and takes the value that it claims.
    """
    worst, state, confidence = Counter(), problem.state, problem.confidence
    for x in problem.points:
        for side, sign in SIDES.items():
            bound = float(getattr(confidence, side)(state, x))
            proof, free = certify(confidence, state, x, side), problem.optimum(x, side)
            size = max(abs(bound), 1e-3 * problem.norm_bound)
            found = {
                "outside F": outside(problem, proof),
                "claimed value": abs(float(value(problem, proof, x[None])) - proof.attained) / size,
                "bound below attained": sign * (proof.attained - bound) / size,
                "bound below cone program": sign * (free - bound) / size,
                "certificate below attained": sign * (proof.attained - proof.bound) / size,
            }
            worst["all"] += 1
            if proof.certified:
                worst["certified"] += 1
                program = cone_program(confidence, state, x, side)
                found |= {
                    "gap": proof.gap / max(abs(proof.bound), abs(proof.attained)),
                    "bound": abs(bound - free) / size,
                    "bound against kbo's program": abs(bound - program) / size,
                    "bound against certificate": abs(bound - proof.bound) / size,
                }
            worst["not solved"] += math.isnan(free)
            for name, error in found.items():
                worst[name] = max(worst[name], 0.0 if math.isnan(error) else error)
    return worst


def value(problem: Problem, proof: Certificate, X: Tensor) -> Tensor:
    """The certificate's function at points, from its weights and centres alone."""
    return gram(problem.kernel, X, proof.centres) @ proof.weights


def outside(problem: Problem, proof: Certificate) -> float:
    """How far, as parts of B and R, the certificate's function lies outside F."""
    norm = float((proof.weights @ value(problem, proof, proof.centres)).clamp_min(0).sqrt())
    misfit = float((value(problem, proof, problem.X) - problem.y).norm())
    return max(norm / problem.norm_bound, misfit / problem.radius) - 1


EXACT = 5e-6  # of the bound, which is widened by the rounding at its ridge
# Of B, R or the bound: a function that interpolates has weights of size 1e9 that cancel.
ROUNDING = 1e-5


def check(worst: Counter[str], exact: float = EXACT) -> None:
    for name in ("outside F", "claimed value"):
        assert worst.pop(name) < ROUNDING
    # At an observed point it may be that the bound is not exact.
    assert worst.pop("certified", 0) >= worst.pop("all") - 2
    assert max(worst.values()) < exact, worst


@pytest.mark.parametrize("seed", range(0, 84, 28))
def test_the_bound_is_the_maximum_over_the_confidence_set(seed):
    check(worst_errors(Problem(seed)))


# The smaller the set, the sharper the valley: there programs and search agree to fewer digits than the certificate has.
@pytest.mark.parametrize(("seed", "times", "exact"), [(1, 1.01, EXACT), (8, 1.0001, 20 * EXACT)])
def test_it_is_so_where_the_set_is_nearly_empty_and_below_it_is_refuted(seed, times, exact):
    problem = Problem(seed)
    least = problem.least_norm
    problem.norm_bound = times * least
    check(worst_errors(problem), exact)
    problem.norm_bound = 0.99 * least
    for question in (
        certify,
        cone_program,
        lambda confidence, state, x: confidence.upper(state, x),
    ):
        with pytest.raises(RefutedAssumptions):
            question(problem.confidence, problem.state, problem.points[0])


def test_where_clarabel_fails_another_solver_finds_the_bound(monkeypatch):
    problem, solve = Problem(7), cp.Problem.solve

    def without_clarabel(program, solver, **options):
        if solver == cp.CLARABEL:
            raise cp.SolverError("numerical error")
        return solve(program, solver=solver, **options)

    monkeypatch.setattr(cp.Problem, "solve", without_clarabel)
    arguments = problem.confidence, problem.state, problem.points[0]
    assert cone_program(*arguments) == pytest.approx(certify(*arguments).bound, rel=1e-6)


def test_without_data_the_certificate_is_that_of_the_prior_on_a_sketch_too():
    problem = Problem(7)
    x = problem.points[0]
    sketch = NystromRidge(problem.kernel, 0.1, FixedDictionary(problem.X))
    proof = certify(problem.confidence, sketch, x)
    size = float(sketch.prior_variance(x[None]).sqrt())
    assert proof.certified
    assert proof.bound == pytest.approx(problem.norm_bound * size)


@pytest.mark.usefixtures("device")
def test_what_cannot_be_certified_is_refused():
    problem = Problem(7)
    x = problem.points[0].to(DEVICE)
    X = problem.X.to(DEVICE)
    state = KernelRidge(problem.kernel, 0.1)
    state.update(X, problem.y.to(DEVICE))
    bound = certify(problem.confidence, state, x).bound
    assert bound == pytest.approx(cone_program(problem.confidence, state, x), rel=1e-6)
    sketch = NystromRidge(problem.kernel, 0.1, FixedDictionary(X))
    sketch.update(X, problem.y.to(DEVICE))
    for question in (certify, cone_program):
        for arguments in ((sketch, x), (state, x[None]), (state, x, "both")):
            with pytest.raises(InvalidInput):
                question(problem.confidence, *arguments)


def main(problems: int, most: int = 200) -> None:
    """Print the worst errors over random problems with at most that many observations."""
    worst, totals = Counter(), Counter()
    for seed in range(problems):
        try:
            errors = worst_errors(Problem(seed, most))
        except RefutedAssumptions:
            totals["refuted problems"] += 1
            continue
        totals.update({name: errors.pop(name, 0) for name in ("all", "certified", "not solved")})
        for name, error in errors.items():
            worst[name] = max(worst[name], error)
    print(f"{problems} problems of at most {most} observations:", dict(totals))
    for name, error in worst.items():
        print(f"{name:>30}  {error:.2g}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
