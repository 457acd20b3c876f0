"""Random sequences of calls on a posterior and a confidence."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from experiments.durand_noise import DurandNoiseBounds
from experiments.guarantees.attacks.functions import (
    RADIAL,
    Array,
    Function,
    linear,
    radial,
    stretch,
    tensor,
)
from experiments.guarantees.attacks.play import COPIES, Play, outside
from kbo import confidence as c
from kbo import regression as r
from kbo.confidence import Confidence

N_DATA = 14
"""Number of points that may have data."""

N_PROBES = 8
"""Number of further points at which bounds are compared with the truth."""

ISOLATED = 20_000
"""Number of points far from all others, at which a draw of the prior has independent values."""


class Clamped(Confidence):
    """A bound as a user may write it: a given bound, clamped to a range that contains the function."""

    def __init__(self, bound: Confidence, least: float, most: float) -> None:
        self.bound = bound
        self.least = least
        self.most = most
        self.delta = bound.delta
        self.guarantee = bound.guarantee and f"{bound.guarantee}, and it lies in a range"

    def interval(self, state, X):
        """Return lower and upper bound [...] at X [... d]."""
        lower, upper = self.bound.interval(state, X)
        return lower.clamp_min(self.least), upper.clamp_max(self.most)

    def objections(self, state):
        """Return the objections of the given bound, or else those of any confidence."""
        return self.bound.objections(state) or super().objections(state)


NORM_BOUNDS: dict[str, Callable[[float, float, float], Confidence]] = {
    "self-normalized": c.SelfNormalized,
    "improved": lambda s, B, delta: c.ImprovedGPUCB(s, B, delta, 0.1),
    "bkb": c.BKB,
    "k-ucb": partial(c.EKUCB, projection=0.0),
    "ek-ucb": lambda s, B, delta: c.EKUCB(s, B, delta, 0.4 * s**2),
    "amm": partial(c.MartingaleMixture, kind="amm"),
    "dmm": partial(c.MartingaleMixture, kind="dmm"),
    "cmm": partial(c.MartingaleMixture, kind="cmm"),
    "cmm of scales": partial(c.MartingaleMixture, kind="cmm", scale=[0.25, 1.0, 16.0]),
    "unknown norm": lambda s, B, delta: c.UnknownNorm(s, delta),
    "own, wrapping": lambda s, B, delta: Clamped(c.SelfNormalized(s, B, delta), -1e3, 1e3),
}
"""Bounds for functions of bounded norm."""

NOISE_BOUNDS: dict[str, Callable[..., Any]] = {
    "paper": partial(DurandNoiseBounds, printed=True),
    "tight": partial(DurandNoiseBounds, printed=False),
    "tight+grid": c.NoiseBounds,
    "mixture": partial(c.MixtureNoiseBounds, strict=False),
    "mixture+strict": partial(c.MixtureNoiseBounds, strict=True),
}
"""Bounds on the noise level, given a norm bound, delta and an upper bound on the level."""

ADAPTIVE = {
    **{
        f"adaptive {variant}": (c.AdaptiveSelfNormalized, variant)
        for variant in ("paper", "tight", "tight+grid")
    },
    **{
        f"adaptive {kind} {variant}": (partial(c.AdaptiveMixture, kind), variant)
        for kind in ("amm", "dmm", "cmm")
        for variant in ("mixture", "mixture+strict")
    },
}
PRIOR_BOUNDS = [
    *(f"finite set, {variant}" for variant in ("mixture", "quantile", "paper")),
    "chaining",
]
BOUNDS = [*NORM_BOUNDS, *ADAPTIVE, *PRIOR_BOUNDS]

STATES: dict[str, Callable[[Any, float, Any], Any]] = {
    "exact": lambda k, ridge, X: r.KernelRidge(k, ridge),
    "fixed": lambda k, ridge, X: r.NystromRidge(k, ridge, r.FixedDictionary(X[:5])),
    "online": lambda k, ridge, X: r.NystromRidge(k, ridge, r.OnlineRowSampling(ridge)),
    "greedy": lambda k, ridge, X: r.NystromRidge(k, ridge, r.GreedyDictionary(0.1)),
    "resampled": lambda k, ridge, X: r.NystromRidge(k, ridge, r.LeverageResampling(2.0)),
    "batched": lambda k, ridge, X: r.NystromRidge(k, ridge, r.BatchedResampling(2.0)),
}

SMALLER = ["noise_std", "norm_bound", "n_points", "eta", "upper"]
LARGER = ["scale", "mu"]
WRITES = dict.fromkeys(SMALLER, 1e-3) | dict.fromkeys(LARGER, 1e3)
"""Attributes of confidences and noise bounds, and factors by which they are overwritten."""

DELTAS = ["delta", "mixture_delta"]
"""Attributes that are overwritten by 0.9."""


@dataclass(frozen=True)
class Setup:
    """Assumptions of a sequence.

    Attributes:
        bound: One of ``BOUNDS``.
        state: One of ``STATES``.
        sigma: Standard deviation of the noise.
        B: Norm of the function, unless it is a draw of the prior.
        signs: Whether the noise is plus or minus ``sigma``, not Gaussian.
        lengthscale: Lengthscale of the kernel.
        dimension: Number of variables.
        kernel: "linear", or one of ``RADIAL``.
        shift: Distance of the points from zero, in lengthscales.
        rounds_badly: Whether many points are nearly equal.
    """

    bound: str
    state: str
    sigma: float
    B: float
    signs: bool
    lengthscale: float
    dimension: int
    kernel: str
    shift: float
    rounds_badly: bool

    @property
    def is_draw(self) -> bool:
        """Whether the function is a draw of the prior."""
        return self.bound in PRIOR_BOUNDS

    @property
    def delta(self) -> float:
        """Probability that the bound may fail."""
        if self.is_draw:
            return 1e-2
        return 1e-3


def random_setup(play: Play) -> Setup:
    """Return assumptions at random."""
    pick = play.pick
    bound = pick(*BOUNDS)
    state = pick(*STATES, *["exact"] * 6)
    sigma = pick(2e-4, 1e-2, 0.3)
    B = pick(1.0, 4.0)
    signs = bound not in PRIOR_BOUNDS and pick(True, False, False)
    lengthscale = pick(0.1, 0.3, 1.0)
    dimension = pick(1, 1, 2, 6)
    kernel = pick(*RADIAL, "linear")
    shift = 0.0
    if kernel != "linear":
        shift = pick(*[0.0] * 8, 1e3, 1e8, 1e13)
    return Setup(
        bound, state, sigma, B, signs, lengthscale, dimension, kernel, shift, rounds_badly=False
    )


def rounding_setup(play: Play) -> Setup:
    """Return assumptions at random under which points are nearly equal or far from zero, and the noise is small."""
    setup = random_setup(play)
    bound = play.pick("self-normalized", "dmm", "cmm")
    kernel = play.pick("matern12", "subclass", "expanded", "product")
    shift = play.pick(0.0, 0.0, 1e8, 1e13)
    state = play.pick("exact", "exact", "online")
    return replace(
        setup, bound=bound, kernel=kernel, shift=shift, state=state, sigma=2e-4, rounds_badly=True
    )


def points_of(setup: Setup, play: Play) -> Array:
    """Return points [n d]: ``N_DATA`` for data, some of them perhaps nearly equal, and ``N_PROBES`` others."""
    rng = play.rng
    d = setup.dimension
    points = np.array([[rng.random() for _ in range(d)] for _ in range(N_DATA + N_PROBES)])
    if setup.kernel == "linear":
        points[-1] = 0.0
    if play.pick(True, False, False) or setup.rounds_badly:
        n_near = 11 if setup.rounds_badly else 5
        for i in range(1, n_near + 1):
            distance = 10.0 ** -play.pick(6, 8, 9)
            points[i] = points[0] + distance * np.array([rng.random() for _ in range(d)])
    return points + setup.shift * setup.lengthscale


class Sequence:
    """A posterior and a confidence, data for them, and the moves.

    Args:
        play: The sequence.
        setup: Its assumptions.
    """

    def __init__(self, play: Play, setup: Setup) -> None:
        self.play = play
        self.setup = setup
        if setup.kernel == "linear":
            self.kernel, values = linear()
        else:
            self.kernel, values = radial(setup.kernel, setup.lengthscale)
        points = points_of(setup, play)
        norm = None if setup.is_draw else setup.B
        self.truth: Array = Function(values, points, norm, play.rng)(points)
        self.X = tensor(points[:N_DATA])
        self.Z = tensor(points)
        self.ridge = setup.sigma**2
        if not setup.is_draw:
            self.ridge *= play.pick(1.0, 1.0, 0.1, 10.0)
        self.other_kernel: Any = self._other_kernel()
        play.moves.append(self._first_move())
        self.fixed_noise: Any = None
        if play.pick(*range(16)) == 0:
            self.fixed_noise = play.noise(N_DATA, setup.sigma, setup.signs)
        self.asks_elsewhere = False
        self.confidence = self._confidence()
        first_kernel = self.kernel
        if self.other_kernel is not None:
            first_kernel = self.other_kernel
        self.state = self._empty(first_kernel)

    def _other_kernel(self) -> Any:
        """Return a kernel of another class with the same parameters; most often None.

        If it is not None, the first state has this kernel, and is later loaded into a state with the right kernel.
        """
        if self.play.pick(*range(6)) != 0:
            return None
        names = [name for name in RADIAL if name != self.setup.kernel]
        kernel, _ = radial(self.play.pick(*names), self.setup.lengthscale)
        return kernel

    def _first_move(self) -> str:
        setup = self.setup
        words = (
            f"{setup.state} state, {setup.bound}, {setup.kernel} kernel, d={setup.dimension}, sigma={setup.sigma}, "
            f"B={setup.B}, ridge={self.ridge:g}, lengthscale={setup.lengthscale}, shift={setup.shift:g}"
        )
        if self.other_kernel is None:
            return words
        return f"{words}, begun under {type(self.other_kernel).__name__}"

    def _confidence(self) -> Confidence:
        """Return the confidence; for draws it sometimes names fewer points than it is evaluated at."""
        setup = self.setup
        if setup.bound in NORM_BOUNDS:
            return NORM_BOUNDS[setup.bound](setup.sigma, setup.B, setup.delta)
        if setup.bound in ADAPTIVE:
            return ADAPTIVE[setup.bound][0]()
        vanishes_far_away = setup.kernel in ("rbf", "matern12", "matern32", "matern52")
        if vanishes_far_away and not setup.shift:
            self.asks_elsewhere = self.play.pick(True, False)
        if setup.bound == "chaining":
            points = self.Z[:2] if self.asks_elsewhere else self.Z
            return c.Chaining(setup.delta, rigorous=True, points=points)
        n_points = 1 if self.asks_elsewhere else len(self.Z)
        return c.FiniteSet(n_points, setup.delta, setup.bound.removeprefix("finite set, "))

    def _empty(self, kernel: Any) -> Any:
        """Return a posterior without data."""
        setup = self.setup
        make = STATES[setup.state]
        if setup.bound not in ADAPTIVE:
            return make(kernel, self.ridge, self.X)
        _, variant = ADAPTIVE[setup.bound]
        noise = NOISE_BOUNDS[variant](setup.B, setup.delta, 1.5 * setup.sigma)
        return r.AdaptiveRidge(make(kernel, noise.ridge, self.X), noise)

    # Moves

    def learn(self) -> None:
        """Learn new observations at random rows, perhaps with weights."""
        rng = self.play.rng
        n = rng.randint(1, 6)
        rows = [rng.randrange(N_DATA) for _ in range(n)]
        name = f"update {rows}"
        weights = None
        if self.fixed_noise is not None:
            noise = self.fixed_noise[rows]
        else:
            noise = self.play.noise(n, self.setup.sigma, self.setup.signs)
            weight = self.play.pick(*[None] * 5, 4.0)
            if weight is not None:
                name += f" of weight {weight}"
                noise = noise / math.sqrt(weight)
                weights = torch.full((n,), weight, dtype=torch.float64)
        y = tensor(self.truth[rows] + noise)
        self.play.do(name, lambda: self.state.update(self.X[rows], y, weights))

    def repeat_exactly(self) -> None:
        """Learn equal values at one point, as of an objective that fixes its random seed."""
        row = self.play.rng.randrange(N_DATA)
        y = torch.full((400,), float(self.truth[row] + self.fixed_noise[row]), dtype=torch.float64)
        self.play.do("400 equal values", lambda: self.state.update(self.X[[row] * 400], y))

    def copy(self) -> None:
        """Go on with a copy of the state, or of the confidence."""
        name = self.play.pick(*COPIES, "fork")
        if name == "fork":
            self.state = self.play.do("fork of the state", lambda: self.state.fork()) or self.state
            return
        copied = COPIES[name]
        if self.play.pick(True, False):
            state = self.play.do(f"{name} of the state", lambda: copied(self.state))
            self.state = state or self.state
        else:
            confidence = self.play.do(f"{name} of the confidence", lambda: copied(self.confidence))
            self.confidence = confidence or self.confidence

    def load(self) -> None:
        """Save and load."""
        state = self.play.do("save, load", lambda: pickle.loads(pickle.dumps(self.state)))
        if state is not None:
            self.state = state
            self.other_kernel = None

    def write_confidence(self) -> None:
        """Overwrite a number of the confidence, of one inside it, or of noise bounds."""
        bound: Any = self.confidence
        inner = getattr(bound, "confidence", None) or getattr(bound, "bound", None) or bound
        target = self.play.pick(bound, inner, getattr(self.state, "schedule", None) or bound)
        numbers = [*WRITES, *DELTAS]
        names = [name for name in numbers if isinstance(getattr(target, name, None), (int, float))]
        if not names:
            return
        name = self.play.pick(*names)
        value = self._overwritten(name, getattr(target, name))
        move = f"{type(target).__name__}.{name} = {value:g}"
        self.play.do(move, lambda: setattr(target, name, value))

    def _overwritten(self, name: str, value: float) -> float:
        """Return a wrong value of an attribute that would make a bound too narrow."""
        if name in DELTAS:
            return 0.9
        if isinstance(value, int):
            return max(int(value * WRITES[name]), 1)
        return value * WRITES[name]

    def write_ridge(self) -> None:
        """Overwrite or move the ridge."""
        ridge = self.state.ridge * self.play.pick(1e-6, 1e-3, 1e3)
        if self.play.pick(True, True, False):
            self.play.do(f"state.ridge = {ridge:g}", lambda: setattr(self.state, "ridge", ridge))
        else:
            self.play.do(f"move_ridge({ridge:g})", lambda: self.state.move_ridge(ridge))

    def write_kernel(self) -> None:
        """Change the caller's kernel, or give the state another one."""
        is_radial = self.other_kernel is None and self.setup.kernel in RADIAL
        if is_radial and self.play.pick(True, False):
            other, _ = radial(self.setup.kernel, 10 * self.setup.lengthscale)
            self.play.do("state.kernel = another", lambda: setattr(self.state, "kernel", other))
            return
        given = self.kernel
        self.kernel = copy.deepcopy(given)
        self.play.do("the caller's kernel: lengthscale = 30", lambda: stretch(given, 30.0))

    def look(self) -> None:
        """Read bounds in between."""
        self.play.do("interval", lambda: self.confidence.interval(self.state, self.Z))

    def imagine(self) -> None:
        """Go on with hypothetical observations."""
        y = tensor(self.truth[:3] + 5 * self.setup.B)
        state = self.play.do("Hypothetical", lambda: r.Hypothetical(self.state, self.X[:3], y))
        self.state = state or self.state

    def run(self) -> None:
        """Make the moves, then compare."""
        for move in [self.learn, *self._moves()]:
            move()
        if self.other_kernel is not None:
            self.load()
        if self.other_kernel is None:
            self.compare()

    def _moves(self) -> list[Callable[[], None]]:
        """Return the moves after the first, with at most one attack."""
        rng = self.play.rng
        usual = [self.learn] * 6 + [self.copy, self.copy, self.load, self.look, self.look]
        attacks = [self.write_confidence, self.write_confidence, self.write_ridge]
        attacks += [self.write_kernel, self.imagine]
        moves = [self.play.pick(*usual) for _ in range(rng.randint(2, 6))]
        if self.fixed_noise is not None:
            moves.append(self.repeat_exactly)
        elif self.play.pick(True, True, False):
            moves.insert(rng.randint(1, len(moves)), self.play.pick(*attacks))
        if self.setup.rounds_badly:
            return [self.learn] * 4 + [self.copy, self.load]
        return moves

    def compare(self) -> None:
        """Compare the interval with the truth, if there is a guarantee."""

        def has_guarantee() -> bool:
            return self.confidence.guarantee_on(self.state) is not None

        self.play.judge(self.setup.bound, self.setup.delta, has_guarantee, self.is_wrong)

    def is_wrong(self) -> bool:
        """Return whether the function is outside of its interval."""
        if not self.confidence.finite_on(self.state):
            return False
        lower, upper = self.confidence.interval(self.state, self.Z)
        if self.asks_elsewhere:
            # If fewer points are named than are evaluated, only the last result counts.
            return self.is_wrong_elsewhere()
        return outside(lower, upper, self.truth)

    def is_wrong_elsewhere(self) -> bool:
        """Return whether the draw of the prior is outside of its interval at ``ISOLATED`` other points."""
        X = self.Z[:1].repeat(ISOLATED, 1)
        X[:, 0] += 100.0 * (1 + torch.arange(ISOLATED, dtype=X.dtype))
        rng = np.random.default_rng(self.play.rng.randrange(1 << 30))
        _, _, variance = RADIAL[self.setup.kernel]
        values = math.sqrt(variance) * rng.normal(size=ISOLATED)
        self.play.moves.append(f"interval at {ISOLATED} other points")
        lower, upper = self.confidence.interval(self.state, X)
        return outside(lower, upper, values)


def posteriors(play: Play) -> None:
    """Play one sequence."""
    Sequence(play, random_setup(play)).run()


def rounding(play: Play) -> None:
    """Play one sequence on points that are nearly equal, or far from zero."""
    Sequence(play, rounding_setup(play)).run()
