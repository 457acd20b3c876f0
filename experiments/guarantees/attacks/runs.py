"""Sequences on models and acquisition functions, on optimisers, and on studies and experiments of others."""

from __future__ import annotations

import copy
import itertools
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from botorch.models import ModelListGP
from botorch.models.transforms import Normalize, Standardize
from botorch.models.transforms.outcome import OutcomeTransform

import kbo
from experiments.guarantees.attacks.functions import (
    RADIAL,
    Array,
    Function,
    linear,
    radial,
    stretch,
    tensor,
)
from experiments.guarantees.attacks.play import COPIES, Play, outside, through_file
from kbo import bandit
from kbo.acquisition import AMMUCB, CMMUCB, DMMUCB, ConstrainedKernelUCB, KernelUCB, SafeUCB
from kbo.confidence import AdaptiveMixture, MartingaleMixture, MixtureNoiseBounds, SelfNormalized
from kbo.models import AdaptiveRidgeGP, KernelRidgeGP, NystromGP
from kbo.optimize.result import result_of
from kbo.regression import FixedDictionary

DELTA = 1e-3

# Models and acquisition functions


class Pointwise(OutcomeTransform):
    """A given function of the outcomes, and its inverse."""

    def __init__(self, there: Callable, back: Callable) -> None:
        super().__init__()
        self.there, self.back = there, back

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
"""Outcome transforms, and how data come from values of the function that a model is about."""


