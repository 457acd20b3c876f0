"""How often the energy of noise is ever outside of its bounds, for several distributions of the noise.

``python -m experiments.guarantees.noise_classes``: each of the three bounds may fail with probability DELTA / 3.
"""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor

from experiments.guarantees.widths import DELTA
from kbo.confidence.energy import averaged


def laws(size: tuple[int, int], rng: Generator) -> dict[str, Tensor]:
    """Return noise of variance 1, by the name of its law."""
    u = torch.rand(size, generator=rng, dtype=torch.float64)
    normal = torch.randn(size, generator=rng, dtype=torch.float64)
    sign = torch.where(torch.rand(size, generator=rng) < 0.5, -1.0, 1.0).double()
    return {
        "Gaussian": normal,
        "Rademacher": sign,
        "uniform": math.sqrt(3) * (2 * u - 1),
        "zero with probability 1/2, else of two values": math.sqrt(2) * sign * (u < 0.5),
        "three points, kurtosis 3": math.sqrt(3) * sign * (u < 1 / 3),
        "spikes: zero with probability 0.98": math.sqrt(50) * sign * (u < 0.02),
    }


def main(runs: int = 4000, n: int = 2000) -> None:
    """Print the share of sequences outside of the lower, the strict lower and the strict upper bound."""
    gaussian = [averaged(t, DELTA / 3, False) for t in range(1, n + 1)]
    strict = [averaged(t, DELTA / 3, True) for t in range(1, n + 1)]
    lower = torch.tensor([bounds[0] for bounds in gaussian]).double()
    strict_lower = torch.tensor([bounds[0] for bounds in strict]).double()
    strict_upper = torch.tensor([bounds[1] for bounds in strict]).double()
    for name, noise in laws((runs, n), Generator().manual_seed(0)).items():
        energy = noise.square().cumsum(-1)
        outside = [energy < lower, energy < strict_lower, energy > strict_upper]
        shares = [float(is_outside.any(-1).double().mean()) for is_outside in outside]
        cells = [f"{share:.3f}" for share in shares]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
