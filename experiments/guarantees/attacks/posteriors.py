"""Sequences on a posterior and a confidence."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
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

N_DATA, N_PROBES = 14, 8
ISOLATED = 20_000
"""Points far from all others, at which a draw of the prior has independent values."""


class NonNegative(Confidence):
    """A bound of one's own: a given bound, clamped to a range that is known."""

    def __init__(self, bound: Confidence, least: float, most: float) -> None:
        self.bound, self.least, self.most, self.delta = bound, least, most, bound.delta
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
    "own, wrapping": lambda s, B, delta: NonNegative(c.SelfNormalized(s, B, delta), -1e3, 1e3),
}
"""Bounds for functions of bounded norm."""

NOISE_BOUNDS: dict[str, Callable[..., Any]] = {
    "paper": partial(DurandNoiseBounds, printed=True),
    "tight": partial(DurandNoiseBounds, printed=False),
    "tight+grid": c.NoiseBounds,
    "mixture": partial(c.MixtureNoiseBounds, strict=False),
    "mixture+strict": partial(c.MixtureNoiseBounds, strict=True),
}
"""Bounds of the noise level, given a norm bound, delta and an upper bound of the level."""

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

SMALLER, LARGER = ["noise_std", "norm_bound", "n_points", "eta", "upper"], ["scale", "mu"]
WRITES = (
    dict.fromkeys(SMALLER, 1e-3) | dict.fromkeys(LARGER, 1e3) | {"delta": 1.0, "mixture_delta": 1.0}
)
"""Attributes of confidences and noise bounds, and factors by which they are overwritten."""