def models(play: Play) -> None:
    """Play one sequence on models; the functions are those of the transformed targets."""
    pick, rng = play.pick, play.rng
    name, lengthscale = pick(*RADIAL), pick(0.2, 0.5)
    kernel, values = radial(name, lengthscale)
    sigma, B = pick(1e-3, 0.05), pick(1.0, 2.0)
    P = np.array([[rng.random()] for _ in range(24)])
    functions = [Function(values, P, B, rng) for _ in range(2)]
    truths = [f(P) for f in functions]
    kinds = {
        "KernelRidgeGP": KernelRidgeGP,
        "NystromGP": NystromGP,
        "AdaptiveRidgeGP": AdaptiveRidgeGP,
    }
    kind, transform = pick("KernelRidgeGP", *kinds), pick(*TRANSFORMS)
    rows = [rng.randrange(8) for _ in range(rng.randint(5, 12))]
    Z, n = tensor(P), len(rows)
    known = kind == "KernelRidgeGP" and pick(*range(6)) == 0
    wrong_level = 100.0 if known else 1.0  # the given variances contradict noise_std
    play.moves.append(
        f"{kind}, {name} kernel, lengthscale {lengthscale}, sigma={sigma}, B={B}, outcomes {transform}, rows {rows}"
        + ", train_Yvar of another level" * known
    )
    e = [play.noise(n, sigma * math.sqrt(wrong_level), False) for _ in range(2)]

    def made(i: int, outcome: str) -> Any:
        make, back = TRANSFORMS[outcome]
        Y = tensor(back(truths[i][rows] + e[i])).unsqueeze(-1)
        options: dict[str, Any] = {"outcome_transform": make()}
        if pick(True, False):
            options["input_transform"] = Normalize(
                1, bounds=torch.tensor([[0.0], [1.0]], dtype=torch.float64)
            )
        if kind == "NystromGP":
            options["dictionary"] = pick(FixedDictionary(Z[:6]), None)
        if known:
            options["train_Yvar"] = torch.full_like(Y, sigma**2 * wrong_level)
        adaptive = kind == "AdaptiveRidgeGP"
        ridge = MixtureNoiseBounds(B, DELTA, 1.5 * sigma) if adaptive else sigma**2 * wrong_level
        return kinds[kind](Z[rows], Y, kernel, ridge, **options)

    objective = play.do("a model", lambda: made(0, "none"))
    limited = play.do("a model of the constraint", lambda: made(1, transform))
    if objective is None or limited is None:
        return
    adaptive = kind == "AdaptiveRidgeGP"
    confidences = [
        AdaptiveMixture() if adaptive else pick(SelfNormalized, MartingaleMixture)(sigma, B, DELTA)
        for _ in range(2)
    ]

    def conditioned(model: Any) -> Any:
        more = [rng.randrange(8) for _ in range(3)]
        Y = tensor(truths[0][more] + play.noise(3, sigma, False)).unsqueeze(-1)
        options = {"noise": torch.full_like(Y, sigma**2)} if known else {}
        return model.condition_on_observations(Z[more], Y, **options)

    def loaded(model: Any) -> Any:
        new = made(0, "none")
        new.load_state_dict(
            through_file(model.state_dict()) if pick(True, False) else model.state_dict()
        )
        return new

    changes: dict[str, Callable[[Any], Any]] = {
        "condition": conditioned,
        "load": loaded,
        "train, eval": lambda model: model.train().eval(),
        "lengthscale = 5": lambda model: stretch(model.covar_module, 5.0),
        "noise / 10000": lambda model: setattr(
            model.likelihood, "noise", max(1e-4 * sigma**2, 1.1e-8)
        ),
        "norm_bound / 1000": lambda model: setattr(confidences[0], "norm_bound", 1e-3 * B),
        "deepcopy": COPIES["deepcopy"],
        "pickle": COPIES["pickle"],
    }
    for _ in range(rng.randint(0, 4)):
        change = pick("condition", "condition", *changes)
        objective = play.do(change, lambda: changes[change](objective)) or objective  # noqa: B023
    if pick(True, False, False):
        stretch(kernel, 9.0)
        play.moves.append("the caller's kernel: lengthscale = 9")

    def upper() -> Any:
        if adaptive or pick(True, False):
            return KernelUCB(objective, confidences[0])
        return pick(AMMUCB, CMMUCB, DMMUCB)(objective, sigma, B, DELTA)

    if (acqf := play.do("an upper bound", upper)) is not None:

        def above() -> bool:
            return acqf.finite and outside(
                torch.full((len(Z),), -math.inf), acqf(Z.unsqueeze(-2)), truths[0]
            )

        play.judge(f"{type(acqf).__name__}", DELTA, lambda: acqf.guarantee is not None, above)
    data = TRANSFORMS[transform][1](truths[1])
    limit, above_limit = float(np.median(data)) + 1e-3 * sigma, pick(True, False)
    joint = pick(SafeUCB, ConstrainedKernelUCB)
    pair = (None, limit) if above_limit else (limit, None)
    name = f"{joint.__name__} with limits {pair}"
    if (
        acqf2 := play.do(
            name, lambda: joint(ModelListGP(objective, limited), confidences, 0, {1: pair})
        )
    ) is None:
        return

    def misjudged() -> bool:
        slack = acqf2.slack(Z).detach().numpy()
        kept = data <= limit if above_limit else data >= limit
        wrong = (slack >= 0) & ~kept if joint is SafeUCB else (slack < 0) & kept
        return acqf2.terms[1].finite and bool(np.isnan(slack).any() or wrong.any())

    play.judge(
        f"{joint.__name__} limits", 2 * DELTA, lambda: acqf2.guarantee is not None, misjudged
    )


# Settings

LOW = 1.7e18
"""Where float64 stores every 256th whole number."""

METHODS = [
    name
    for name in bandit.names()
    if (one := bandit.get(name)).has_bounds
    and not one.fixed_kernel
    and one.norm in ("given", "unused")
]


