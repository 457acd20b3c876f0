"""The certified setting: everything a bound needs is given."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from kbo import checks, recipes
from kbo.confidence import (
    Chaining,
    Confidence,
    FixedWidth,
    MartingaleMixture,
    NoiseBounds,
    UnknownNorm,
    refuse_if_refuted,
)
from kbo.errors import InvalidInput
from kbo.kernels import freeze
from kbo.optimize.belief import Belief
from kbo.regression import Posterior
from kbo.space import Space

_MOST_COVERED = 4096
"""Points of a space that may be covered."""


@dataclass(frozen=True)
class Certified:
    """Bounds that hold with probability ``1 - delta``, because what they assume is given, not estimated.

    Args:
        kernel: Kernel on the features of the space (numbers scaled to [0, 1], choices one-hot / sqrt(2)).
        noise_std: Sub-Gaussian constant of the noise, in units of the objective; None for methods that bound it online,
            "dmm-ucb-adaptive" and the like.
        norm_bound: Bound of the RKHS norm of the objective; its prior mean is 0, nothing is rescaled. Not used by
            "chaining-ucb" and "chaining-ucb-rigorous", which take the objective for a draw of the Gaussian process.
        delta: Probability that the bounds may fail.
        scale: Covariance scale of the mixture.
        noise_upper: An upper bound of the noise level, for those methods, if there is one.

    Trials that fail are left out, so the guarantee also assumes that failing does not depend on the noise.
    """

    kernel: Kernel
    noise_std: float | None
    norm_bound: float
    delta: float = 0.1
    scale: float = 1.0
    noise_upper: float | None = None

    default_method: ClassVar[str] = "dmm-ucb"

    def __post_init__(self) -> None:
        if not isinstance(self.kernel, Kernel):
            raise InvalidInput(f"kernel must be a gpytorch.kernels.Kernel, got {type(self.kernel).__name__}.")
        for name in ("noise_std", "noise_upper"):
            if (value := getattr(self, name)) is not None:
                checks.positive(name, value)
        checks.positive("norm_bound", self.norm_bound)
        checks.probability("delta", self.delta)
        checks.positive("scale", self.scale)

    def begin(self, method: str, n_trials: int | None, space: Space) -> Belief:
        """The belief before the first evaluation.

        Raises:
            InvalidInput: A number out of range, or a kernel that does not fit the features of the space.
        """
        _fingerprint(self.kernel, space.columns)
        return _CertifiedBelief(self, method, n_trials, space)

    def describe(self, space: Space) -> dict[str, Any]:
        """The setting as plain JSON values."""
        return {
            "setting": "certified",
            "kernel": _fingerprint(self.kernel, space.columns),
            "noise_std": self.noise_std,
            "norm_bound": self.norm_bound,
            "delta": self.delta,
            "scale": self.scale,
            **({} if self.noise_upper is None else {"noise_upper": self.noise_upper}),
        }


def _fingerprint(kernel: Kernel, columns: int) -> str:
    """Equal for kernels that are equal functions, to eight digits, on some points [16 columns]."""
    X = torch.rand(16, columns, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    try:
        values = freeze(kernel, X)(X, X)
    except (RuntimeError, IndexError) as error:
        raise InvalidInput(
            f"the kernel cannot be evaluated on the {columns} features of this space: {error}"
        ) from error
    text = " ".join(f"{value:.8e}" for value in values.flatten().tolist())
    return f"{type(kernel).__name__} {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _finite(space: Space, method: str) -> Tensor:
    """The features of every point of a finite space."""
    points = space.points(_MOST_COVERED)
    if points is None:
        raise InvalidInput(
            f"method {method!r} is for finite sets of points: a space of whole numbers and choices, at most "
            f"{_MOST_COVERED} of them. For a box pass ChainingUCB a design that fills it, or choose 'cmm-ucb'."
        )
    return space.features(points)


def _check_noise(method: str, setting: Certified, knows_level: bool) -> None:
    """Raise InvalidInput unless the setting says of the noise what the method rests on, and nothing else."""
    if knows_level and setting.noise_std is None:
        raise InvalidInput(
            f"method {method!r} needs the noise level: pass Certified(noise_std=...), or choose a method that "
            'bounds it online, for example method="dmm-ucb-adaptive".'
        )
    unused = "noise_upper" if knows_level else "noise_std"
    if getattr(setting, unused) is not None:
        raise InvalidInput(f"method {method!r} does not use {unused}: pass Certified({unused}=None, ...).")


class _CertifiedBelief(Belief):
    certified = True

    def __init__(self, setting: Certified, method: str, n_trials: int | None, space: Space) -> None:
        s = self._setting = setting
        noise_std = 1.0 if s.noise_std is None else s.noise_std
        numbers = s.kernel, noise_std, s.norm_bound, s.delta
        recipe = recipes.get(method)
        points = _finite(space, method) if recipe.fixed_kernel else None
        told = {"scale": s.scale, "horizon": n_trials, "noise_upper": s.noise_upper, "points": points}
        self._method = recipes.make(method, *numbers, **told)
        _check_noise(method, s, knows_level=recipe.noise == "given")
        chaining = self._method.confidence
        self._proved = chaining.proved() if isinstance(chaining, Chaining) else None
        self._noise_std = float(getattr(self._method.confidence, "noise_std", noise_std))
        self.draws = recipe.draws
        self._state = self._method.state()
        self._checked = 0
        self.norm_is_given = recipe.norm != "estimated"

    @property
    def state(self) -> Posterior | None:
        return self._state if self._state.n else None

    def observe(self, features: Tensor, y: float) -> None:
        self._state.update(features, torch.tensor([y], dtype=features.dtype))

    def confidence(self) -> Confidence | None:
        confidence = self._method.confidence
        if confidence is not None and self._method.noise is None and not isinstance(confidence, UnknownNorm | Chaining):
            self._refuse_if_refuted()
        return confidence

    def reported(self) -> Confidence | None:
        """The bound in force; where a method ranks points without one, a bound of the same assumptions."""
        confidence, s = super().reported(), self._setting
        if confidence is not None and self._proved is not None:
            return self._proved
        if not isinstance(confidence, FixedWidth):
            return confidence
        return MartingaleMixture(self._noise_std, s.norm_bound, s.delta, "dmm", s.scale)

    def _refuse_if_refuted(self) -> None:
        """The same check for every method: some bounds look at one ridge only, or at none, and would not notice."""
        s, n = self._setting, self._state.n
        if n != self._checked:
            refuse_if_refuted(self._state, self._noise_std, s.norm_bound, s.delta, s.scale)
            self._checked = n

    def assumptions(self) -> dict[str, Any]:
        s, confidence, noise = self._setting, self._method.confidence, self._state.schedule
        origin, norm_bound = "all given", s.norm_bound
        if isinstance(confidence, UnknownNorm):
            origin, norm_bound = "norm bound from the data, the others given", confidence.norm_bound(self._state)
        if isinstance(noise, NoiseBounds):
            origin = f"noise level bounded online (at least {noise.lower:.3g}), the others given"
        return {
            "kernel": "given",
            "noise_std": noise.upper if isinstance(noise, NoiseBounds) else self._noise_std,
            "norm_bound": norm_bound,
            "delta": s.delta,
            "from": origin,
        }
