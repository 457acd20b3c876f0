"""Draw docs/figures/cover.png, the picture of docs/theory/gaussian.md: python docs/figures/cover.py [PNG]."""

import math
import sys
from pathlib import Path

import torch
from gpytorch.kernels import RBFKernel
from matplotlib.patches import Circle

from kbo import KernelRidge
from kbo._base.plotting import BLUE, GREY, RED, blank, dress, legend_below
from kbo.confidence.chaining import Chain, PosteriorMetric, covers

LENGTHSCALE = 0.5
LEVELS = (2, 3, 4)


def points():
    """Return 150 points [150 2] of the unit square."""
    generator = torch.Generator().manual_seed(0)
    return torch.rand(150, 2, generator=generator, dtype=torch.double)


def euclidean(radius):
    """Return the Euclidean distance at which the distance of the prior is ``radius``."""
    return LENGTHSCALE * math.sqrt(-2 * math.log(1 - radius**2 / 2))


def main(target):
    """Draw three levels of a chain of covers under the prior."""
    kernel = RBFKernel().double().requires_grad_(False)
    kernel.lengthscale = LENGTHSCALE
    X = points()
    metric = PosteriorMetric(KernelRidge(kernel, 0.01), X)
    chain = Chain(metric, 1.0, max(LEVELS))
    figure = blank(9.0, 3.7)
    panels = figure.subplots(1, len(LEVELS), sharey=True)
    for axes, level in zip(panels, LEVELS, strict=True):
        centres = chain.centres(level)
        radius = chain.radius(level)
        assert covers(metric, centres, radius)
        for centre in X[centres].tolist():
            axes.add_patch(Circle(centre, euclidean(radius), color=BLUE, alpha=0.08, lw=0))
            axes.add_patch(Circle(centre, euclidean(radius), color=BLUE, fill=False, lw=0.6))
        axes.scatter(*X.T.tolist(), s=8, color=GREY, label="points")
        axes.scatter(*X[centres].T.tolist(), s=26, color=RED, zorder=3, label="centres")
        dress(axes, f"radius 1/{round(1 / radius)}: {len(centres)} centres", "", "")
        axes.set(xlim=(-0.05, 1.05), ylim=(-0.05, 1.05), xticks=(0, 1), yticks=(0, 1))
        axes.set_aspect("equal")
    legend_below(figure, columns=2)
    figure.savefig(target, dpi=125)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).with_name("cover.png"))
