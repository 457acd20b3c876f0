"""Draw docs/figures/what-a-sketch-keeps.png: python docs/figures/what_a_sketch_keeps.py [PNG]."""

import sys
from pathlib import Path

import torch
from gpytorch.kernels import MaternKernel

import kbo
from kbo._base.plotting import BLUE, GREEN, GREY, RED, blank, dress, legend_below
from kbo.confidence import MartingaleMixture
from kbo.regression import GreedyDictionary

NOISE_STD = 0.2

kernel = MaternKernel(nu=2.5).double().requires_grad_(False)
kernel.lengthscale = 0.15
centres = torch.tensor([[0.12], [0.38], [0.63], [0.90]], dtype=torch.double)
weights = torch.tensor([1.2, -1.1, -2.6, 1.5], dtype=torch.double)


def truth(X):
    """The function without noise at points [n 1]."""
    return kernel(X, centres).to_dense() @ weights


def observations():
    """Points [300 1], two thirds of them between 0.5 and 0.7, and noisy values [300]."""
    generator = torch.Generator().manual_seed(0)
    spread = torch.rand(100, 1, generator=generator, dtype=torch.double)
    dense = 0.5 + 0.2 * torch.rand(200, 1, generator=generator, dtype=torch.double)
    X = torch.cat([spread, dense])
    noise = NOISE_STD * torch.randn(300, generator=generator, dtype=torch.double)
    return X, truth(X) + noise


def panel(axes, state, X, y, exact):
    """Draw the interval of one posterior, and the limits of the exact one."""
    grid = torch.linspace(0, 1, 401, dtype=torch.double).unsqueeze(-1)
    bound = MartingaleMixture(NOISE_STD, norm_bound=5.0, delta=0.05, kind="cmm")
    lower, upper = bound.interval(state, grid)
    x = grid[:, 0]
    axes.scatter(X[:, 0], y, s=4, color=GREY, alpha=0.6, label="300 observations", zorder=2)
    axes.fill_between(x, lower, upper, color=BLUE, alpha=0.2, lw=0, label="interval")
    axes.plot(x, state.predict(grid)[0], color=BLUE, lw=1.8, label="posterior mean")
    axes.plot(x, truth(grid), color="black", ls="--", lw=1.2, label="true function")
    title = f"exact: mean width {float((upper - lower).mean()):.2f}"
    if state is not exact:
        for number, limit in enumerate(bound.interval(exact, grid)):
            label = "interval of the exact posterior" if number == 0 else None
            axes.plot(x, limit, color=GREEN, lw=1.2, label=label)
        kept = state.anchors[:, 0]
        title = f"{len(kept)} points kept: mean width {float((upper - lower).mean()):.2f}"
        axes.scatter(
            kept, torch.full_like(kept, -4.2), marker="^", s=34, color=RED, label="points kept"
        )
    dress(axes, title, "x", "value of the function")


def main(target):
    """Draw the exact posterior and two sketches of the same observations."""
    X, y = observations()
    exact = kbo.KernelRidge(kernel, NOISE_STD**2)
    fine = kbo.NystromRidge(kernel, NOISE_STD**2, GreedyDictionary(0.001))
    coarse = kbo.NystromRidge(kernel, NOISE_STD**2, GreedyDictionary(0.1))
    figure = blank(9.0, 4.0)
    panels = figure.subplots(1, 3, sharey=True)
    for axes, state in zip(panels, (exact, fine, coarse), strict=True):
        state.update(X, y)
        panel(axes, state, X, y, exact)
    for axes in panels[1:]:
        axes.set_ylabel("")
    panels[0].set_ylim(-4.6, 3.0)
    legend_below(figure, columns=3)
    figure.savefig(target, dpi=125)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).with_name("what-a-sketch-keeps.png"))
