"""Loops of BoTorch's notebooks, in which only the model is replaced by the model of kbo.

``python -m experiments.bench.notebooks`` prints the rows of the table in docs/integrations.md, and CPU seconds.
Problems, budgets and restarts are smaller than in the notebooks. The names of the notebooks are in brackets.
"""

from __future__ import annotations

import functools
import math
import time
import warnings
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
import typer
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

from experiments import commands
from kbo.models import KernelRidgeGP


def single_task_gp(X: Tensor, Y: Tensor, kernel: Kernel, **parts: Any) -> SingleTaskGP:
    """BoTorch's model of the data, with the given kernel."""
    return SingleTaskGP(X, Y, covar_module=kernel, likelihood=GaussianLikelihood(), **parts)


def kernel_ridge_gp(
    X: Tensor, Y: Tensor, kernel: Kernel, outcome_transform: Any = None, **transforms: Any
) -> KernelRidgeGP:
    """The model of kbo of the data, with targets standardised as in ``SingleTaskGP``."""
    if outcome_transform is None:
        outcome_transform = Standardize(1)
    return KernelRidgeGP(X, Y, kernel, ridge=1.0, outcome_transform=outcome_transform, **transforms)


Make = Callable[..., Any]  # of X [n d], Y [n 1], a kernel and transforms
MODELS: dict[str, Make] = {"SingleTaskGP": single_task_gp, "KernelRidgeGP": kernel_ridge_gp}


def fitted(*models: Any, noisy: bool = True, start: dict[str, Any] | None = None) -> Any:
    """Return the fitted model, or a list of several; range and prior of the noise are those of the notebooks."""
    no_transform: Any = None
    for model in models:
        if noisy:
            limits = GreaterThan(1e-4, no_transform, initial_value=math.exp(-5))
            model.likelihood.register_prior("noise_prior", LogNormalPrior(-4.0, 1.0), "noise")
        else:
            limits = Interval(1e-8, 1e-3, no_transform, initial_value=1e-4)
        model.likelihood.noise_covar.register_constraint("raw_noise", limits)
    joint = ModelListGP(*models)
    if start is not None:
        joint.load_state_dict(start)
    likelihood: Any = joint.likelihood
    fit_gpytorch_mll(SumMarginalLogLikelihood(likelihood, joint))
    if len(models) > 1:
        return joint
    return next(iter(models))


def in_box(problem: Any, X: Tensor) -> Tensor:
    """Points X [n d] of the unit cube, moved to the box of a problem of BoTorch."""
    return unnormalize(X, problem.bounds)


def usual(d: int) -> Kernel:
    """The default kernel of BoTorch in d dimensions."""
    return get_covar_module_with_dim_scaled_prior(ard_num_dims=d)


def uniform(n: int, d: int) -> Tensor:
    """Points [n d] of the unit cube, drawn from the global generator."""
    return torch.rand(n, d, dtype=torch.float64)


def sobol(d: int) -> Callable[[int], Tensor]:
    """A function that draws the next n points [n d] of a scrambled Sobol sequence."""
    seed = int(torch.randint(2**31, ()))
    engine = SobolEngine(d, scramble=True, seed=seed)
    return functools.partial(engine.draw, dtype=torch.float64)


def observed(f: Callable[[Tensor], Tensor], X: Tensor, Y: Tensor, noise: Tensor | float) -> Tensor:
    """The values Y, with new noisy values appended for the points of X that have none."""
    exact = f(X[len(Y) :])
    return torch.cat([Y, exact + noise * torch.randn_like(exact)])


EFFORT: dict[str, Any] = {
    "num_restarts": 2,
    "raw_samples": 32,
    "options": {"batch_limit": 5, "maxiter": 100},
}
"""Options of searches."""


def search(acqf: Any, d: int, q: int = 1, **more: Any) -> Tensor:
    """The q points [q d] of the unit cube that maximise an acquisition function."""
    bounds = torch.tensor([[0.0] * d, [1.0] * d], dtype=torch.float64)
    return optimize_acqf(acqf, bounds, q, **EFFORT, **more)[0].detach()


