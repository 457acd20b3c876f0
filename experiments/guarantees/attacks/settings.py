"""Random sequences of calls on an optimiser in the certified or the safe setting."""

from __future__ import annotations

import copy
import itertools
import math
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import kbo
from experiments.guarantees.attacks.functions import (
    RADIAL,
    Array,
    Function,
    linear,
    radial,
    stretch,
)
from experiments.guarantees.attacks.play import COPIES, Play, outside
from kbo import bandit
from kbo.optimize.result import result_of

DELTA = 1e-3

LOW = 1.7e18
"""A number from which on float64 has only every 256th whole number."""


def _methods() -> list[str]:
    """Return the names of the methods whose bounds hold for any kernel, given at most the norm."""
    names = []
    for name in bandit.names():
        method = bandit.get(name)
        if method.has_bounds and not method.fixed_kernel and method.norm in ("given", "unused"):
            names.append(name)
    return names


METHODS = _methods()

Params = dict[str, Any]


class Domain:
    """A space, and a grid of its points at which statements are compared with the truth.

    Attributes:
        bounds: The parameters.
        grid: The points.
    """

    def __init__(self, bounds: Params, grid: list[Params]) -> None:
        self.bounds = bounds
        self.grid = grid

    def units(self, params: list[Params]) -> Array:
        """Return points of the unit cube [n d] in extended precision."""
        ends = [(p.low, p.high) for p in self.bounds.values()]
        low, high = np.array(ends, dtype=np.longdouble).T
        values = np.array([list(point.values()) for point in params], dtype=np.longdouble)
        return (values - low) / (high - low)


def domain_of(shape: str, rng: random.Random) -> Domain:
    """Return the domain of one of four shapes.

    Args:
        shape: "grid", 6 x 6 whole numbers; "line"; "narrow", numbers that are 256 apart; "six", four points of six
            parameters and 16 others near them.
        rng: Source of randomness for the points of "six".
    """
    if shape == "grid":
        axis = range(6)
        grid = [{"a": a, "b": b} for a, b in itertools.product(axis, axis)]
        return Domain({"a": kbo.Int(0, 5), "b": kbo.Int(0, 5)}, grid)
    if shape == "line":
        return Domain({"x": kbo.Float(0.0, 1.0)}, [{"x": i / 30} for i in range(31)])
    if shape == "narrow":
        bounds = {"x": kbo.Float(LOW, LOW + 4096)}
        return Domain(bounds, [{"x": LOW + 256.0 * i} for i in range(17)])
    bounds = {f"x{i}": kbo.Float(0.0, 1.0) for i in range(6)}
    points = [[rng.random() for _ in range(6)] for _ in range(4)]
    for i in range(16):
        points.append([x + 0.0016 * rng.choice([-1, 1]) for x in points[i % 4]])
    grid = []
    for point in points:
        grid.append({f"x{i}": min(max(x, 0.0), 1.0) for i, x in enumerate(point)})
    return Domain(bounds, grid)


