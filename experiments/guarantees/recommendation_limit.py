"""How good a recommendation the data of a noisy run allow: kbo's, and that of a rule that knows more than any tuner.

    python -m experiments.guarantees.recommendation_limit [RUNS] [development | held-out]

Runs of 50 trials on half of the functions of COCO with 5 parameters and 5% Gaussian noise. The rule knows the noise
level and a kernel that was fitted to 400 values of the function without noise, near the best trials and elsewhere. From
the noisy values of the run it takes the largest posterior mean, of visited points or of any. Regrets are divided by
that of the best visited point.
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
    """Return the posterior of values y [n] at X [n P], with a kernel that was fitted to values without noise."""
    generator = torch.Generator().manual_seed(seed)
    best = X[values(X).argsort(descending=True)[:25]].repeat(4, 1)
    near = (best + 0.1 * torch.randn(best.shape, generator=generator, dtype=torch.float64)).clamp(
        0, 1
    )
    Z = torch.cat(
        [X, near, torch.rand(300 - len(X), X.shape[1], generator=generator, dtype=torch.float64)]
    )
    fitted = fit_values(Z, values(Z), 0.0)
    scale = fitted.transform.scale
    state = KernelRidge(fitted.kernel, max(noise_std / scale, 1e-4) ** 2)
    state.update(X, fitted.transform(y))
    return state


def climbed(state: KernelRidge, X: Tensor, seed: int) -> Tensor:
    """Return a point [P] whose mean is nearly the largest."""
    generator = torch.Generator().manual_seed(seed)
    points = torch.cat([X, torch.rand(4000, X.shape[1], generator=generator, dtype=torch.float64)])
    for step in (0.1, 0.03, 0.01):
        kept = points[state.predict(points)[0].topk(5).indices]
        noise = torch.randn(5, 200, X.shape[1], generator=generator, dtype=torch.float64)
        points = torch.cat([kept, (kept.unsqueeze(1) + step * noise).clamp(0, 1).flatten(0, 1)])
    return points[state.predict(points)[0].argmax()]


def regrets(name: str, seed: int, n_trials: int = TRIALS) -> dict[str, float]:
    """Return the regrets of a run."""
    problem = PROBLEMS[name](seed=seed)
    assert isinstance(problem, BBOB)
    space, optimum = problem.space, problem.optimum

    def regret(params: Params) -> float:
        return max(problem.noiseless(params) - optimum, 1e-8)

    def values(X: Tensor) -> Tensor:
        return torch.tensor([-problem.noiseless(space.params(x)) for x in X], dtype=torch.float64)

    result = kbo.minimize(problem, space, n_trials=n_trials, seed=seed)
    assert result.params is not None
    trials = result.trials
    X = space.units([trial.params for trial in trials])
    y = torch.tensor([-(trial.value or 0.0) for trial in trials], dtype=torch.float64)
    state = informed(values, X, y, problem.noise_scale, seed)
    return {
        "best visited": min(regret(trial.params) for trial in trials),
        "kbo": regret(result.params),
        "best observed": regret(trials[int(y.argmax())].params),
        "informed, visited": regret(trials[int(state.predict(X)[0].argmax())].params),
        "informed, any": regret(space.params(climbed(state, X, seed))),
    }


def main(
    runs: int = 3, half: str = "development", n_problems: int | None = None, n_trials: int = TRIALS
) -> None:
    """Print the regrets of each problem, or of the first ones, and their ratios."""
    names = half_of("bbob", half, 5, "gauss")[:n_problems]
    cells = [(name, seed) for name in names for seed in range(1, runs + 1)]
    rows = [regrets(name, seed, n_trials) | {"problem": name} for name, seed in cells]
    table = pd.DataFrame(rows).set_index("problem")
    print(table.groupby("problem").median().round(3).to_string())
    ratios = table.div(table["best visited"], axis=0)
    print("\nmedian ratio to the best visited point")
    print(ratios.median().round(2).to_string())
    limits = [float(limit) for limit in table["kbo"] / table["informed, visited"]]
    print("\nkbo to the informed rule, visited points: ", end="")
    print(f"median {median(limits):.2f}, geometric mean {geometric_mean(limits):.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3, (sys.argv[2:] or ["development"])[0])