class End(NamedTuple):
    """The points [n d] of a loop, and the gap to the optimum after it."""

    X: Tensor
    gap: float


def closed_loop(make: Make, rounds: int = 4) -> End:
    """Batches of qLogNEI with an outcome constraint; each fit starts from the last (closed_loop_botorch_only)."""

    def f(X: Tensor) -> Tensor:
        return torch.stack([problem(X), X.sum(-1) - 3], -1)

    problem = Hartmann(negate=True)
    X = uniform(10, 6)
    Y = uniform(0, 2)
    start = None
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
    """Values [n] of rows [n 1 + constraints]; rows that break a constraint are below all others."""
    violation = Y[:, 1:].clamp(min=0).sum(-1)
    return torch.where(violation > 0, -100 - violation, Y[:, 0])


def matern_models(make: Make, X: Tensor, Y: Tensor) -> list[Any]:
    """The models of the columns of Y [n m] without noise, with Matern kernels."""
    models = []
    for y in Y.T:
        limits = Interval(0.005, 4.0)
        matern = MaternKernel(nu=2.5, ard_num_dims=X.shape[-1], lengthscale_constraint=limits)
        models.append(fitted(make(X, y.unsqueeze(-1), ScaleKernel(matern)), noisy=False))
    return models


def draws_in_region(models: list[Any], centre: Tensor, length: float, U: Tensor, q: int) -> Tensor:
    """The q best points [q d] of draws, of points U [n d] of the unit cube that are moved to the trust region.

    The sides of the region have the ratios of the lengthscales of the objective, and ``length`` as geometric mean.
    """
    model, *constraints = models
    scales = model.covar_module.base_kernel.lengthscale.detach().squeeze()
    reach = length / 2 * scales / scales.log().mean().exp()
    lower = (centre - reach).clamp(0, 1)
    upper = (centre + reach).clamp(0, 1)
    if constraints:
        joint = ModelListGP(*constraints)
        rule = ConstrainedMaxPosteriorSampling(model, joint, replacement=False)
    else:
        rule = MaxPosteriorSampling(model, replacement=False)
    with torch.no_grad():
        return rule(lower + (upper - lower) * U, num_samples=q)


def trust_region(
    d: int, constraints: list[Callable[[Tensor], Tensor]], make: Make, rounds: int = 12
) -> End:
    """Thompson sampling in a trust region: TuRBO-1; with constraints, SCBO (turbo_1, scalable_constrained_bo)."""

    def f(X: Tensor) -> Tensor:
        Z = in_box(problem, X)
        return torch.stack([problem(Z), *(constraint(Z) for constraint in constraints)], -1)

    problem = Ackley(d, negate=True, bounds=[(-5.0, 10.0)] * d).double()
    draw = sobol(d)
    length = 0.8
    q = 4
    successes = 0
    failures = 0
    X = draw(2 * d)
    Y = f(X)
    for _ in range(rounds):
        best = float(merit(Y).max())
        models = matern_models(make, X, Y)
        new = draws_in_region(models, X[merit(Y).argmax()], length, draw(1000), q)
        X = torch.cat([X, new])
        Y = torch.cat([Y, f(new)])
        if float(merit(Y).max()) > best + 1e-3 * abs(best):
            successes += 1
            failures = 0
        else:
            successes = 0
            failures += 1
        if successes == 10:
            length = min(2 * length, 1.6)
            successes = 0
        if failures == math.ceil(d / q):
            length /= 2
            failures = 0
    return End(X, -float(merit(Y).max()))


def knowledge_gradient(make: Make, rounds: int = 5) -> End:
    """The one-shot knowledge gradient; the gap is measured at the maximiser of the mean (one_shot_kg)."""

    def f(X: Tensor) -> Tensor:
        return torch.sin(2 * math.pi * X[:, :1]) * torch.cos(2 * math.pi * X[:, 1:])

    X = uniform(6, 2)
    Y = uniform(0, 1)
    for _ in range(rounds):
        Y = observed(f, X, Y, 0.05)
        acqf = qKnowledgeGradient(fitted(make(X, Y, usual(2))), num_fantasies=16)
        X = torch.cat([X, search(acqf, 2)])
    Y = observed(f, X, Y, 0.05)
    chosen = search(PosteriorMean(fitted(make(X, Y, usual(2)))), 2)
    return End(X, 1 - float(f(chosen)))


