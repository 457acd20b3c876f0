"""The values from which a recipe makes a method."""

from __future__ import annotations

from dataclasses import dataclass, fields

from gpytorch.kernels import Kernel
from torch import Tensor

from kbo import checks
from kbo.regression import Dictionary


@dataclass(frozen=True)
class Inputs:
    """The values from which a recipe makes a method: facts of the problem, and options of the method.

    Facts may be given to every recipe, so that one set of them serves a comparison. Options are refused by recipes that
    do not use them (``Recipe.takes``).

    Attributes:
        kernel: An unbatched GPyTorch kernel.
        noise_std: Sub-Gaussian constant of the noise, in units of the targets; used if ``Recipe.noise`` is "given".
        norm_bound: Bound of the RKHS norm of the function, in units of the targets; used if ``Recipe.norm`` is "given".
        delta: Probability that the bounds may fail; Thompson sampling takes its radius at a smaller one.
        scale: Covariance scale c of the mixtures; the ridge is ``noise_std^2 / c`` unless the recipe fixes it.
        horizon: Number of rounds T; 0 if unknown.
        n_points: Size of the finite set for "gp-ucb", number of arms of a round for "supk-ucb"; 0 if unknown.
        points: The finite set [N d] of "gp-ucb" and "chaining-ucb..."; None for "chaining-ucb..." means the arms that
            are offered together.
        seed: Seed of a recipe's own random dictionary.
        noise_upper: Upper bound of the noise level: "...-fixed" use it, "...-adaptive" begin with it, if given.
        noise_lower: Lower bound of the noise level, for "...-adaptive".
        ridge: Option: the ridge, instead of ``noise_std^2 / c``; also the mu of "ek-ucb".
        ridges: Option: the grid of "dmm-ucb", instead of the paper's.
        dictionary: Option: the dictionary of a sketched posterior, instead of the recipe's own.
        noise_variant: Option: the variant of ``NoiseBounds``.
        multiplier: Option: replace the bound by ``mean + multiplier sqrt(leverage)``, as experiments do; this removes
            the guarantee.
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

    def check(self, given: frozenset[str]) -> None:
        """Raise InvalidInput if a number among ``given`` is out of its range."""
        for name in sorted(given & {"scale", "horizon", "n_points", "ridge"}):
            checks.positive(name, getattr(self, name))
        if self.multiplier is not None:
            checks.non_negative("multiplier", self.multiplier)


REQUIRED = frozenset({"kernel", "noise_std", "norm_bound", "delta"})
OPTIONS = frozenset({"ridge", "ridges", "dictionary", "noise_variant", "multiplier"})
"""Names that a recipe refuses unless it uses them."""

KEYWORDS = frozenset(entry.name for entry in fields(Inputs)) - REQUIRED
"""Names of all optional inputs."""
