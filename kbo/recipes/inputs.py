"""The values from which a recipe makes a method."""

from __future__ import annotations

from dataclasses import dataclass

from gpytorch.kernels import Kernel
from torch import Tensor

from kbo.regression import Dictionary

OPTIONS = ("ridge", "ridges", "dictionary", "noise_variant", "multiplier")
"""Inputs that a recipe refuses unless it uses them; the others are facts about a problem, for any recipe."""


@dataclass
class Inputs:
    """The values from which a recipe makes a method.

    Attributes:
        kernel: An unbatched GPyTorch kernel.
        noise_std: Sub-Gaussian constant of the noise, in units of the targets; used if ``Recipe.noise`` is "given".
        norm_bound: Bound of the RKHS norm of the function; used if ``Recipe.norm`` is "given".
        delta: Probability that the bounds may fail; Thompson sampling takes its radius at a smaller one.
        scale: Covariance scale c of the mixtures; the ridge is ``noise_std^2 / c`` unless the recipe fixes it.
        horizon: Number of rounds T.
        n_points: Size of the finite set for "gp-ucb", number of arms of a round for "supk-ucb".
        points: The finite set [N d], instead of its size; for "chaining-ucb...", None means the arms that are offered
            together.
        seed: Seed of a recipe's own random dictionary.
        noise_upper: Upper bound of the noise level: "...-fixed" use it, "...-adaptive" begin with it, if given.
        noise_lower: Lower bound of the noise level, for "...-adaptive".
        ridge: The ridge, instead of ``noise_std^2 / c``; also the mu of "ek-ucb".
        ridges: The grid of "dmm-ucb", instead of the paper's.
        dictionary: The dictionary of a sketched posterior, instead of the recipe's own.
        noise_variant: Variant of ``NoiseBounds``.
        multiplier: Replace the bound by ``mean + multiplier sqrt(leverage)``, as experiments do; this removes the
            guarantee.
    """

    kernel: Kernel
    noise_std: float
    norm_bound: float
    delta: float
    scale: float = 1.0
    horizon: int = 0
    n_points: int = 0
    points: Tensor | None = None
    seed: int = 0
    noise_upper: float | None = None
    noise_lower: float = 0.0
    ridge: float = 0.0
    ridges: list[float] | None = None
    dictionary: Dictionary | None = None
    noise_variant: str = "tight+grid"
    multiplier: float | None = None