class Tuning:
    """An optimiser in the certified or the safe setting, and functions for it."""

    def __init__(self, play: Play) -> None:
        self.play, pick, rng = play, play.pick, play.rng
        self.tmp = tempfile.TemporaryDirectory()
        self.sigma, self.B, self.signs = pick(1e-3, 0.05, 0.3), pick(1.0, 2.0), pick(True, False)
        self.kind = pick("certified", "certified", "constrained", "safe")
        shape = (
            pick("grid", "grid", "grid", "line", "narrow", "six")
            if self.kind != "constrained"
            else "grid"
        )
        self.maximize, self.seed = pick(True, False), rng.randrange(1000)
        self.bounds: dict[str, Any] = {"x": kbo.Float(0.0, 1.0)}
        if shape == "grid":
            self.bounds = {"a": kbo.Int(0, 5), "b": kbo.Int(0, 5)}
            self.grid = [{"a": a, "b": b} for a, b in itertools.product(range(6), range(6))]
        elif shape == "line":
            self.grid = [{"x": i / 30} for i in range(31)]
        elif shape == "narrow":
            self.bounds = {"x": kbo.Float(LOW, LOW + 4096)}
            self.grid = [{"x": LOW + 256.0 * i} for i in range(17)]
        else:
            self.bounds = {f"x{i}": kbo.Float(0.0, 1.0) for i in range(6)}
            middles = [[rng.random() for _ in range(6)] for _ in range(4)]
            near = [[x + 0.0016 * rng.choice([-1, 1]) for x in middles[i % 4]] for i in range(16)]
            self.grid = [
                {f"x{i}": min(max(x, 0.0), 1.0) for i, x in enumerate(point)}
                for point in middles + near
            ]
        name = (
            pick("linear", *RADIAL)
            if shape == "grid"
            else pick("rbf", "matern32", "matern52", "matern12")
        )
        self.shape = shape
        self.lengthscale = 0.002 if shape == "six" else 0.1 if shape == "narrow" else pick(0.2, 0.6)
        self.kernel, values = linear() if name == "linear" else radial(name, self.lengthscale)
        # The limit may be on a quantity that is 0 at the origin, where f may be as large as its norm allows.
        self.limited_by = (
            linear() if self.kind == "constrained" and pick(True, False) else (self.kernel, values)
        )
        centres = self.units([*rng.sample(self.grid, 11), self.grid[0]])
        self.f, self.g = (Function(k, centres, self.B, rng) for k in (values, self.limited_by[1]))
        if self.kind == "safe" and pick(
            True, True, False
        ):  # one bump, so that its value there determines the function
            self.g = Function(values, centres[:1], self.B, rng)
        self.method = (
            pick("dmm-ucb", "cmm-ucb", *METHODS)
            if self.kind == "certified"
            else pick("dmm-ucb", "cmm-ucb")
        )
        self.limit, self.start = self._limit()
        play.moves.append(
            f"{self.kind}, {shape}, {name} kernel of lengthscale {self.lengthscale}, sigma={self.sigma}, B={self.B}, "
            f"{self.method}, limit {self.limit:.4g}, {'signs' if self.signs else 'Gaussian'}"
        )
        self.unsafe = False
        self.setting = self.made(self.kernel)
        self.optimizer: Any = play.do("Optimizer", lambda: self.opened(self.setting))

    def units(self, params: list[Any]) -> Array:
        """Return points of the unit cube in extended precision."""
        low, high = np.array([(p.low, p.high) for p in self.bounds.values()], dtype=np.longdouble).T
        return (np.array([list(p.values()) for p in params], dtype=np.longdouble) - low) / (
            high - low
        )

    def _limit(self) -> tuple[float, Any]:
        """Return a limit that some points keep by far and others break, and the point that keeps it best."""
        g = self.g(self.units(self.grid))
        if self.limited_by[0] is not self.kernel:
            return 0.0, None
        if len(self.g.centres) == 1 and self.kind == "safe":
            best = int(np.abs(g).argmax())
            self.g.a = np.abs(self.g.a)
            r = self.play.pick(0.4, 0.8)
            one = self.g.centres + np.array(
                [r * self.lengthscale] + [0.0] * (self.g.centres.shape[1] - 1)
            )
            return float(self.g(one)[0]), self.grid[best]
        return float(np.quantile(g, 0.5 if self.kind == "safe" else 0.05)), self.grid[
            int(g.argmax())
        ]

    def made(self, kernel: Any) -> Any:
        """Return the setting with this kernel."""
        if self.kind == "safe":
            return kbo.Safe(kernel, self.sigma, self.B, DELTA, start=[self.start])
        levels = {"online": (None, 1.5 * self.sigma), "upper bound": (None, self.sigma)}
        sigma, upper = levels.get(bandit.get(self.method).noise, (self.sigma, None))
        return kbo.Certified(kernel, sigma, self.B, DELTA, noise_upper=upper)

    def opened(self, setting: Any) -> Any:
        """Return a new optimiser."""
        numbers = {"noise_std": self.sigma, "norm_bound": self.B, "kernel": self.limited_by[0]}
        limits = (
            [] if self.kind == "certified" else [kbo.Constraint("g", lower=self.limit, **numbers)]
        )
        options = {
            "n_trials": 40,
            "maximize": self.maximize,
            "constraints": limits,
            "seed": self.seed,
        }
        return kbo.Optimizer(self.bounds, setting=setting, method=self.method, **options)

    def value(self, params: Any, e: float | None = None) -> Any:
        """Return what the objective returns; with signs, ``e`` selects the noise."""
        u = self.units([params])
        noise = self.play.noise(2, self.sigma, self.signs) if e is None else np.array([e, e])
        value = float(self.f(u)[0] + noise[0])
        return value if self.kind == "certified" else (value, {"g": float(self.g(u)[0] + noise[1])})

    # Moves

    def step(self, n: int = 1) -> None:
        """Ask, evaluate and tell, later ones perhaps first."""
        asked = self.play.do(f"ask({n})", lambda: self.optimizer.ask(n)) or []
        if self.kind == "safe":
            self.unsafe |= any(
                float(self.g(self.units([p]))[0]) < self.limit - 1e-12 for p in asked
            )
        self.play.rng.shuffle(asked)
        for params in asked:
            self.play.do("tell", lambda: self.optimizer.tell(params, self.value(params)))  # noqa: B023

    def planned(self) -> None:
        """Evaluations at points of one's own choice, which were begun before their values were known."""

        def trials() -> None:
            for params in self.play.rng.sample(self.grid, 6):
                self.optimizer.run.begin(params)
                self.optimizer.tell(params, self.value(params))

        self.play.do("6 planned trials", trials)

    def selected(self) -> None:
        """Trials at one point whose failure depends on their noise."""
        params = self.start if self.kind == "safe" else self.play.pick(*self.grid)
        ends = {
            "fail": lambda params: self.optimizer.fail(params, "it diverged"),
            "prune": lambda params: self.optimizer.prune(params),
            "tell nan": lambda params: self.optimizer.tell(params, math.nan),
        }
        away, end = self.play.pick(-1, 1), self.play.pick(*ends)

        def trials() -> None:
            for _ in range(120):
                self.optimizer.run.begin(params)
                e = float(self.play.noise(1, self.sigma, self.signs)[0])
                if e * away > 0.5 * self.sigma:
                    self.optimizer.tell(params, self.value(params, e))
                else:
                    ends[end](params)

        self.play.do(
            f"120 trials at {params}, {end} if noise is {'low' if away > 0 else 'high'}", trials
        )

    def foreign(self) -> None:
        """Values at one point that were selected by their noise, and not asked for."""
        params, sign = self.play.pick(*self.grid), self.play.pick(-3, 3)
        call = self.play.pick("tell", "add")

        def trials() -> None:
            for i in range(40):
                getattr(self.optimizer, call)(
                    params, self.value(params, sign * self.sigma * (1 + 0.01 * i))
                )

        self.play.do(f"40 times {call} of selected values at {params}", trials)

    def copy(self) -> None:
        """A copy continues."""
        name = self.play.pick("deepcopy", "pickle")
        self.optimizer = self.play.do(name, lambda: COPIES[name](self.optimizer)) or self.optimizer

    def reload(self, setting: Any = None) -> None:
        """Save the run, and load it into a new optimiser, perhaps of another setting."""
        path = str(Path(self.tmp.name) / "run.jsonl")

        def load() -> Any:
            Path(path).unlink(missing_ok=True)
            self.optimizer.save(path)
            new = self.opened(
                self.made(copy.deepcopy(self.original)) if setting is None else setting
            )
            new.load(path)
            return new

        self.optimizer = self.play.do("save, load", load) or self.optimizer

    def other_kernel(self) -> None:
        """Load a run under a kernel of twice the lengthscale."""
        kernel = copy.deepcopy(self.original)
        stretch(kernel, 2 * self.lengthscale)
        self.play.moves.append("under twice the lengthscale:")
        self.reload(self.made(kernel))

    def change_kernel(self) -> None:
        """Change the kernel that was passed, or that the setting shows, then copy or load with that setting."""
        self.play.moves.append("lengthscale = 9 outside")
        stretch(self.kernel, 9.0)
        stretch(self.setting.kernel, 9.0)
        self.play.pick(self.copy, lambda: self.reload(self.setting))()

    def overwrite(self) -> None:
        """Overwrite numbers of the setting."""
        self.play.do("setting.norm_bound = ...", lambda: setattr(self.setting, "norm_bound", 1e-3))

    def run(self) -> None:
        """Make the moves, then compare."""
        if self.optimizer is None:
            return
        self.original = copy.deepcopy(self.kernel)
        usual = [self.step] * 4 + [lambda: self.step(3), self.copy, self.reload]
        usual += [self.step] * 4 if self.kind == "safe" else [self.planned] * 3
        attacks = [
            self.selected,
            self.selected,
            self.foreign,
            self.other_kernel,
            self.change_kernel,
            self.overwrite,
        ]
        attacks += [self.other_kernel] * 8 * (self.shape == "six")
        moves = [self.play.pick(*usual) for _ in range(self.play.rng.randint(2, 6))]
        if self.play.pick(True, True, False):
            moves.insert(self.play.rng.randint(0, len(moves)), self.play.pick(*attacks))
        for move in [self.step, *moves]:
            move()
        self.compare()
        self.tmp.cleanup()

    def compare(self) -> None:
        """Compare intervals, gap, limits and certificates with the truth."""
        o, judge = self.optimizer, self.play.judge
        f, g = self.f(self.units(self.grid)), self.g(self.units(self.grid))
        found: dict[str, Any] = {"belief": None}

        def interval() -> bool:
            bounds = [o.interval(params) for params in self.grid]
            found["belief"] = None if None in bounds else o.insight.surrogate()
            return found["belief"] is not None and outside(
                [b[0] for b in bounds], [b[2] for b in bounds], f
            )

        def proved() -> bool:
            return found["belief"] is not None and bool(found["belief"].guarantee())

        judge("interval", DELTA, proved, interval)
        if self.kind == "safe":
            judge("safe trials", DELTA, lambda: True, lambda: self.unsafe)

        def summary() -> bool:
            result = found["result"] = result_of(o, "", None)
            if result.infeasible is not None:
                return bool((g >= self.limit).any())
            if result.params is None or result.lower is None:
                return False
            u, sign = self.units([result.params]), 1 if self.maximize else -1
            value = self.f(u)
            wrong = outside([result.lower], [result.upper], value)
            if result.feasibility is not None and result.feasibility.kept:
                wrong |= float(self.g(u)[0]) < self.limit - 1e-9
            if result.gap is not None and self.kind != "safe":
                best = sign * (f if self.kind == "certified" else f[g >= self.limit])
                wrong |= (
                    result.gap_exact and float(best.max() - sign * value[0]) > result.gap + 1e-9
                )
            return wrong or (result.gap is not None and math.isnan(result.gap))

        def certified() -> bool:
            return "result" in found and (
                found["result"].certified or found["result"].infeasible is not None
            )

        judge("result", DELTA, certified, summary)


def settings(play: Play) -> None:
    """Play one sequence on an optimiser."""
    Tuning(play).run()