class Sequence:
    """A posterior and a confidence, data for them, and the moves.

    Args:
        play: The sequence.
        rounding: Whether points are nearly equal or far from zero, and the noise is small.
    """

    def __init__(self, play: Play, rounding: bool = False) -> None:
        self.play, pick, self.rounding = play, play.pick, rounding
        self.bound, self.state_name = pick(*BOUNDS), pick(*STATES, *["exact"] * 6)
        self.prior = self.bound in PRIOR_BOUNDS
        self.delta = 1e-2 if self.prior else 1e-3
        self.sigma, self.B = pick(2e-4, 1e-2, 0.3), pick(1.0, 4.0)
        self.signs = not self.prior and pick(True, False, False)
        self.lengthscale, d = pick(0.1, 0.3, 1.0), pick(1, 1, 2, 6)
        self.name = pick(*RADIAL, "linear")
        self.shift = pick(*[0.0] * 8, 1e3, 1e8, 1e13) if self.name != "linear" else 0.0
        if rounding:
            self.bound, self.prior, self.delta, self.sigma = (
                pick("self-normalized", "dmm", "cmm"),
                False,
                1e-3,
                2e-4,
            )
            self.name, self.shift = (
                pick("matern12", "subclass", "expanded", "product"),
                pick(0.0, 0.0, 1e8, 1e13),
            )
            self.state_name = pick("exact", "exact", "online")
        self.kernel, values = (
            linear() if self.name == "linear" else radial(self.name, self.lengthscale)
        )
        self.P = self._points(d)
        self.f = Function(values, self.P, None if self.prior else self.B, play.rng)
        self.truth = self.f(self.P)
        self.X, self.Z = tensor(self.P[:N_DATA]), tensor(self.P)
        self.ridge = self.sigma**2 if self.prior else self.sigma**2 * pick(1.0, 1.0, 0.1, 10.0)
        # A state of another kernel class with the same parameters is loaded into that of the right kernel later on.
        radials = [name for name in RADIAL if name != self.name]
        self.other = radial(pick(*radials), self.lengthscale)[0] if pick(*range(6)) == 0 else None
        play.moves.append(
            f"{self.state_name} state, {self.bound}, {self.name} kernel, d={d}, sigma={self.sigma}, B={self.B}, "
            f"ridge={self.ridge:g}, lengthscale={self.lengthscale}, shift={self.shift:g}"
            + (f", begun under {type(self.other).__name__}" if self.other else "")
        )
        self.seeded: Any = (
            play.noise(N_DATA, self.sigma, self.signs) if pick(*range(16)) == 0 else None
        )
        self.confidence = self._confidence()
        self.state = self._empty(self.other or self.kernel)

    def _points(self, d: int) -> Array:
        """Return points for data, partly nearly equal ones, and those at which bounds are compared."""
        rng = self.play.rng
        unit = np.array([[rng.random() for _ in range(d)] for _ in range(N_DATA + N_PROBES)])
        if self.name == "linear":
            unit[-1] = 0.0
        if self.play.pick(True, False, False) or self.rounding:  # nearly equal points
            for i in range(1, 12 if self.rounding else 6):
                unit[i] = unit[0] + 10.0 ** -self.play.pick(6, 8, 9) * np.array(
                    [rng.random() for _ in range(d)]
                )
        return unit + self.shift * self.lengthscale

    def _confidence(self) -> Confidence:
        s, B, delta = self.sigma, self.B, self.delta
        if self.bound in NORM_BOUNDS:
            return NORM_BOUNDS[self.bound](s, B, delta)
        if self.bound in ADAPTIVE:
            return ADAPTIVE[self.bound][0]()
        known = self.name in ("rbf", "matern12", "matern32", "matern52")
        self.elsewhere = known and not self.shift and self.play.pick(True, False)
        if self.bound == "chaining":
            return c.Chaining(delta, rigorous=True, points=self.Z[: 2 if self.elsewhere else None])
        return c.FiniteSet(
            1 if self.elsewhere else len(self.Z), delta, self.bound.removeprefix("finite set, ")
        )

    def _empty(self, kernel: Any) -> Any:
        if self.bound in ADAPTIVE:
            bounds = NOISE_BOUNDS[ADAPTIVE[self.bound][1]](self.B, self.delta, 1.5 * self.sigma)
            return r.AdaptiveRidge(STATES[self.state_name](kernel, bounds.ridge, self.X), bounds)
        return STATES[self.state_name](kernel, self.ridge, self.X)

    # Moves

    def learn(self) -> None:
        """New observations at random rows, perhaps with weights."""
        rng = self.play.rng
        rows = [rng.randrange(N_DATA) for _ in range(rng.randint(1, 6))]
        e = (
            self.play.noise(len(rows), self.sigma, self.signs)
            if self.seeded is None
            else self.seeded[rows]
        )
        w = None if self.seeded is not None else self.play.pick(*[None] * 5, 4.0)
        weights = None if w is None else torch.full((len(rows),), w, dtype=torch.float64)
        y = self.truth[rows] + e / math.sqrt(w or 1.0)
        name = f"update {rows}" + f" of weight {w}" * (w is not None)
        self.play.do(name, lambda: self.state.update(self.X[rows], tensor(y), weights))

    def repeat_exactly(self) -> None:
        """Repetitions of an objective that fixes its random seed."""
        row = self.play.rng.randrange(N_DATA)
        y = torch.full((400,), float(self.truth[row] + self.seeded[row]), dtype=torch.float64)
        self.play.do("400 equal values", lambda: self.state.update(self.X[[row] * 400], y))

    def copy(self) -> None:
        """Copies of the state, or of the confidence."""
        name = self.play.pick(*COPIES, "fork")
        copied = COPIES.get(name, lambda state: state.fork())
        if name == "fork" or self.play.pick(True, False):
            self.state = (
                self.play.do(f"{name} of the state", lambda: copied(self.state)) or self.state
            )
        else:
            self.confidence = (
                self.play.do(f"{name} of the confidence", lambda: copied(self.confidence))
                or self.confidence
            )

    def load(self) -> None:
        """Save and load."""
        new = self.play.do("save, load", lambda: pickle.loads(pickle.dumps(self.state)))
        if new is not None:
            self.state, self.other = new, None

    def write_confidence(self) -> None:
        """Overwrite a number of the confidence, of one inside it, or of noise bounds."""
        bound = self.confidence
        inner = getattr(bound, "confidence", None) or getattr(bound, "bound", None) or bound
        target = self.play.pick(bound, inner, getattr(self.state, "schedule", None) or bound)
        names = [name for name in WRITES if isinstance(getattr(target, name, None), (int, float))]
        if not names:
            return
        name = self.play.pick(*names)
        value = (
            0.9
            if WRITES[name] == 1.0
            else type(getattr(target, name))(getattr(target, name) * WRITES[name])
        )
        value = max(value, 1) if isinstance(value, int) else value
        self.play.do(
            f"{type(target).__name__}.{name} = {value:g}", lambda: setattr(target, name, value)
        )

    def write_ridge(self) -> None:
        """Overwrite or move the ridge."""
        ridge = self.state.ridge * self.play.pick(1e-6, 1e-3, 1e3)
        if self.play.pick(True, True, False):
            self.play.do(f"state.ridge = {ridge:g}", lambda: setattr(self.state, "ridge", ridge))
        else:
            self.play.do(f"move_ridge({ridge:g})", lambda: self.state.move_ridge(ridge))

    def write_kernel(self) -> None:
        """Change the caller's kernel, or give the state another one."""
        if self.other is None and self.name in RADIAL and self.play.pick(True, False):
            other = radial(self.name, 10 * self.lengthscale)[0]
            self.play.do("state.kernel = another", lambda: setattr(self.state, "kernel", other))
            return
        mine, self.kernel = self.kernel, copy.deepcopy(self.kernel)
        self.play.do("the caller's kernel: lengthscale = 30", lambda: stretch(mine, 30.0))

    def look(self) -> None:
        """Read bounds in between."""
        self.play.do("interval", lambda: self.confidence.interval(self.state, self.Z))

    def imagine(self) -> None:
        """Hypothetical observations."""
        y = tensor(self.truth[:3] + 5 * self.B)
        self.state = (
            self.play.do("Hypothetical", lambda: r.Hypothetical(self.state, self.X[:3], y))
            or self.state
        )

    def run(self) -> None:
        """Make the moves, then compare."""
        usual = [self.learn] * 6 + [self.copy, self.copy, self.load, self.look, self.look]
        attacks = [
            self.write_confidence,
            self.write_confidence,
            self.write_ridge,
            self.write_kernel,
            self.imagine,
        ]
        moves = [self.play.pick(*usual) for _ in range(self.play.rng.randint(2, 6))]
        if self.seeded is not None:
            moves.append(self.repeat_exactly)
        elif self.play.pick(True, True, False):
            moves.insert(self.play.rng.randint(1, len(moves)), self.play.pick(*attacks))
        if self.rounding:
            moves = [self.learn] * 4 + [self.copy, self.load]
        for move in [self.learn, *moves]:
            move()
        if self.other is not None:
            self.load()
        if self.other is None:
            self.compare()

    def compare(self) -> None:
        """Compare the interval with the truth, if there is a guarantee."""

        def wrong() -> bool:
            if not self.confidence.finite_on(self.state):
                return False
            lower, upper = self.confidence.interval(self.state, self.Z)
            found = outside(lower, upper, self.truth)
            if self.prior and self.elsewhere:
                X = self.Z[:1].repeat(ISOLATED, 1)
                X[:, 0] += 100.0 * (1 + torch.arange(ISOLATED, dtype=X.dtype))
                rng = np.random.default_rng(self.play.rng.randrange(1 << 30))
                values = math.sqrt(RADIAL[self.name][2]) * rng.normal(size=ISOLATED)
                self.play.moves.append(f"interval at {ISOLATED} other points")
                found = outside(*self.confidence.interval(self.state, X), values)
            return found

        # Where fewer points are named than are asked about, only the last answer counts.
        self.play.judge(
            self.bound,
            self.delta,
            lambda: self.confidence.guarantee_on(self.state) is not None,
            wrong,
        )


def posteriors(play: Play) -> None:
    """Play one sequence."""
    Sequence(play).run()


def rounding(play: Play) -> None:
    """Play one sequence on points that are nearly equal, or far from zero."""
    Sequence(play, rounding=True).run()