class Tuning:
    """An optimiser in the certified or the safe setting, and functions for it.

    Args:
        play: The sequence.
    """

    def __init__(self, play: Play) -> None:
        self.play = play
        pick = play.pick
        self.tmp = tempfile.TemporaryDirectory()
        self.sigma = pick(1e-3, 0.05, 0.3)
        self.B = pick(1.0, 2.0)
        self.signs = pick(True, False)
        self.kind = pick("certified", "certified", "constrained", "safe")
        self.shape = "grid"
        if self.kind != "constrained":
            self.shape = pick("grid", "grid", "grid", "line", "narrow", "six")
        self.maximize = pick(True, False)
        self.seed = play.rng.randrange(1000)
        self.domain = domain_of(self.shape, play.rng)
        kernel_name = self._kernel_name()
        self.lengthscale = self._lengthscale()
        self._choose_functions(kernel_name)
        self.method = self._method()
        self.limit, self.start = self._limit_and_start()
        noise = "signs" if self.signs else "Gaussian"
        play.moves.append(
            f"{self.kind}, {self.shape}, {kernel_name} kernel of lengthscale {self.lengthscale}, sigma={self.sigma}, "
            f"B={self.B}, {self.method}, limit {self.limit:.4g}, {noise}"
        )
        self.has_left_limit: bool = False
        self.setting = self.setting_of(self.kernel)
        self.optimizer: Any = play.do("Optimizer", lambda: self.opened(self.setting))

    def _kernel_name(self) -> str:
        if self.shape == "grid":
            return self.play.pick("linear", *RADIAL)
        return self.play.pick("rbf", "matern32", "matern52", "matern12")

    def _lengthscale(self) -> float:
        if self.shape == "six":
            return 0.002
        if self.shape == "narrow":
            return 0.1
        return self.play.pick(0.2, 0.6)

    def _choose_functions(self, kernel_name: str) -> None:
        """Choose the objective f, the limited quantity g, and their kernels."""
        rng = self.play.rng
        if kernel_name == "linear":
            self.kernel, values = linear()
        else:
            self.kernel, values = radial(kernel_name, self.lengthscale)
        self.g_kernel = self.kernel
        g_values = values
        if self.kind == "constrained" and self.play.pick(True, False):
            # g is 0 at the origin then, where f may be as large as its norm allows.
            self.g_kernel, g_values = linear()
        centres = self.domain.units([*rng.sample(self.domain.grid, 11), self.domain.grid[0]])
        self.f = Function(values, centres, self.B, rng)
        self.g = Function(g_values, centres, self.B, rng)
        if self.kind == "safe" and self.play.pick(True, True, False):
            # One bump: its value at the centre determines the function.
            self.g = Function(values, centres[:1], self.B, rng)

    def _method(self) -> str:
        if self.kind == "certified":
            return self.play.pick("dmm-ucb", "cmm-ucb", *METHODS)
        return self.play.pick("dmm-ucb", "cmm-ucb")

    def _limit_and_start(self) -> tuple[float, Params | None]:
        """Return a limit that some points keep by a wide margin and others break, and the point that keeps it best."""
        if self.g_kernel is not self.kernel:
            return 0.0, None
        g = self.g(self.domain.units(self.domain.grid))
        if self.kind != "safe":
            return float(np.quantile(g, 0.05)), self.domain.grid[int(g.argmax())]
        if len(self.g.centres) != 1:
            return float(np.quantile(g, 0.5)), self.domain.grid[int(g.argmax())]
        start = self.domain.grid[int(np.abs(g).argmax())]
        self.g.a = np.abs(self.g.a)
        at_limit = self.g.centres.copy()
        at_limit[:, 0] += self.play.pick(0.4, 0.8) * self.lengthscale
        return float(self.g(at_limit)[0]), start

    def setting_of(self, kernel: Any) -> Any:
        """Return the setting with this kernel."""
        if self.kind == "safe":
            return kbo.Safe(kernel, self.sigma, self.B, DELTA, start=[self.start])
        noise = bandit.get(self.method).noise
        if noise == "online":
            return kbo.Certified(kernel, None, self.B, DELTA, noise_upper=1.5 * self.sigma)
        if noise == "upper bound":
            return kbo.Certified(kernel, None, self.B, DELTA, noise_upper=self.sigma)
        return kbo.Certified(kernel, self.sigma, self.B, DELTA)

    def opened(self, setting: Any) -> Any:
        """Return a new optimiser."""
        constraints = []
        if self.kind != "certified":
            constraints = [
                kbo.Constraint(
                    "g",
                    lower=self.limit,
                    noise_std=self.sigma,
                    norm_bound=self.B,
                    kernel=self.g_kernel,
                )
            ]
        return kbo.Optimizer(
            self.domain.bounds,
            setting=setting,
            method=self.method,
            n_trials=40,
            maximize=self.maximize,
            constraints=constraints,
            seed=self.seed,
        )

    def value(self, params: Params) -> Any:
        """Return the outcome of a trial, with new noise."""
        return self.value_with_noise(params, self.play.noise(2, self.sigma, self.signs))

    def value_with_noise(self, params: Params, noise: Array) -> Any:
        """Return the outcome of a trial, given the noise [2] of objective and limited quantity."""
        unit = self.domain.units([params])
        value = float(self.f(unit)[0] + noise[0])
        if self.kind == "certified":
            return value
        return value, {"g": float(self.g(unit)[0] + noise[1])}

    # Moves

    def step(self, n: int = 1) -> None:
        """Ask, evaluate and tell, perhaps in another order."""
        asked = self.play.do(f"ask({n})", lambda: self.optimizer.ask(n)) or []
        if self.kind == "safe" and asked:
            g = self.g(self.domain.units(asked))
            self.has_left_limit |= bool((g < self.limit - 1e-12).any())
        self.play.rng.shuffle(asked)
        for params in asked:
            self.play.do("tell", lambda: self.optimizer.tell(params, self.value(params)))  # noqa: B023

    def step_of_three(self) -> None:
        """Ask for three trials at once."""
        self.step(3)

    def planned(self) -> None:
        """Evaluate points that the user chooses; their trials begin before their values are known."""

        def trials() -> None:
            for params in self.play.rng.sample(self.domain.grid, 6):
                self.optimizer.run.begin(params)
                self.optimizer.tell(params, self.value(params))

        self.play.do("6 planned trials", trials)

    def selected(self) -> None:
        """Trials at one point that fail if their noise has one sign."""
        params: Any = self.start
        if self.kind != "safe":
            params = self.play.pick(*self.domain.grid)
        ends: dict[str, Callable[[], Any]] = {
            "fail": lambda: self.optimizer.fail(params, "it diverged"),
            "prune": lambda: self.optimizer.prune(params),
            "tell nan": lambda: self.optimizer.tell(params, math.nan),
        }
        sign = self.play.pick(-1, 1)
        end = self.play.pick(*ends)

        def trials() -> None:
            for _ in range(120):
                self.optimizer.run.begin(params)
                noise = self.play.noise(1, self.sigma, self.signs)
                if sign * noise[0] > 0.5 * self.sigma:
                    self.optimizer.tell(params, self.value_with_noise(params, noise.repeat(2)))
                else:
                    ends[end]()

        level = "low" if sign > 0 else "high"
        self.play.do(f"120 trials at {params}, {end} if noise is {level}", trials)

    def foreign(self) -> None:
        """Report values at one point that the user has selected by their noise; kbo did not propose them."""
        params = self.play.pick(*self.domain.grid)
        size = self.play.pick(-3, 3)
        call = self.play.pick("tell", "add")

        def trials() -> None:
            report = getattr(self.optimizer, call)
            for i in range(40):
                noise = np.full(2, size * self.sigma * (1 + 0.01 * i))
                report(params, self.value_with_noise(params, noise))

        self.play.do(f"40 times {call} of selected values at {params}", trials)

    def copy(self) -> None:
        """Go on with a copy."""
        name = self.play.pick("deepcopy", "pickle")
        self.optimizer = self.play.do(name, lambda: COPIES[name](self.optimizer)) or self.optimizer

    def reload(self) -> None:
        """Save the run, and load it into a new optimiser of the same setting."""
        self.load_into(lambda: self.setting_of(copy.deepcopy(self.original_kernel)))

    def load_into(self, setting: Callable[[], Any]) -> None:
        """Save the run, and load it into a new optimiser of a setting."""
        path = Path(self.tmp.name) / "run.jsonl"

        def load() -> Any:
            path.unlink(missing_ok=True)
            self.optimizer.save(str(path))
            optimizer = self.opened(setting())
            optimizer.run.load(str(path))
            return optimizer

        self.optimizer = self.play.do("save, load", load) or self.optimizer

    def other_kernel(self) -> None:
        """Load a run under a kernel of twice the lengthscale."""
        kernel = copy.deepcopy(self.original_kernel)
        stretch(kernel, 2 * self.lengthscale)
        self.play.moves.append("under twice the lengthscale:")
        setting = self.setting_of(kernel)
        self.load_into(lambda: setting)

    def change_kernel(self) -> None:
        """Change the kernel that was passed, or the kernel of the setting, then copy or load with this setting."""
        self.play.moves.append("lengthscale = 9 outside")
        stretch(self.kernel, 9.0)
        stretch(self.setting.kernel, 9.0)
        if self.play.pick(True, False):
            self.copy()
        else:
            self.load_into(lambda: self.setting)

    def overwrite(self) -> None:
        """Overwrite the norm bound of the setting."""
        self.play.do("setting.norm_bound = ...", lambda: setattr(self.setting, "norm_bound", 1e-3))

    def run(self) -> None:
        """Make the moves, then compare."""
        if self.optimizer is None:
            return
        self.original_kernel = copy.deepcopy(self.kernel)
        usual = [self.step] * 4 + [self.step_of_three, self.copy, self.reload]
        if self.kind == "safe":
            usual += [self.step] * 4
        else:
            usual += [self.planned] * 3
        attacks = [self.selected, self.selected, self.foreign]
        attacks += [self.other_kernel, self.change_kernel, self.overwrite]
        if self.shape == "six":
            attacks += [self.other_kernel] * 8
        moves = [self.play.pick(*usual) for _ in range(self.play.rng.randint(2, 6))]
        if self.play.pick(True, True, False):
            moves.insert(self.play.rng.randint(0, len(moves)), self.play.pick(*attacks))
        for move in [self.step, *moves]:
            move()
        self.compare()
        self.tmp.cleanup()

    # Statements

    def compare(self) -> None:
        """Compare intervals, gap, limits and certificates with the truth."""
        units = self.domain.units(self.domain.grid)
        self.f_on_grid = self.f(units)
        self.g_on_grid = self.g(units)
        self.surrogate: Any = None
        self.result: Any = None
        judge = self.play.judge
        judge("interval", DELTA, self.interval_is_guaranteed, self.interval_is_wrong)
        if self.kind == "safe":
            judge("safe trials", DELTA, lambda: True, lambda: self.has_left_limit)
        judge("result", DELTA, self.result_is_guaranteed, self.result_is_wrong)

    def interval_is_guaranteed(self) -> bool:
        """Return whether the intervals have a guarantee, after ``interval_is_wrong``."""
        return self.surrogate is not None and bool(self.surrogate.guarantee())

    def interval_is_wrong(self) -> bool:
        """Return whether the objective is outside of an interval on the grid."""
        self.surrogate = None
        intervals = [self.optimizer.interval(params) for params in self.domain.grid]
        if None in intervals:
            return False
        self.surrogate = self.optimizer.insight.surrogate()
        if self.surrogate is None:
            return False
        lower = [interval[0] for interval in intervals]
        upper = [interval[2] for interval in intervals]
        return outside(lower, upper, self.f_on_grid)

    def result_is_guaranteed(self) -> bool:
        """Return whether the result is certified, or says that no point keeps the limit; after ``result_is_wrong``."""
        if self.result is None:
            return False
        return self.result.certified or self.result.infeasible is not None

    def result_is_wrong(self) -> bool:
        """Return whether the result has a wrong interval, gap, limit or certificate."""
        result: Any = result_of(self.optimizer, "", None)
        self.result = result
        keeps_limit = self.g_on_grid >= self.limit
        if result.infeasible is not None:
            return bool(keeps_limit.any())
        if result.params is None or result.lower is None:
            return False
        unit = self.domain.units([result.params])
        value = self.f(unit)
        if outside([result.lower], [result.upper], value):
            return True
        said_to_keep_limit = result.feasibility is not None and result.feasibility.kept
        if said_to_keep_limit and float(self.g(unit)[0]) < self.limit - 1e-9:
            return True
        return self.gap_is_wrong(float(value[0]))

    def gap_is_wrong(self, value: float) -> bool:
        """Return whether the gap of the result is below the truth, or NaN, given the recommended value."""
        gap = self.result.gap
        if gap is None:
            return False
        if math.isnan(gap.value):
            return True
        if self.kind == "safe" or not gap.exact:
            return False
        allowed = self.f_on_grid
        if self.kind == "constrained":
            allowed = allowed[self.g_on_grid >= self.limit]
        sign = 1 if self.maximize else -1
        return float((sign * allowed).max() - sign * value) > gap.value + 1e-9


def settings(play: Play) -> None:
    """Play one sequence on an optimiser."""
    Tuning(play).run()
