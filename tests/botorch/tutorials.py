"""Loops of BoTorch's notebooks, in which the model is all that is exchanged.

``python -m tests.botorch.tutorials [NAME] [SEEDS]`` prints the rows of the table in docs/integrations.md, and
CPU seconds. Problems, budgets and restarts are smaller than those of the notebooks, whose names are in brackets.
"""

from __future__ import annotations

import functools
import math
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from botorch.acquisition import (
    AnalyticAcquisitionFunction,
    ExpectedImprovement,
    PosteriorMean,
    qKnowledgeGradient,
)
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.acquisition.multi_objective.logei import qLogNoisyExpectedHypervolumeImprovement
from botorch.acquisition.objective import GenericMCObjective
from botorch.fit import fit_gpytorch_mll
from botorch.generation.sampling import ConstrainedMaxPosteriorSampling, MaxPosteriorSampling
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.transforms import Log, Normalize, Standardize
from botorch.models.utils.gpytorch_modules import get_covar_module_with_dim_scaled_prior
from botorch.optim import optimize_acqf
from botorch.sampling import SobolQMCNormalSampler
from botorch.sampling.pathwise import get_matheron_path_model
from botorch.test_functions import Ackley, Branin, BraninCurrin, Hartmann
from botorch.utils.multi_objective.box_decompositions.dominated import DominatedPartitioning
from botorch.utils.transforms import unnormalize
from gpytorch.constraints import GreaterThan, Interval
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.mlls import SumMarginalLogLikelihood
from gpytorch.priors import LogNormalPrior
from torch import Tensor
from torch.quasirandom import SobolEngine

from kbo.models import KernelRidgeGP


def single_task_gp(X: Tensor, Y: Tensor, kernel: Kernel, **parts: Any) -> SingleTaskGP:
    return SingleTaskGP(X, Y, covar_module=kernel, likelihood=GaussianLikelihood(), **parts)


def kernel_ridge_gp(X: Tensor, Y: Tensor, kernel: Kernel, **transforms: Any) -> KernelRidgeGP:
    return KernelRidgeGP(
        X, Y, kernel, ridge=1.0, **{"outcome_transform": Standardize(1), **transforms}
    )


Make = Callable[..., Any]  # of X [n d], Y [n 1], a kernel and transforms
MODELS: dict[str, Make] = {"SingleTaskGP": single_task_gp, "KernelRidgeGP": kernel_ridge_gp}


def fitted(*models: Any, noisy: bool = True, start: dict[str, Any] | None = None) -> Any:
    """Return the model, or a list of several, after a fit; range and prior of the noise are those of the notebooks."""
    for model in models:
        if noisy:
            limits = GreaterThan(1e-4, transform=None, initial_value=math.exp(-5))
            model.likelihood.register_prior("noise_prior", LogNormalPrior(-4.0, 1.0), "noise")
        else:
            limits = Interval(1e-8, 1e-3, transform=None, initial_value=1e-4)
        model.likelihood.noise_covar.register_constraint("raw_noise", limits)
    joint = ModelListGP(*models)
    if start is not None:
        joint.load_state_dict(start)
    fit_gpytorch_mll(SumMarginalLogLikelihood(joint.likelihood, joint))
    return joint if len(models) > 1 else models[0]


def usual(d: int) -> Kernel:
    return get_covar_module_with_dim_scaled_prior(ard_num_dims=d)


def uniform(n: int, d: int) -> Tensor:
    return torch.rand(n, d, dtype=torch.float64)


def sobol(d: int) -> Callable[[int], Tensor]:
    return functools.partial(
        SobolEngine(d, scramble=True, seed=int(torch.randint(2**31, ()))).draw, dtype=torch.float64
    )


def observed(f: Callable[[Tensor], Tensor], X: Tensor, Y: Tensor, noise: Tensor | float) -> Tensor:
    """Return Y with values at those points of X that it lacks."""
    exact = f(X[len(Y) :])
    return torch.cat([Y, exact + noise * torch.randn_like(exact)])


EFFORT: dict[str, Any] = {
    "num_restarts": 2,
    "raw_samples": 32,
    "options": {"batch_limit": 5, "maxiter": 100},
}
"""Options of searches."""


def search(acqf: Any, d: int, q: int = 1, **more: Any) -> Tensor:
    bounds = torch.tensor([[0.0] * d, [1.0] * d], dtype=torch.float64)
    return optimize_acqf(acqf, bounds, q, **EFFORT, **more)[0].detach()


