"""Random sequences of calls on models and acquisition functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from botorch.models import ModelListGP
from botorch.models.transforms import Normalize, Standardize
from botorch.models.transforms.outcome import OutcomeTransform

from experiments.guarantees.attacks.functions import RADIAL, Function, radial, stretch, tensor
from experiments.guarantees.attacks.play import COPIES, Play, outside, through_file
from kbo.acquisition import AMMUCB, CMMUCB, DMMUCB, ConstrainedKernelUCB, KernelUCB, SafeUCB
from kbo.confidence import (
    AdaptiveMixture,
    Confidence,
    MartingaleMixture,
    MixtureNoiseBounds,
    SelfNormalized,
)
from kbo.models import AdaptiveRidgeGP, KernelRidgeGP, NystromGP
from kbo.regression import FixedDictionary

DELTA = 1e-3

N_POINTS = 24
"""Points at which bounds are compared."""

N_DATA = 8
"""Number of these points with data; some points have several values."""

MODELS: dict[str, Callable[..., Any]] = {
    "KernelRidgeGP": KernelRidgeGP,
    "NystromGP": NystromGP,
    "AdaptiveRidgeGP": AdaptiveRidgeGP,
}


class Pointwise(OutcomeTransform):
    """A given function of the outcomes, and its inverse."""

    def __init__(self, there: Callable, back: Callable) -> None:
        super().__init__()
        self.there = there
        self.back = back

    def forward(self, Y, Yvar=None, X=None):
        return self.there(Y), Yvar

    def untransform(self, Y, Yvar=None, X=None):
        return self.back(Y), Yvar


TRANSFORMS: dict[str, tuple[Callable[[], Any], Callable]] = {
    "none": (lambda: None, lambda f: f),
    "standardised": (lambda: Standardize(1), lambda f: f),
    "minus": (lambda: Pointwise(lambda Y: -Y, lambda f: -f), lambda f: -f),
    "three minus": (
        lambda: Pointwise(lambda Y: 3 - 2 * Y, lambda f: (3 - f) / 2),
        lambda f: (3 - f) / 2,
    ),
    "log": (lambda: Pointwise(lambda Y: Y.log(), lambda f: f.exp()), np.exp),
    "minus log": (
        lambda: Pointwise(lambda Y: -Y.log(), lambda f: (-f).exp()),
        lambda f: np.exp(-f),
    ),
    "square": (
        lambda: Pointwise(lambda Y: (Y - 1).square(), lambda f: 1 + f.sqrt()),
        lambda f: 1 + np.sqrt(np.abs(f)),
    ),
}
"""Outcome transforms by name: a function that makes one, and one from values of the modelled function to data."""


class Models:
    """A model of an objective and a model of a constraint. The known functions are in units of transformed targets.

    Args:
        play: The sequence.
    """

    def __init__(self, play: Play) -> None:
        self.play = play
        pick = play.pick
        rng = play.rng
        name = pick(*RADIAL)
        lengthscale = pick(0.2, 0.5)
        self.kernel, values = radial(name, lengthscale)
        self.sigma = pick(1e-3, 0.05)
        self.B = pick(1.0, 2.0)
        points = np.array([[rng.random()] for _ in range(N_POINTS)])
        self.Z = tensor(points)
        functions = [Function(values, points, self.B, rng) for _ in range(2)]
        self.truths = [f(points) for f in functions]
        self.kind = pick("KernelRidgeGP", *MODELS)
        self.transform = pick(*TRANSFORMS)
        n = rng.randint(5, 12)
        self.rows = [rng.randrange(N_DATA) for _ in range(n)]
        self.is_adaptive: bool = self.kind == "AdaptiveRidgeGP"
        self.has_variances: bool = self.kind == "KernelRidgeGP" and pick(*range(6)) == 0
        noise_ratio = 1.0
        move = (
            f"{self.kind}, {name} kernel, lengthscale {lengthscale}, sigma={self.sigma}, B={self.B}, "
            f"outcomes {self.transform}, rows {self.rows}"
        )
        if self.has_variances:
            noise_ratio = 10.0  # the given variances contradict noise_std
            move += ", train_Yvar of another level"
        play.moves.append(move)
        self.variance: float = self.sigma**2 * noise_ratio**2
        self.noise = [play.noise(n, self.sigma * noise_ratio, False) for _ in range(2)]

    def model(self, output: int, transform: str) -> Any:
        """Return a model of one of the two functions."""
        make_transform, data_of = TRANSFORMS[transform]
        data = data_of(self.truths[output][self.rows] + self.noise[output])
        Y = tensor(data).unsqueeze(-1)
        options: dict[str, Any] = {"outcome_transform": make_transform()}
        if self.play.pick(True, False):
            unit_interval = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
            options["input_transform"] = Normalize(1, bounds=unit_interval)
        if self.kind == "NystromGP":
            options["dictionary"] = self.play.pick(FixedDictionary(self.Z[:6]), None)
        if self.has_variances:
            options["train_Yvar"] = torch.full_like(Y, self.variance)
        noise: Any = self.variance
        if self.is_adaptive:
            noise = MixtureNoiseBounds(self.B, DELTA, 1.5 * self.sigma)
        return MODELS[self.kind](self.Z[self.rows], Y, self.kernel, noise, **options)

    def confidence(self) -> Confidence:
        """Return a bound for a model."""
        if self.is_adaptive:
            return AdaptiveMixture()
        return self.play.pick(SelfNormalized, MartingaleMixture)(self.sigma, self.B, DELTA)

    # Moves: each returns the model that goes on, or None for the same one.

    def conditioned(self, model: Any) -> Any:
        """Return the model conditioned on three more observations."""
        rows = [self.play.rng.randrange(N_DATA) for _ in range(3)]
        data = self.truths[0][rows] + self.play.noise(3, self.sigma, False)
        Y = tensor(data).unsqueeze(-1)
        if self.has_variances:
            variances = torch.full_like(Y, self.sigma**2)
            return model.condition_on_observations(self.Z[rows], Y, noise=variances)
        return model.condition_on_observations(self.Z[rows], Y)

    def loaded(self, model: Any) -> Any:
        """Return a new model with the state of this one."""
        new = self.model(0, "none")
        state = model.state_dict()
        if self.play.pick(True, False):
            state = through_file(state)
        new.load_state_dict(state)
        return new

    def stretched(self, model: Any) -> None:
        """Change the kernel of the model."""
        stretch(model.covar_module, 5.0)

    def with_less_noise(self, model: Any) -> None:
        """Overwrite the noise of the model."""
        model.likelihood.noise = max(1e-4 * self.sigma**2, 1.1e-8)

    def with_smaller_norm(self, model: Any) -> None:
        """Overwrite the norm bound of the confidence of the objective."""
        confidence: Any = self.confidences[0]
        confidence.norm_bound = 1e-3 * self.B

    def changes(self) -> dict[str, Callable[[Any], Any]]:
        """Return the moves by name."""
        return {
            "condition": self.conditioned,
            "load": self.loaded,
            "train, eval": lambda model: model.train().eval(),
            "lengthscale = 5": self.stretched,
            "noise / 10000": self.with_less_noise,
            "norm_bound / 1000": self.with_smaller_norm,
            "deepcopy": COPIES["deepcopy"],
            "pickle": COPIES["pickle"],
        }

    def run(self) -> None:
        """Make two models, change the model of the objective several times, and compare with the truth."""
        objective = self.play.do("a model", lambda: self.model(0, "none"))
        limited = self.play.do("a model of the constraint", lambda: self.model(1, self.transform))
        if objective is None or limited is None:
            return
        self.confidences = [self.confidence() for _ in range(2)]
        changes = self.changes()
        for _ in range(self.play.rng.randint(0, 4)):
            name = self.play.pick("condition", "condition", *changes)
            objective = self.play.do(name, lambda: changes[name](objective)) or objective  # noqa: B023
        if self.play.pick(True, False, False):
            stretch(self.kernel, 9.0)
            self.play.moves.append("the caller's kernel: lengthscale = 9")
        self.compare_upper_bound(objective)
        self.compare_limits(objective, limited)

    def upper_bound(self, objective: Any) -> Any:
        """Return an acquisition function that is an upper bound of the objective."""
        if self.is_adaptive or self.play.pick(True, False):
            return KernelUCB(objective, self.confidences[0])
        return self.play.pick(AMMUCB, CMMUCB, DMMUCB)(objective, self.sigma, self.B, DELTA)

    def compare_upper_bound(self, objective: Any) -> None:
        """Compare an upper bound with the truth."""
        acqf = self.play.do("an upper bound", lambda: self.upper_bound(objective))
        if acqf is None:
            return

        def is_wrong() -> bool:
            if not acqf.finite:
                return False
            no_lower_bound = torch.full((len(self.Z),), -math.inf)
            return outside(no_lower_bound, acqf(self.Z.unsqueeze(-2)), self.truths[0])

        self.play.judge(type(acqf).__name__, DELTA, lambda: acqf.guarantee is not None, is_wrong)

    def compare_limits(self, objective: Any, limited: Any) -> None:
        """Compare with the truth which points are stated to keep a limit or to break it."""
        data = TRANSFORMS[self.transform][1](self.truths[1])
        limit = float(np.median(data)) + 1e-3 * self.sigma
        if self.play.pick(True, False):
            pair = (None, limit)
            keeps = data <= limit
        else:
            pair = (limit, None)
            keeps = data >= limit
        joint = self.play.pick(SafeUCB, ConstrainedKernelUCB)
        acqf = self.play.do(
            f"{joint.__name__} with limits {pair}",
            lambda: joint(ModelListGP(objective, limited), self.confidences, 0, {1: pair}),
        )
        if acqf is None:
            return

        def is_wrong() -> bool:
            slack = acqf.slack(self.Z).detach().numpy()
            if joint is SafeUCB:
                wrong = (slack >= 0) & ~keeps  # said to keep the limit
            else:
                wrong = (slack < 0) & keeps  # said to break it
            return acqf.terms[1].finite and bool(np.isnan(slack).any() or wrong.any())

        kind = f"{joint.__name__} limits"
        self.play.judge(kind, 2 * DELTA, lambda: acqf.guarantee is not None, is_wrong)


def models(play: Play) -> None:
    """Play one sequence on models."""
    Models(play).run()
