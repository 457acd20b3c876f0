"""A search for problems in which a bound on a sketch is narrower than the exact CMM or its own exact form.

``python -m experiments.guarantees.sketches [SEEDS]``; there are all kinds of dictionaries, most of them bad.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel
from torch import Generator, Tensor

from experiments.guarantees.widths import DELTA
from kbo import KernelRidge, NystromRidge
from kbo.confidence import MartingaleMixture
from kbo.errors import RefutedAssumptions
from kbo.regression import Dictionary, FixedDictionary

Interval = tuple[Tensor, Tensor]


class Problem(NamedTuple):
    """Noisy values of a function of norm 3.

    Attributes:
        exact: The exact posterior.
        sketch: The posterior on a dictionary.
        Z: Points at which bounds are compared [N d].
        noise_std: The standard deviation of the noise.
    """

    exact: KernelRidge
    sketch: NystromRidge
    Z: Tensor
    noise_std: float


def kernel_of(seed: int) -> Kernel:
    """Return one of four kernels with one of three lengthscales."""
    kernels = [RBFKernel(), MaternKernel(nu=2.5), MaternKernel(nu=1.5), MaternKernel(nu=0.5)]
    kernel = kernels[seed // 7 % 4].double()
    kernel.initialize(lengthscale=(0.15, 0.4, 1.0)[seed % 3])
    return kernel.requires_grad_(False)


def dictionary_of(kind: int, kernel: Kernel, X: Tensor, points: Tensor) -> Dictionary:
    """Return a dictionary of one of seven kinds, of the data X [n d] or of other points [m d]."""
    if kind == 0:
        return FixedDictionary(points)
    if kind == 1:
        return FixedDictionary(points[:1])
    if kind == 2:  # far away
        return FixedDictionary(points + 50)
    if kind == 3:  # repeated
        return FixedDictionary(points[torch.tensor([0, 1, 0, 2, 1, 0])])
    if kind == 4:  # nearly equal
        return FixedDictionary(0.5 + 1e-3 * points)
    if kind == 5:
        return FixedDictionary.pivoted(kernel, X, 8)
    return FixedDictionary(X)


def random_problem(seed: int) -> Problem:
    """Return the problem of a seed."""
    generator = Generator().manual_seed(seed)
    n = int(torch.randint(1, 90, (), generator=generator))
    d = 1 + seed % 3
    kernel = kernel_of(seed)
    X = torch.rand(n, d, generator=generator, dtype=torch.float64)
    if seed % 4 == 0:
        X = X[torch.randint(n, (n,), generator=generator)]
    centres = torch.rand(12, d, generator=generator, dtype=torch.float64)
    weights = torch.randn(12, generator=generator, dtype=torch.float64)
    gram = kernel(centres, centres).to_dense()
    weights = weights * 3 / torch.sqrt(weights @ gram @ weights)
    noise_std = (0.03, 0.1, 0.5)[seed // 3 % 3]
    noise = torch.randn(n, generator=generator, dtype=torch.float64)
    y = kernel(X, centres).to_dense() @ weights + noise_std * noise
    points = torch.rand(15, d, generator=generator, dtype=torch.float64)
    Z = torch.cat([torch.rand(10, d, generator=generator, dtype=torch.float64), X[:3], centres[:2]])
    exact = KernelRidge(kernel, noise_std**2)
    sketch = NystromRidge(kernel, noise_std**2, dictionary_of(seed % 7, kernel, X, points))
    exact.update(X, y)
    sketch.update(X, y)
    return Problem(exact, sketch, Z, noise_std)


def inside(bound: Interval, reference: Interval) -> float:
    """Return the largest distance by which a bound lies inside a reference bound, in half widths of the reference."""
    lower, upper = bound
    reference_lower, reference_upper = reference
    distance = torch.maximum(lower - reference_lower, reference_upper - upper)
    half_width = (reference_upper - reference_lower) / 2
    return float((distance / half_width).max())


def main(seeds: int = 300) -> None:
    """Print a row for each kind of bound and each reference."""
    depths: dict[tuple[str, str], list[float]] = {}
    for seed in range(seeds):
        problem = random_problem(seed)
        norm = (60.0, 3.3, 3.3, 3.3, 3.3)[seed % 5]
        scale = (1.0, 0.2)[seed % 2]
        try:
            cmm = MartingaleMixture(problem.noise_std, norm, DELTA, "cmm", scale)
            exact_cmm = cmm.interval(problem.exact, problem.Z)
            for kind in ("cmm", "dmm", "amm"):
                bound = MartingaleMixture(problem.noise_std, norm, DELTA, kind, scale)
                on_sketch = bound.interval(problem.sketch, problem.Z)
                own = bound.interval(problem.exact, problem.Z)
                depths.setdefault((kind, "exact CMM"), []).append(inside(on_sketch, exact_cmm))
                depths.setdefault((kind, "its own kind"), []).append(inside(on_sketch, own))
        except RefutedAssumptions:
            continue
    for (kind, reference), of_kind in depths.items():
        n_narrower = sum(depth > 1e-7 for depth in of_kind)
        largest = max(0.0, *of_kind)
        print(f"| {kind} | {reference} | {n_narrower} of {len(of_kind)} | {largest:.1g} |")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