class End(NamedTuple):
    """The points [n d] of a loop, and the gap to the optimum after it."""

    X: Tensor
    gap: float


def closed_loop(make: Make, rounds: int = 4) -> End:
    """qLogNEI with an outcome constraint, in batches; fits start from the last values (closed_loop_botorch_only)."""

    def f(X: Tensor) -> Tensor:
        return torch.stack([problem(X), X.sum(-1) - 3], -1)

    problem, X, Y, start = Hartmann(negate=True), uniform(10, 6), uniform(0, 2), None
    for _ in range(rounds):
        Y = observed(f, X, Y, 0.25)
        parts = (make(X, y.unsqueeze(-1), usual(6), input_transform=Normalize(6)) for y in Y.T)
        model = fitted(*parts, start=start)
        start = model.state_dict()
        acqf = qLogNoisyExpectedImprovement(
            model,
            X,
            SobolQMCNormalSampler(torch.Size([64])),
            GenericMCObjective(lambda Z, X=None: Z[..., 0]),
            constraints=[lambda Z: Z[..., 1]],
        )
        X = torch.cat([X, search(acqf, 6, q=3)])
    value, excess = f(X).T
    return End(X, problem.optimal_value - float((value * (excess <= 0)).max()))


def merit(Y: Tensor) -> Tensor:
    """Return the values of feasible rows [n 1 + constraints]; those of the others are lower, by their violation."""
    violation = Y[:, 1:].clamp(min=0).sum(-1)
    return torch.where(violation > 0, -100 - violation, Y[:, 0])


def trust_region(
    d: int, constraints: list[Callable[[Tensor], Tensor]], make: Make, rounds: int = 12
) -> End:
    """Thompson sampling in a trust region: TuRBO-1; with constraints, SCBO (turbo_1, scalable_constrained_bo)."""

    def f(X: Tensor) -> Tensor:
        Z = unnormalize(X, problem.bounds)
        return torch.stack([problem(Z), *(constraint(Z) for constraint in constraints)], -1)

    problem, draw = Ackley(d, negate=True, bounds=[(-5.0, 10.0)] * d).double(), sobol(d)
    length, q, successes, failures = 0.8, 4, 0, 0
    Y = f(X := draw(2 * d))
    for _ in range(rounds):
        base = (
            MaternKernel(nu=2.5, ard_num_dims=d, lengthscale_constraint=Interval(0.005, 4.0))
            for _ in Y.T
        )
        parts = zip(Y.T, map(ScaleKernel, base), strict=True)
        model, *others = (
            fitted(make(X, y.unsqueeze(-1), kernel), noisy=False) for y, kernel in parts
        )
        scales = model.covar_module.base_kernel.lengthscale.detach().squeeze()
        reach = length / 2 * scales / scales.log().mean().exp()
        centre, best = X[merit(Y).argmax()], float(merit(Y).max())
        lower, upper = (centre - reach).clamp(0, 1), (centre + reach).clamp(0, 1)
        if others:
            rule = ConstrainedMaxPosteriorSampling(model, ModelListGP(*others), replacement=False)
        else:
            rule = MaxPosteriorSampling(model, replacement=False)
        with torch.no_grad():
            new = rule(lower + (upper - lower) * draw(1000), num_samples=q)
        X, Y = torch.cat([X, new]), torch.cat([Y, f(new)])
        success = float(merit(Y).max()) > best + 1e-3 * abs(best)
        successes, failures = (successes + 1, 0) if success else (0, failures + 1)
        if successes == 10 or failures == math.ceil(d / q):
            length, successes, failures = min(2 * length, 1.6) if success else length / 2, 0, 0
    return End(X, -float(merit(Y).max()))


def knowledge_gradient(make: Make, rounds: int = 5) -> End:
    """The one-shot knowledge gradient; the gap is that of the maximiser of the mean (one_shot_kg)."""

    def f(X: Tensor) -> Tensor:
        return torch.sin(2 * math.pi * X[:, :1]) * torch.cos(2 * math.pi * X[:, 1:])

    X, Y = uniform(6, 2), uniform(0, 1)
    for _ in range(rounds):
        Y = observed(f, X, Y, 0.05)
        X = torch.cat(
            [X, search(qKnowledgeGradient(fitted(make(X, Y, usual(2))), num_fantasies=16), 2)]
        )
    chosen = search(PosteriorMean(fitted(make(X, observed(f, X, Y, 0.05), usual(2)))), 2)
    return End(X, 1 - float(f(chosen)))


