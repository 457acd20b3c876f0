"""How good a recommendation can be after a noisy run: kbo is compared with a rule that knows more than any tuner.

    python -m experiments.guarantees.recommendation_limit [RUNS] [development | held-out]

The runs have 50 trials on half of the functions of COCO, with 5 parameters and 5% Gaussian noise. The rule knows the
noise level, and a kernel that was fitted to 400 values of the function without noise, near the best trials and
elsewhere. Given the noisy values of the run, it recommends the point with the largest posterior mean, among visited
points or all points. Regrets are divided by the regret of the best visited point.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from statistics import geometric_mean, median

import pandas as pd
import torch
from torch import Tensor

import kbo
from experiments.problems import BBOB
from experiments.tuning.suites import PROBLEMS, half_of
from kbo.optimize import fit_values
from kbo.regression import KernelRidge
from kbo.space import Params

TRIALS = 50


def informed(
    values: Callable[[Tensor], Tensor], X: Tensor, y: Tensor, noise_std: float, seed: int
) -> KernelRidge:
    """Return the posterior of y [n] at X [n P], with a kernel that was fitted to 400 values without noise.

    Args:
        values: The function without noise, of points of the unit cube; larger values are better.
        X: The points of the trials.
        y: Their observed values.
        noise_std: The standard deviation of the noise.
        seed: Decides the points of the values without noise.
    """
    generator = torch.Generator().manual_seed(seed)
    best = X[values(X).argsort(descending=True)[:25]].repeat(4, 1)
    steps = 0.1 * torch.randn(best.shape, generator=generator, dtype=torch.float64)
    near = (best + steps).clamp(0, 1)
    n_elsewhere = 300 - len(X)
    elsewhere = torch.rand(n_elsewhere, X.shape[1], generator=generator, dtype=torch.float64)
    Z = torch.cat([X, near, elsewhere])
    fitted = fit_values(Z, values(Z), 0.0)
    scale = fitted.transform.scale
    state = KernelRidge(fitted.kernel, max(noise_std / scale, 1e-4) ** 2)
    state.update(X, fitted.transform(y))
    return state


def climbed(state: KernelRidge, X: Tensor, seed: int) -> Tensor:
    """Return a point [P] whose mean is nearly the largest."""
    generator = torch.Generator().manual_seed(seed)
    elsewhere = torch.rand(4000, X.shape[1], generator=generator, dtype=torch.float64)
    points = torch.cat([X, elsewhere])
    for size in (0.1, 0.03, 0.01):
        mean, _ = state.predict(points)
        best = points[mean.topk(5).indices]
        steps = size * torch.randn(5, 200, X.shape[1], generator=generator, dtype=torch.float64)
        near = (best.unsqueeze(1) + steps).clamp(0, 1).flatten(0, 1)
        points = torch.cat([best, near])
    mean, _ = state.predict(points)
    return points[mean.argmax()]


def regrets(name: str, seed: int, n_trials: int = TRIALS) -> dict[str, float]:
    """Return the regret of the point that each rule recommends after a run, by the name of the rule."""
    problem = PROBLEMS[name](seed=seed)
    assert isinstance(problem, BBOB)
    space = problem.space

    def regret(params: Params) -> float:
        return max(problem.noiseless(params) - problem.optimum, 1e-8)

    def values(X: Tensor) -> Tensor:
        return torch.tensor([-problem.noiseless(space.params(x)) for x in X], dtype=torch.float64)

    result = kbo.minimize(problem, space, n_trials=n_trials, seed=seed)
    assert result.params is not None
    trials = result.trials
    X = space.units([trial.params for trial in trials])
    y = torch.tensor([-(trial.value or 0.0) for trial in trials], dtype=torch.float64)
    state = informed(values, X, y, problem.noise_scale, seed)
    mean, _ = state.predict(X)
    return {
        "best visited": min(regret(trial.params) for trial in trials),
        "kbo": regret(result.params),
        "best observed": regret(trials[int(y.argmax())].params),
        "informed, visited": regret(trials[int(mean.argmax())].params),
        "informed, any": regret(space.params(climbed(state, X, seed))),
    }


def main(runs: int, half: str, n_problems: int | None = None, n_trials: int = TRIALS) -> None:
    """Print the regrets of each problem (or of the first ``n_problems``), and their ratios."""
    names = half_of("bbob", half, 5, "gauss")[:n_problems]
    rows = []
    for name in names:
        for seed in range(1, runs + 1):
            row = regrets(name, seed, n_trials)
            rows.append({"problem": name, **row})
    table = pd.DataFrame(rows).set_index("problem")
    print(table.groupby("problem").median().round(3).to_string())
    ratios = table.div(table["best visited"], axis=0)
    print("\nmedian ratio to the best visited point")
    print(ratios.median().round(2).to_string())
    to_informed = (table["kbo"] / table["informed, visited"]).tolist()
    print("\nkbo to the informed rule, visited points: ", end="")
    print(f"median {median(to_informed):.2f}, geometric mean {geometric_mean(to_informed):.2f}")


if __name__ == "__main__":
    n_runs = 3
    half_of_suite = "development"
    if len(sys.argv) > 1:
        n_runs = int(sys.argv[1])
    if len(sys.argv) > 2:
        half_of_suite = sys.argv[2]
    main(n_runs, half_of_suite)