class ImprovementPerCost(AnalyticAcquisitionFunction):
    """EI / cost ^ power, for a model of the logarithm of the cost."""

    def __init__(self, model: Any, best_f: Tensor, cost: Any, power: float) -> None:
        super().__init__(model)
        self.improvement = ExpectedImprovement(model, best_f)
        self.cost = cost
        self.power = power

    def forward(self, X: Tensor) -> Tensor:
        """The improvement [b] over the cost to the power, at points [b 1 d]."""
        return self.improvement(X) / self.cost(X).mean.exp()[:, 0].pow(self.power)


def cost_aware(make: Make, rounds: int = 10) -> End:
    """Improvement per cost; the cost has its own model and a falling power (cost_aware_bayesian_optimization)."""
    f = Branin(negate=True).double()
    X = uniform(5, 2)
    for done in range(rounds):
        Y = f(in_box(f, X)).unsqueeze(-1)
        costs = 200 * (1.1 - X[:, :1]).square()
        cost = fitted(make(X, costs, usual(2), outcome_transform=Log()))
        power = 1 - (done + 1) / rounds
        acqf = ImprovementPerCost(fitted(make(X, Y, usual(2))), Y.max(), cost, power)
        X = torch.cat([X, search(acqf, 2)])
    return End(X, f.optimal_value - float(f(in_box(f, X)).max()))


def thompson(drawn: Callable[[Any], Any], make: Make, rounds: int = 8) -> End:
    """Batches of maximisers of posterior draws, joint on a finite set or of functions (thompson_sampling)."""
    f = Hartmann(negate=True).double()
    draw = sobol(6)
    X = draw(10)
    for _ in range(rounds):
        model = fitted(make(X, f(X).unsqueeze(-1), ScaleKernel(RBFKernel(ard_num_dims=6))))
        rule = MaxPosteriorSampling(drawn(model), replacement=False)
        with torch.no_grad():
            X = torch.cat([X, rule(draw(1000), num_samples=5)])
    return End(X, f.optimal_value - float(f(X).max()))


def multi_objective(make: Make, rounds: int = 6) -> End:
    """Batches of qLogNEHVI, a model for each objective; the gap is of the hypervolume (multi_objective_bo)."""

    def f(X: Tensor) -> Tensor:
        return problem(in_box(problem, X))

    problem: Any = BraninCurrin(negate=True).double()
    X = uniform(6, 2)
    Y = uniform(0, 2)
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
    """The end of a loop, and its CPU time in seconds."""
    torch.manual_seed(seed)
    before = time.process_time()
    end = LOOPS[name](make, **options)
    return end, time.process_time() - before


def compare(
    name: Annotated[
        list[str] | None, typer.Option(help="A loop; repeatable. By default all.")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Number of seeds, from 0.")] = 10,
) -> None:
    """Compare the models in loops of BoTorch's notebooks: the gap to the optimum at the end, and CPU seconds."""
    for loop in name or LOOPS:
        row = [loop]
        evaluations = 0
        for make in MODELS.values():
            runs = [run(loop, make, seed) for seed in range(seeds)]
            gaps = [end.gap for end, _ in runs]
            low, median, high = np.percentile(gaps, [25, 50, 75])
            seconds = np.mean([seconds for _, seconds in runs])
            row.append(f"{median:.3g} ({low:.3g} to {high:.3g}), {seconds:.1f} s")
            evaluations = len(runs[0][0].X)
        row.insert(1, str(evaluations))
        typer.echo(f"| {' | '.join(row)} |")


def main() -> None:
    """Run the command."""
    warnings.simplefilter("ignore")
    commands.run(compare)


if __name__ == "__main__":
    main()