class ImprovementPerCost(AnalyticAcquisitionFunction):
    """EI / cost ^ power, for a model of the logarithm of the cost."""

    def __init__(self, model: Any, best_f: Tensor, cost: Any, power: float) -> None:
        super().__init__(model)
        self.improvement, self.cost, self.power = ExpectedImprovement(model, best_f), cost, power

    def forward(self, X: Tensor) -> Tensor:
        return self.improvement(X) / self.cost(X).mean.exp()[:, 0].pow(self.power)


def cost_aware(make: Make, rounds: int = 10) -> End:
    """Improvement per cost, which has a model of its own and a falling power (cost_aware_bayesian_optimization)."""
    f, X = Branin(negate=True).double(), uniform(5, 2)
    for done in range(rounds):
        Y = f(unnormalize(X, f.bounds)).unsqueeze(-1)
        cost = fitted(make(X, 200 * (1.1 - X[:, :1]).square(), usual(2), outcome_transform=Log()))
        acqf = ImprovementPerCost(
            fitted(make(X, Y, usual(2))), Y.max(), cost, 1 - (done + 1) / rounds
        )
        X = torch.cat([X, search(acqf, 2)])
    return End(X, f.optimal_value - float(f(unnormalize(X, f.bounds)).max()))


def thompson(drawn: Callable[[Any], Any], make: Make, rounds: int = 8) -> End:
    """Batches of maximisers of posterior draws, joint on a finite set or of functions (thompson_sampling)."""
    f, draw = Hartmann(negate=True).double(), sobol(6)
    X = draw(10)
    for _ in range(rounds):
        model = fitted(make(X, f(X).unsqueeze(-1), ScaleKernel(RBFKernel(ard_num_dims=6))))
        with torch.no_grad():
            X = torch.cat(
                [
                    X,
                    MaxPosteriorSampling(drawn(model), replacement=False)(
                        draw(1000), num_samples=5
                    ),
                ]
            )
    return End(X, f.optimal_value - float(f(X).max()))


def multi_objective(make: Make, rounds: int = 6) -> End:
    """qLogNEHVI with a model for each objective; the gap is that of the hypervolume (multi_objective_bo)."""

    def f(X: Tensor) -> Tensor:
        return problem(unnormalize(X, problem.bounds))

    problem, X, Y = BraninCurrin(negate=True).double(), uniform(6, 2), uniform(0, 2)
    for _ in range(rounds):
        Y = observed(f, X, Y, torch.tensor([15.19, 0.63]))
        model = fitted(*(make(X, y.unsqueeze(-1), usual(2)) for y in Y.T))
        sampler = SobolQMCNormalSampler(torch.Size([64]))
        acqf = qLogNoisyExpectedHypervolumeImprovement(
            model, problem.ref_point.tolist(), X, sampler
        )
        X = torch.cat([X, search(acqf, 2, q=2, sequential=True)])
    volume = DominatedPartitioning(problem.ref_point, f(X)).compute_hypervolume()
    return End(X, problem.max_hv - float(volume))


LOOPS: dict[str, Callable[..., End]] = {
    "closed_loop": closed_loop,
    "turbo": functools.partial(trust_region, 10, []),
    "scbo": functools.partial(
        trust_region, 5, [lambda Z: Z.sum(-1), lambda Z: Z.norm(dim=-1) - 5], rounds=8
    ),
    "knowledge_gradient": knowledge_gradient,
    "cost_aware": cost_aware,
    "thompson": functools.partial(thompson, lambda model: model),
    "thompson_paths": functools.partial(thompson, get_matheron_path_model),
    "multi_objective": multi_objective,
}


def run(name: str, make: Make, seed: int, **options: int) -> tuple[End, float]:
    """Return the end of a loop and its CPU time in seconds."""
    torch.manual_seed(seed)
    before = time.process_time()
    return LOOPS[name](make, **options), time.process_time() - before


def main(names: list[str], seeds: int) -> None:
    for name in names:
        row = [name]
        for make in MODELS.values():
            ends, seconds = zip(*(run(name, make, seed) for seed in range(seeds)), strict=True)
            low, median, high = np.percentile([end.gap for end in ends], [25, 50, 75])
            row += [
                str(len(ends[0].X)),
                f"{median:.3g} ({low:.3g} to {high:.3g})",
                f"{np.mean(seconds):.1f}",
            ]
        print(f"| {' | '.join([*row[:4], *row[5:]])} |", flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1:2] or list(LOOPS), int(sys.argv[2]) if len(sys.argv) > 2 else 10)
