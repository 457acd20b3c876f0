"""Recorded answers, before and after a change of the structure: ``python -m tests.frozen record FILE``, or ``compare``.

Posteriors, views, bounds, models and recipes on fixed problems: choices must be equal, numbers equal to 1e-9.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from gpytorch.kernels import Kernel, MaternKernel, PeriodicKernel, RBFKernel, ScaleKernel
from torch import Tensor

import kbo
from experiments.problems import RKHSBandit
from kbo import bandit, confidence, regression
from kbo.acquisition import AMMUCB, CMMUCB, DMMUCB, KernelUCB
from kbo.models import AdaptiveRidgeGP, KernelRidgeGP, NystromGP

DOUBLE = torch.float64
RIDGES = [1e-3, 0.05, 2.0]


def points(n: int, seed: int) -> Tensor:
    return torch.rand(n, 2, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


def targets(X: Tensor, seed: int) -> Tensor:
    noise = torch.randn(len(X), generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)
    return torch.sin(5 * X[:, 0]) + X[:, 1] ** 2 + 0.2 * noise


def kernels() -> dict[str, Kernel]:
    rbf, periodic = RBFKernel().double(), ScaleKernel(PeriodicKernel()).double()
    rbf.lengthscale, periodic.base_kernel.period_length, periodic.outputscale = 0.4, 1.7, 0.7
    matern = ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=2)).double()
    matern.base_kernel.lengthscale, matern.outputscale = (
        torch.tensor([[0.3, 0.8]]),
        torch.tensor(2.3),
    )
    return {
        "rbf": rbf,
        "matern": matern,
        "rough": MaternKernel(nu=0.5).double(),
        "periodic": periodic,
    }


def noise(**options: Any) -> confidence.NoiseBounds:
    return confidence.NoiseBounds(6.0, 0.1, **options)


STATES = {
    "exact": kbo.KernelRidge,
    "fixed": lambda k, a: kbo.NystromRidge(k, a, regression.FixedDictionary(points(9, 30))),
    "greedy": lambda k, a: kbo.NystromRidge(k, a, regression.GreedyDictionary(5 * a)),
    "online": lambda k, a: kbo.NystromRidge(k, a, regression.OnlineRowSampling(a, gamma=3.0)),
    "resampled": lambda k, a: kbo.NystromRidge(k, a, regression.LeverageResampling(1.5)),
    "batched": lambda k, a: kbo.NystromRidge(k, a, regression.BatchedResampling(1.5, growth=2.0)),
    "adaptive": lambda k, a: kbo.AdaptiveRidge(kbo.KernelRidge(k, a), noise(upper=1.0)),
    "adaptive sketch": lambda k, a: kbo.AdaptiveRidge(STATES["fixed"](k, a), noise(upper=1.0)),
}
BOUNDS = {
    "self-normalised": lambda: confidence.SelfNormalized(0.2, 6.0, 0.1),
    "igp": lambda: confidence.ImprovedGPUCB(0.2, 6.0, 0.1, 0.01),
    "bkb": lambda: confidence.BKB(0.2, 6.0, 0.1),
    "k-ucb": lambda: confidence.EKUCB(0.2, 6.0, 0.1, 0.0),
    "ek-ucb": lambda: confidence.EKUCB(0.2, 6.0, 0.1, 0.05),
    "finite set": lambda: confidence.FiniteSet(50, 0.1),
    "chaining": lambda: confidence.Chaining(0.1, points=points(45, 6), smooth=True),
    "fixed width": lambda: confidence.FixedWidth(2.0),
    "amm": lambda: confidence.MartingaleMixture(0.2, 6.0, 0.1, "amm"),
    "dmm": lambda: confidence.MartingaleMixture(0.2, 6.0, 0.1, "dmm"),
    "cmm": lambda: confidence.MartingaleMixture(0.2, 6.0, 0.1, "cmm"),
    "cmm of scales": lambda: confidence.MartingaleMixture(
        0.2, 6.0, 0.1, "cmm", confidence.MIXED_SCALES
    ),
    "unknown norm": lambda: confidence.UnknownNorm(0.2, 0.1),
}
NEEDS = {"horizon": 100, "n_points": 30, "noise_upper": 0.5}


def numbers(state: Any, Z: Tensor) -> Iterator[tuple[str, Tensor]]:
    mean, variance = state.predict(Z, RIDGES)
    yield from (
        ("mean", mean),
        ("variance", variance),
        ("covariance", state.covariance(Z[:3], Z[3:])),
    )
    for name in ("log_det", "quad", "effective_dimension"):
        yield name, getattr(state, name)(RIDGES)
    yield "rss", torch.stack([state.at(ridge).rss() for ridge in RIDGES])
    yield (
        "leverage_sum",
        state.effective_dimension(RIDGES) + state.error.trace / torch.tensor(RIDGES, dtype=DOUBLE),
    )
    moments = state.across(Z.unsqueeze(-2)).grid(RIDGES)
    yield "all ridges", torch.stack([moments.mean.squeeze(-1), moments.covariance[..., 0, 0]])


def states() -> Iterator[tuple[str, Any]]:
    X, Z = torch.cat([points(40, 1), points(40, 1)[:8]]), points(5, 2)
    for kernel_name, kernel in kernels().items():
        for name, make in STATES.items():
            state, y = make(kernel, 0.05), targets(X, 3)
            for start in range(0, len(X), 7):
                state.update(X[start : start + 7], y[start : start + 7])
            found = [*numbers(state, Z), ("ridge", torch.tensor(state.ridge))]
            hypothetical = regression.Hypothetical(state, points(3, 8))
            found += [("hypothetical", torch.stack(hypothetical.predict(Z)))]
            found += [("tracked", torch.stack(regression.Tracked(state.fork(), Z).predict(Z)))]
            yield from ((f"{kernel_name}, {name}, {what}", value) for what, value in found)
            if name in ("adaptive", "adaptive sketch"):
                continue
            for bound, confident in BOUNDS.items():
                try:
                    interval = torch.stack(confident().interval(state, Z))
                except kbo.KboError as error:
                    interval = type(error).__name__
                yield f"{kernel_name}, {name}, {bound}", interval
    weighted = kbo.KernelRidge(kernels()["matern"], 0.05)
    weighted.update(X, targets(X, 3), torch.linspace(0.5, 2.0, len(X), dtype=DOUBLE))
    yield from ((f"weighted, {what}", value) for what, value in numbers(weighted, Z))


def models() -> Iterator[tuple[str, Any]]:
    X, Z = points(30, 1), points(6, 2).reshape(3, 2, 2).requires_grad_()
    y, kernel = targets(X, 3).unsqueeze(-1), kernels()["matern"]
    bound = confidence.SelfNormalized(0.2, 6.0, 0.1)
    made = {
        "exact": KernelRidgeGP(X, y, kernel, 0.04),
        "sketch": NystromGP(X, y, kernel, 0.04),
        "adaptive": AdaptiveRidgeGP(X, y, kernel, noise(upper=1.0)),
    }
    rules = {
        "KernelUCB": lambda model: KernelUCB(model, bound),
        **{
            rule.__name__: lambda model, rule=rule: rule(model, 0.2, 6.0, 0.1)
            for rule in (AMMUCB, DMMUCB, CMMUCB)
        },
    }
    for name, model in made.items():
        posterior = model.posterior(Z)
        yield f"model {name}, posterior", torch.cat([posterior.mean, posterior.variance])
        for rule, make in rules.items():
            value = make(model)(Z)
            yield f"model {name}, {rule}", value
            yield f"model {name}, gradient of {rule}", torch.autograd.grad(value.sum(), Z)[0]


def runs() -> Iterator[tuple[str, Any]]:
    for name in bandit.names():
        kernel = kernels()["matern"]
        problem = RKHSBandit(
            "matern52", 0.4, dim=2, norm=4.0, noise_std=0.2, n_arms=30, fixed=True, seed=4
        )
        options = {key: value for key, value in NEEDS.items() if key in needed(name)}
        method = bandit.make(name, kernel, 0.2, 4.0, 0.1, **options)
        rows = list(bandit.play(method, problem, 100 if "adaptive" not in name else 60, seed=5))
        yield f"recipe {name}, choices", [row["arm"] for row in rows]
        yield f"recipe {name}, regret", torch.tensor(rows[-1]["cumulative"])


def needed(name: str) -> set[str]:
    recipe = bandit.get(name)
    return {*recipe.needs, *["noise_upper"] * (recipe.noise != "given")}


def answers() -> Iterator[tuple[str, Any]]:
    for name, value in (*states(), *models(), *runs()):
        if isinstance(value, Tensor):
            yield from (
                (f"{name} {i}", number)
                for i, number in enumerate(value.detach().double().flatten().tolist())
            )
        else:
            yield name, value


def main(task: str, file: str, answers: Callable[[], Iterator[tuple[str, Any]]] = answers) -> None:
    found, path = dict(answers()), Path(file)
    if task == "record":
        path.write_text(json.dumps(found))
        print(f"{len(found)} answers in {path}")
        return
    recorded, differ = json.loads(path.read_text()), []
    for name in {**recorded, **found}:
        old, new = recorded.get(name), found.get(name)
        if isinstance(old, float) and isinstance(new, float):
            if not (
                abs(old - new) <= 1e-9 * max(1.0, abs(old))
                or old == new
                or (old != old and new != new)
            ):
                differ.append((name, old, new))
        elif old != new:
            differ.append((name, old, new))
    print(f"{len(recorded)} answers recorded, {len(found)} now, {len(differ)} differ")
    for name, old, new in differ[:40]:
        print(f"  {name}: {str(old)[:60]} -> {str(new)[:60]}")
    sys.exit(bool(differ))


if __name__ == "__main__":
    main(*sys.argv[1:])
