"""Draw docs/figures/run-with-bounds.png, the picture of README: python docs/figures/run_with_bounds.py [PNG]."""

import random
import sys
from pathlib import Path

import torch
from gpytorch.kernels import MaternKernel

import kbo
from kbo._base.plotting import blank, dress, legend_below
from kbo.report import draw_band

kernel = MaternKernel(nu=2.5).double().requires_grad_(False)
kernel.lengthscale = 0.2
centres = torch.tensor([[0.12], [0.38], [0.63], [0.90]], dtype=torch.double)
weights = torch.tensor(
    [1.2, -1.1, -2.6, 1.5], dtype=torch.double
)  # the norm of the function is 3.1


def truth(x):
    """The function without noise."""
    return (
        kernel(torch.as_tensor(x, dtype=torch.double).reshape(-1, 1), centres).to_dense() @ weights
    )


def objective(params):
    """One noisy evaluation."""
    return float(truth(params["x"])) + random.gauss(0, 0.2)


def main(target):
    """Draw the bounds of a certified run after 5 and after 30 trials."""
    random.seed(1)
    setting = kbo.Certified(kernel, noise_std=0.2, norm_bound=4.0, delta=0.05)
    optimizer = kbo.Optimizer({"x": (0.0, 1.0)}, setting=setting, seed=1)
    grid = torch.linspace(0, 1, 201, dtype=torch.double)
    figure = blank(9.0, 3.6)
    panels = figure.subplots(1, 2, sharey=True)
    for axes, n_trials in zip(panels, (5, 30), strict=True):
        while len(optimizer.completed()) < n_trials:
            params = optimizer.ask()
            optimizer.tell(params, objective(params))
        draw_band(axes, optimizer, "x")
        axes.plot(grid, truth(grid), color="black", ls="--", lw=1.2, label="true function")
        gap = optimizer.gap()
        dress(
            axes,
            f"after {n_trials} trials: optimality gap {gap.value:.2f}",
            "x",
            "value of the objective",
        )
    panels[1].set_ylabel("")
    panels[0].set_ylim(-4.5, 3.2)
    legend_below(figure, columns=5)
    figure.savefig(target, dpi=125)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).with_name("run-with-bounds.png"))
