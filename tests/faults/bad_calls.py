"""Bad values for every argument of the public interface, one at a time.

``python -m tests.faults.bad_calls 64`` calls every function with that many bad values for each of its arguments and
prints a table by function, after every fault. A call passes if it works and its result is finite, or if it raises a
``KboError`` whose text names the argument.

Left out are the methods that those who write posteriors implement (``at``, ``prior``, ``prior_variance``,
``all_ridges``, ``residual_log_det``, ...), which are called behind the checks, and what only holds values.
"""

from __future__ import annotations

import contextlib
import math
import random
import re
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import torch
from botorch.models import ModelListGP
from botorch.models.transforms import Normalize, Standardize
from gpytorch.kernels import RBFKernel, ScaleKernel
from torch import Tensor

import kbo
from experiments.problems import RKHSBandit
from kbo import acquisition, bandit, confidence, kernels, models, regression
from kbo.confidence import chaining
from kbo.optimize.result import result_of
from kbo.space import Space
from kbo.workers.call import error_text
from kbo.workers.in_process import call_with_limit
from tests.processes import PATIENCE


class Hostile:
    """An object whose conversion and texts raise."""

    def __float__(self) -> float:
        raise OSError("no number")

    def __repr__(self) -> str:
        raise OSError("no text")


def full(*shape: int, value: float = 0.5, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.full(shape, value, dtype=torch.float64).to(dtype)


USUAL = [None, math.nan, math.inf, -1, 0, "", "5", b"x", True, 10**400, 1 + 2j]
SHAPES = [(3,), (0,), (), (0, 2), (4, 0), (4, 7), (2, 3, 4, 2)]
DTYPES = [torch.int64, torch.bool, torch.complex128, torch.float16, torch.float32]
NUMBERS = [False, -0.5, 1.5, -math.inf, 1e-320, 1e308, 2**63, np.int64(-1), np.complex128(1 + 2j)]
OTHERS = [Decimal("NaN"), Fraction(-1, 2), "a\0b", "\ud800", math, int, Path("/dev/null/no/file")]

BAD: dict[str, Callable[[], Any]] = {
    **{ascii(value)[:20]: lambda value=value: value for value in USUAL},
    "empty list": list,
    "empty dict": dict,
    "object": object,
    "function": lambda: lambda *a, **k: None,
    "batched kernel": lambda: RBFKernel(batch_shape=torch.Size([2])),
    **{f"tensor {list(shape)}": partial(full, *shape) for shape in SHAPES},
    **{f"{dtype} [4, 2]": partial(full, 4, 2, value=1, dtype=dtype) for dtype in DTYPES},
    **{f"tensor of {v}": partial(full, 4, 2, value=v) for v in (math.nan, math.inf, 1e300)},
    "NaN tensor []": partial(full, value=math.nan),
    "meta tensor": lambda: torch.empty(4, 2, dtype=torch.float64, device="meta"),
    "sparse tensor": lambda: full(4, 2).to_sparse(),
    "nested tensor": lambda: torch.nested.nested_tensor([full(4, 2), full(3, 2)]),
    "quantized tensor": lambda: torch.quantize_per_tensor(torch.ones(4, 2), 0.1, 0, torch.qint8),
    "array [4 2]": lambda: np.full((4, 2), 0.5),
    "empty array": lambda: np.array([]),
    "array of text": lambda: np.array(["a"]),
    "hostile object": Hostile,
    **{ascii(value)[:40]: lambda value=value: value for value in NUMBERS + OTHERS},
    "kernel": RBFKernel,
    "bytearray": lambda: bytearray(b"1"),
    "list [1.0, 'a']": lambda: [1.0, "a"],
    "list [NaN]": lambda: [math.nan],
    "dict {'y': 1}": lambda: {"y": 1},
    "set": lambda: {1, 2},
    "kernel of 7 columns": lambda: RBFKernel(ard_num_dims=7).double(),
    "generator": torch.Generator,
}
"""Bad values; the first dozens are those that users really give."""

# Valid values


def K() -> Any:
    return ScaleKernel(RBFKernel().initialize(lengthscale=0.4)).double()


def X(n: int = 4, seed: int = 0) -> Tensor:
    return torch.rand(n, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def y(n: int = 4) -> Tensor:
    return torch.linspace(-0.5, 0.5, n, dtype=torch.float64)


def fed(state: Any) -> Any:
    state.update(X(6, 1), y(6))
    return state


def exact() -> Any:
    return fed(kbo.KernelRidge(K(), 0.1))


def sketch() -> Any:
    return fed(kbo.NystromRidge(K(), 0.1, regression.FixedDictionary(X(5, 2))))


def noise_bounds() -> Any:
    return kbo.NoiseBounds(5.0, 0.1, upper=1.0)


def adaptive() -> Any:
    schedule = confidence.MixtureNoiseBounds(5.0, 0.1, upper=1.0)
    return fed(kbo.AdaptiveRidge(kbo.KernelRidge(K(), 0.1), schedule))


def mixture() -> Any:
    return confidence.MartingaleMixture(0.3, 50.0, 0.1, "dmm")


def gp() -> Any:
    return models.KernelRidgeGP(X(6, 1), y(6).unsqueeze(-1), K(), 0.1).eval()


def two_gps() -> Any:
    return ModelListGP(gp(), gp())


def metric() -> Any:
    return chaining.PosteriorMetric(exact(), X())


def method() -> Any:
    return bandit.make("dmm-ucb", K(), 0.3, 50.0, 0.1)


def problem() -> Any:
    return RKHSBandit("rbf", 0.5, dim=2, n_arms=12, fixed=True)


def optimizer(**options: Any) -> kbo.Optimizer:
    run = kbo.Optimizer({"x": (0.0, 1.0), "c": ["a", "b"]}, **options)
    for i in range(6):
        run.tell({"x": i / 6, "c": "ab"[i % 2]}, (i / 6 - 0.4) ** 2)
    return run


def empty_optimizer() -> kbo.Optimizer:
    return kbo.Optimizer([(0, 1)])


def with_objectives(n: int = 6, **options: Any) -> kbo.Optimizer:
    run = kbo.Optimizer(
        {"x": (0.0, 1.0)}, **{"objectives": ["error", kbo.Maximize("speed")], **options}
    )
    for i in range(n):
        values = {objective.name: (i / 6 - 0.4) ** 2 for objective in run.objectives}
        run.tell({"x": i / 6}, {**values, "speed": i / 6})
    return run


NONE = """weights ridges train_Yvar input_transform outcome_transform posterior_transform X_pending setting method
stop_when value_range study target tolerance device context choices noise_upper client journal timeout stop_at_gap
pruner evaluated on_trial among"""
SHARED: dict[str, Any] = {
    **dict.fromkeys(NONE.split()),
    **{"noise_std": 0.3, "norm_bound": 50.0, "delta": 0.1, "scale": 1.0, "ridge": 0.2, "eps": 0.5},
    **{"mu": 0.1, "radius": 0.5, "upper": 1.0, "seconds": 1.0, "oversampling": 5.0},
    **{"low": 1, "high": 5, "count": 2, "seed": 0, "horizon": 20, "most": 5, "n_trials": 2},
    **{"smooth": True, "rigorous": False, "log": False, "kind": "dmm", "path": "/dev/null/x"},
    "X": X,
    "y": y,
    "P": lambda: X(3, 4),
    "targets": lambda: y(3),
    "points": lambda: X(9, 6),
    "kernel": K,
    "state": exact,
    "model": gp,
    "confidence": mixture,
    "metric": metric,
    "generator": lambda: torch.Generator().manual_seed(0),
    "dictionary": lambda: regression.FixedDictionary(X(5, 2)),
    "train_X": lambda: X(6, 1),
    "train_Y": lambda: y(6).unsqueeze(-1),
    "options": ["a", 2],
    "bounds": {"x": (0.0, 1.0)},
    "constraints": [],
    "params": {"x": 0.5, "c": "a"},
}
"""A valid value for the name of an argument, where a function has none of its own."""

WORDS = """points|X P|points X|P targets|y state|posterior states|objective confidences|confidence|objective
multipliers|multiplier noise|Yvar noise_lower|lower noise_upper|upper name|method|kernel options|option
values|condition|parent parameters|parameter weights|weight|parameter entries|space|parameter|bounds
params|parameter|trial run|journal|evaluations path|journal|write objectives|objective"""
"""How messages may call an argument otherwise."""

OBJECTS: dict[str, Callable[[], Any]] = {
    "KernelRidge": exact,
    "NystromRidge": sketch,
    "AdaptiveRidge": adaptive,
    "KernelRidge.at()": lambda: exact().at(),
    "NystromRidge.at()": lambda: sketch().at(),
    "AdaptiveRidge.at()": lambda: adaptive().at(),
    "BatchView": lambda: regression.BatchView(exact(), X(3, 4)),
    "MartingaleMixture": mixture,
    "SelfNormalized": lambda: confidence.SelfNormalized(0.3, 5.0, 0.1),
    "FixedWidth": lambda: confidence.FixedWidth(2.0),
    "FiniteSet": lambda: confidence.FiniteSet(9, 0.1),
    "Chaining": lambda: confidence.Chaining(0.1, points=X(9, 6)),
    "UnknownNorm": lambda: confidence.UnknownNorm(0.3, 0.1, "dmm"),
    "AdaptiveMixture": lambda: confidence.AdaptiveMixture("dmm"),
    "NoiseBounds": noise_bounds,
    "KernelRidgeGP": gp,
    "KernelUCB": lambda: acquisition.KernelUCB(gp(), mixture()),
    "Method": method,
    "Optimizer": optimizer,
    "Optimizer without trials": empty_optimizer,
    "Optimizer with objectives": lambda: with_objectives(1),
    "Optimizer.run": lambda: optimizer().run,
    "Optimizer.insight": lambda: optimizer().insight,
    "Front": lambda: with_objectives().insight.front(),
    "Space": lambda: Space({"x": (0.0, 1.0)}),
    "Space of a list": lambda: Space([(0, 1)]),
    "by position": lambda: SimpleNamespace(
        AlternatingWidth=lambda multipliers: confidence.AlternatingWidth(multipliers)
    ),
    "Result": lambda: result_of(optimizer(), "", None),
}
"""Objects whose methods are called; "KernelRidge.predict" is one of "KernelRidge"."""

MODULES = [kbo, regression, confidence, chaining, models, acquisition, bandit, kernels, kbo.space]


def value_of(value: Any) -> Any:
    """Return a value of the tables: that of a function, afresh for each call, or anything else itself."""
    return value() if isinstance(value, FunctionType) else value


def function_of(label: str) -> Callable:
    """Return the function, class or method of a label; words after a comma only tell labels apart."""
    owner, _, name = label.partition(", ")[0].rpartition(".")
    if owner in OBJECTS:
        return lambda **given: getattr(OBJECTS[owner](), name)(**given)
    for module in MODULES:
        found: Any = module
        for part in label.partition(", ")[0].split("."):
            found = getattr(found, part, None)
        if found is not None:
            return found
    raise AttributeError(label)


class Call:
    """A public function with valid arguments.

    Args:
        name: Its name, perhaps in a module or an object of ``OBJECTS``.
        shared: Arguments with values from ``SHARED``.
        then: What is done with its result.
        own: Further arguments, with values of their own.
    """

    def __init__(
        self,
        name: str,
        shared: str = "",
        then: Callable[[Any], Any] = lambda found: found,
        /,
        **own: Any,
    ) -> None:
        self.name = name
        self.then = then
        self.values = {argument: SHARED[argument] for argument in shared.split()} | own

    def arguments(self) -> dict[str, Any]:
        """Return valid values, made afresh, as some calls change them."""
        return {argument: value_of(value) for argument, value in self.values.items()}

    def function(self, **given: Any) -> Any:
        """Make the call."""
        return self.then(function_of(self.name)(**given))


# What is done with results


def of_ridge(state: Any) -> Any:
    return fed(state).predict(X())


def in_sketch(dictionary: Any) -> Any:
    return of_ridge(kbo.NystromRidge(K(), 0.1, dictionary))


def in_ridge(schedule: Any) -> Any:
    return of_ridge(kbo.AdaptiveRidge(kbo.KernelRidge(K(), 0.1), schedule))


def of_rows(kernel: Any) -> Any:
    return kbo.KernelRidge(kernel, 0.1).predict(full(2, 1, value=1.0))


def predicted(view: Any) -> Any:
    return view.predict(X())


def bounds(bound: Any) -> Any:
    return bound.interval(exact(), X()), bound.guarantee_on(exact())


def on_points(model: Any) -> Any:
    posterior = model.posterior(X().unsqueeze(-2))
    return posterior.mean, posterior.variance


def scores(acqf: Any) -> Any:
    return acqf(X().unsqueeze(-2))


def played(method: Any) -> Any:
    return [row["regret"] for row in bandit.play(method, problem(), 3)]


def shown(parameter: Any) -> Any:
    return parameter.value(0.3)


def middle(space: Any) -> Any:
    return space.params(torch.full((space.dimension,), 0.5))


def conditional(condition: Any) -> Any:
    return Space([{"a": ["p", "q"]}, condition])


def limited(limit: Any) -> Any:
    return Space({"a": (0.0, 1.0), "b": (0.0, 1.0)}, [limit])


def asked(run: Any) -> Any:
    return run.ask()


def certified(setting: Any) -> Any:
    return kbo.Optimizer([(0, 1)], setting=setting).ask()


def safely(setting: Any) -> Any:
    limit = kbo.Constraint("objective", upper=0.5)
    return kbo.Optimizer([(0, 1)], setting=setting, constraints=[limit]).ask()


def in_run(objective: Any) -> Any:
    setting = kbo.Certified(K(), 0.3, 50.0)
    return with_objectives(2, objectives=["error", objective], setting=setting).gap().value


# Functions


def _regression() -> Iterator[Call]:
    yield Call("KernelRidge", "kernel ridge", of_ridge)
    yield Call("NystromRidge", "kernel ridge dictionary", of_ridge)
    empty = {"state": lambda: kbo.KernelRidge(K(), 0.1), "schedule": noise_bounds}
    yield Call("AdaptiveRidge", "", of_ridge, **empty)
    yield Call("FixedDictionary", "points", in_sketch)
    yield Call("FixedDictionary.pivoted", "kernel X", in_sketch, m=4, tolerance=1e-9)
    yield Call("GreedyDictionary", "most", in_sketch, threshold=0.01)
    yield Call("LeverageResampling", "oversampling most seed", in_sketch)
    yield Call("LeverageResampling.for_horizon", "horizon delta eps", in_sketch)
    yield Call("BatchedResampling", "oversampling most seed", in_sketch, growth=3.0)
    yield Call("OnlineRowSampling", "mu most seed", in_sketch, gamma=10.0)
    yield Call("Hypothetical", "state P targets", predicted, weights=lambda: y(3).exp())
    yield Call("BatchView", "state points", predicted)
    yield Call("BatchView.observe", index=1)
    yield Call("PriorMean", "state", predicted, mean=lambda: lambda X: X.sum(-1))
    yield Call("FixedPoints", "state points", lambda view: view.predict(view.points))
    yield Call("PrecomputedKernel", "", of_rows, gram=torch.eye(4, dtype=torch.float64))
    for kind in ("KernelRidge", "NystromRidge", "AdaptiveRidge"):
        yield Call(f"{kind}.update", "X y weights")
        yield Call(f"{kind}.predict", "X")
        yield Call(f"{kind}.at", "ridge")
        yield Call(f"{kind}.at().covariance", "X", Z=lambda: X(3, 5))
        yield Call(f"{kind}.at().draw", "X count generator")
        yield Call(f"{kind}.at().draw_function", "generator", like=X)
        yield Call(f"{kind}.check", "X")


def _confidence() -> Iterator[Call]:
    numbers = "noise_std norm_bound delta"
    yield Call("SelfNormalized", numbers, bounds, least_ridge=0.1)
    yield Call("ImprovedGPUCB", numbers, bounds, eta=0.01)
    yield Call("EKUCB", numbers, bounds, projection=0.1)
    yield Call("BKB", f"{numbers} eps", bounds)
    yield Call("MartingaleMixture", f"{numbers} kind scale ridges", bounds)
    yield Call("FiniteSet", "delta", bounds, points=50, variant="mixture")
    yield Call("FixedWidth", "", bounds, multiplier=2.0)
    yield Call("UnknownNorm", "noise_std delta kind scale", bounds, guess=None, multiple=None)
    yield Call("Chaining", "delta rigorous points", bounds)
    kinds = "MartingaleMixture SelfNormalized FixedWidth FiniteSet Chaining UnknownNorm"
    for name in ("interval", "upper", "lower", "argmax_upper", "argmax_lower"):
        for kind in kinds.split():
            yield Call(f"{kind}.{name}", "X state")
        yield Call(f"AdaptiveMixture.{name}", "X", state=adaptive)
    yield Call("MartingaleMixture.draw", "state X count generator")
    yield Call("AdaptiveMixture", "kind", lambda bound: bound.interval(adaptive(), X()))
    noise = {"lower": 0.0, "largest_ridge": 0.5}
    yield Call("NoiseBounds", "norm_bound delta upper", in_ridge, **noise)
    yield Call("MixtureNoiseBounds", "norm_bound delta upper", in_ridge, strict=False, **noise)
    yield Call("NoiseBounds.update", "state")
    yield Call("by position.AlternatingWidth", "", bounds, multipliers=2.0)
    norm = {"confidence": lambda: confidence.MartingaleMixture(0.3, 5.0, 0.1, "cmm")}
    norm |= {"x": lambda: X(1)[0], "side": "upper"}
    yield Call("certify", "state", **norm)
    yield Call("cone_program", "state", **norm)
    yield Call("norm_lower_bound", "state noise_std delta scale ridges")
    yield Call("candidate_gap", "confidence state X")
    yield Call("refuse_if_refuted", "state noise_std norm_bound delta scale")
    yield Call("squared_radius", "state noise_std delta scale")
    yield Call("PosteriorMetric", "state points", lambda m: chaining.greedy_cover(m, 0.5))
    yield Call("greedy_cover", "radius metric")
    yield Call("first_fit_net", "radius metric")
    yield Call("covers", "radius metric", centres=lambda: torch.tensor([0, 3]))
    yield Call("Chain", "scale metric", lambda chain: chain.centres(1), depth=2)


def _models() -> Iterator[Call]:
    data = "train_X train_Y kernel"
    transforms = "input_transform outcome_transform"
    yield Call("KernelRidgeGP", f"{data} ridge train_Yvar {transforms}", on_points)
    transformed = {"input_transform": lambda: Normalize(2)}
    transformed |= {"outcome_transform": lambda: Standardize(1)}
    yield Call("KernelRidgeGP, with transforms", f"{data} ridge", on_points, **transformed)
    yield Call("NystromGP", f"{data} ridge dictionary train_Yvar {transforms}", on_points)
    schedule = {"noise_bounds": noise_bounds, "dictionary": None}
    yield Call("AdaptiveRidgeGP", f"{data} {transforms}", on_points, **schedule)
    posterior = {"posterior": lambda: kbo.KernelRidge(K(), 0.1)}
    yield Call("PosteriorGP", f"train_X train_Y {transforms}", on_points, **posterior)
    yield Call("FantasyGP", "model P targets", on_points, weights=lambda: y(3).exp())
    options = {"output_indices": None, "observation_noise": False}
    yield Call("KernelRidgeGP.posterior", "X posterior_transform", lambda p: p.mean, **options)
    observed = {"X": lambda: X(3, 4), "Y": lambda: y(3).unsqueeze(-1), "noise": None}
    yield Call("KernelRidgeGP.condition_on_observations", "", on_points, **observed)
    given = {"inputs": lambda: X(6, 3), "targets": lambda: y(6), "strict": True}
    yield Call("KernelRidgeGP.set_train_data", **given)


def _acquisition() -> Iterator[Call]:
    ucb = "posterior_transform X_pending"
    for name in ("AMMUCB", "DMMUCB", "CMMUCB"):
        yield Call(name, f"model noise_std norm_bound delta scale {ucb}", scores)
    chain = f"model points delta rigorous smooth {ucb}"
    yield Call("ChainingUCB", chain, scores, previous=None)
    yield Call("KernelUCB", f"model confidence {ucb}", scores)
    limits = {1: (None, 1.0)}
    joint = {"model": two_gps, "confidences": lambda: [mixture(), mixture()]}
    joint |= {"objective_index": 0, "constraints": limits}
    for name in ("ConstrainedKernelUCB", "SafeUCB", "SafeExpander"):
        yield Call(name, ucb, scores, **joint)
    search = {
        "acqf": lambda: acquisition.SafeUCB(two_gps(), [mixture(), mixture()], 0, limits),
        "bounds": torch.tensor([[0.0] * 2, [1.0] * 2], dtype=torch.float64),
        "X_safe": lambda: X(2),
    }
    size = {"num_restarts": 1, "raw_samples": 4}
    yield Call("optimize_safely", "seed", lambda found: found[1], **search, **size)
    yield Call("KernelUCB.__call__", X=lambda: X().unsqueeze(-2))
    yield Call("KernelUCB.set_X_pending", X_pending=lambda: X(3, 4))
    yield Call("InflatedThompsonSampling", f"model confidence seed {ucb}", scores)
    drawn = "model confidence seed posterior_transform"
    yield Call("InflatedPosteriorSampling", drawn, lambda draw: draw(X()))


def _bandit() -> Iterator[Call]:
    two = {"states": lambda: [exact(), exact()], "confidences": lambda: [mixture(), mixture()]}
    yield Call("pareto_set", "points", lambda p: p.accepted.double(), epsilon=0.5, **two)
    yield Call("bandit.get", name="ucb")
    numbers = "kernel noise_std norm_bound delta"
    yield Call("bandit.make", f"{numbers} scale seed", played, name="dmm-ucb")
    sketched = f"{numbers} scale ridge horizon points"
    yield Call("bandit.make, sketched", sketched, played, name="bkb")
    noise = {"name": "dmm-ucb-adaptive", "noise_upper": 1.0, "noise_lower": 0.0, "noise_std": None}
    yield Call("bandit.make, adaptive", "kernel norm_bound delta", played, **noise)
    parts = {
        "posterior": lambda: partial(kbo.KernelRidge, K(), 0.1),
        "rule": lambda: bandit.UpperBound(),
    }
    yield Call("bandit.Method", "confidence", played, **parts)
    yield Call("Method.choose", "state points generator")
    yield Call("Method.choose_batch", "state points generator", size=2)
    yield Call("Method.state", "points", of_ridge)
    yield Call("Method.with_multiplier", "", played, multiplier=2.0)
    game = {"method": method, "problem": problem, "rounds": 3, "gap_every": 1, "first": 1}
    yield Call("bandit.play", "seed", list, initial=1, **game)


def _spaces() -> Iterator[Call]:
    yield Call("Float", "log", shown, low=0.1, high=1.0, step=0.3)
    yield Call("Int", "low high log", shown, step=2)
    yield Call("Choice", "options", shown)
    yield Call("Ordinal", "options", shown)
    yield Call("Fixed", "", shown, constant=1)
    yield Call("When", "", conditional, parent="a", values="p", parameters={"b": bool})
    yield Call("Linear", "", limited, weights={"a": 1.0, "b": 1.0}, upper=1.5, lower=0.5)
    yield Call("space.Space.from_dict", entries={"x": {"kind": "Int", "low": 1, "high": 2}})
    limits = [kbo.Linear({"x": 1}, upper=0.5)]
    yield Call("space.Space", "bounds", middle, constraints=limits)
    yield Call("Space of a list.unit", params=[0.5])
    yield Call("Space.canonical", params={"x": 0.5})


def _optimize() -> Iterator[Call]:
    given = "bounds n_trials setting method seed device journal"
    more = f"{given} timeout stop_at_gap stop_when value_range pruner evaluated on_trial"
    quiet = {"progress": False}
    run = {"objective": lambda: lambda p: p["x"], "max_failures": 5, "try_first": [], **quiet}
    yield Call("minimize", more, **run)
    ends = {"time_budget": 9.0, "stop_when": 1e-9, "end_running": False}
    yield Call("minimize, with an end", "bounds n_trials", workers=1, **ends, **run)
    yield Call("maximize", more, **run)
    race = {"objective": lambda: lambda p: 0.5, "candidates": lambda: [{"x": 0.1}, {"x": 0.2}]}
    race |= {"budget": 4, "tolerance": 0.1, "maximize": False, "workers": None, **quiet}
    yield Call("confirm", "delta value_range journal timeout", **race)
    yield Call("Curves", "delta", n_startup=10, n_warmup=2)
    table = pd.DataFrame({"x": [0.1, 0.5, 0.9], "value": [3.0, 1.0, 2.0]})
    yield Call("audit", "study target bounds", str, history=table, maximize=False)
    limit = {"name": "g", "upper": 0.5, "lower": None}
    yield Call("Constraint", "noise_std norm_bound kernel", **limit)
    yield Call("Processes", count=1, trials_each=None)
    yield Call("Threads", count=1)
    practical = {"norm_factor": 1.25, "n_initial": None, "noise_std": None}
    in_practice = lambda setting: optimizer(setting=setting).ask()  # noqa: E731
    yield Call("Practical", "delta scale", in_practice, **practical)
    yield Call("optimize.fit_values", "X y noise_std", lambda fitted: fitted.noise_std)
    numbers = "kernel noise_std norm_bound delta scale noise_upper"
    flag = {"completion_independent_of_noise": False}
    yield Call("Certified", numbers, certified, **flag)
    yield Call("Safe", numbers, safely, start=[[0.5]], **flag)
    yield Call("Hypothesis", "kernel noise_std norm_bound", str)
    lists = {"size": 1.0, "lengthscales": [0.2]}
    yield Call("hypotheses", "noise_std", len, **lists)
    yield Call("Minimize", "noise_std norm_bound kernel", in_run, name="speed")
    yield Call("Maximize", "noise_std norm_bound kernel", in_run, name="speed")
    yield Call("optimize.Optimizer", given, asked, maximize=False)
    objectives = {"objectives": ["error", "speed"], "reference": {"error": 1.0}}
    yield Call(
        "optimize.Optimizer, objectives", "bounds value_range", asked, maximize=False, **objectives
    )
    yield Call("Optimizer.ask", "context choices", n=1)
    yield Call("Optimizer.best", "context choices")
    yield Call("Optimizer.suggest", "context")
    yield Call("Optimizer.tell", "params seconds", value=1.0)
    yield Call("Optimizer.fail", "params seconds", reason="broken")
    yield Call("Optimizer.interval", "params")
    yield Call("Optimizer.run.begin", "params")
    yield Call("Optimizer.insight.answers", "tolerance")
    yield Call("Optimizer without trials.save", "path")
    values = {"error": 1.0, "speed": 2.0}
    told = {"params": {"x": 0.5}, "value": values}
    yield Call("Optimizer with objectives.tell", "seconds", str, **told)
    yield Call("Optimizer with objectives.correct", "", str, trial=0, value=values)
    yield Call("Front.choose", "", str, weights={"error": 1.0}, limits={"error": 0.3})
    yield Call("Result.plot", "", bool, what="history")
    yield Call("report.plot", "", bool, run=optimizer(), what="history")
    yield Call("report.slice_of", "", lambda s: s.mean, run=optimizer(), parameter="x")
    yield Call("report.importance", "", len, run=optimizer())
    live = {"port": 0, "title": "run", "quiet": True}
    yield Call("report.Live", "", lambda page: page.address, **live)


def _integrations() -> Iterator[Call]:
    import optuna

    from kbo.integrations import ax
    from kbo.integrations import optuna as kbo_optuna

    def studied(sampler: Any) -> Any:
        study = optuna.create_study(sampler=sampler)
        study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=2)
        return study.best_value

    OBJECTS.update({"ax": lambda: ax, "kbo_optuna": lambda: kbo_optuna})
    options = "method setting n_trials seed constraints device"
    own = {"n_startup_trials": None, "constraints_func": None}
    yield Call("kbo_optuna.KBOSampler", options, studied, **own)
    yield Call("ax.generation_strategy", options)
    for name in ("guarantee", "recommended", "feasibility"):
        yield Call(f"ax.{name}", "client")
    at_a_point = SimpleNamespace(interval=lambda client: ax.interval(client, {"x": 0.5}))
    OBJECTS["ax at a point"] = lambda: at_a_point
    yield Call("ax at a point.interval", "client")


GROUPS = [_regression, _confidence, _models, _acquisition, _bandit]
GROUPS += [_spaces, _optimize, _integrations]


def calls() -> list[Call]:
    """Return every public function with valid arguments."""
    return [call for group in GROUPS for call in group()]


def finite(found: Any) -> bool:
    """Return whether no number in a result is NaN."""
    if isinstance(found, Tensor):
        return not found.is_floating_point() or not bool(torch.isnan(found).any())
    if isinstance(found, float):
        return not math.isnan(found)
    if isinstance(found, dict):
        return all(map(finite, found.values()))
    return not isinstance(found, (list, tuple)) or all(map(finite, found))


_SIGNATURE = re.compile(
    r"unexpected keyword argument|missing \d+ required|takes \d+ pos|multiple values|__init__\(\) needs"
)
QUERIES = ("X", "Z", "x", "points")
"""Points at which a posterior is asked: NaN there gives NaN, or an error about NaN."""
PASSED_ON = ("on_trial", "constraints_func")
"""The caller's own functions, whose exceptions pass through."""


def is_named(argument: str, text: str) -> bool:
    """Return whether a message names an argument."""
    names = argument
    for words in WORDS.split():
        if words.startswith(f"{argument}|"):
            names = words
    return re.search(rf"(?<![A-Za-z])({names})(?![A-Za-z])", text) is not None


def verdict(call: Call, argument: str, bad: str) -> str:
    """Call with one bad value; return "works", "refused", or the fault in words."""
    gives_nan = argument in QUERIES and re.search("nan|inf", bad.lower()) is not None
    try:
        given = call.arguments() | {argument: BAD[bad]()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = call_with_limit(lambda: call.function(**given), PATIENCE)
        return "works" if gives_nan or finite(found) else f"a result with NaN: {str(found)[:80]}"
    except kbo.KboError as error:
        if gives_nan or is_named(argument, str(error)):
            return "refused"
        return f"not named: {type(error).__name__}: {error}"
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if argument in PASSED_ON:
            return "works"
        if isinstance(error, TypeError) and _SIGNATURE.search(error_text(error)):
            return "refused"
        return f"raw: {error_text(error)}"


def cases(n_values: int, seed: int = 0, most: int | None = None) -> list[tuple[Call, str, str]]:
    """Return every function with each argument and the first bad values; ``most`` of them at random."""
    bad = list(BAD)[:n_values]
    found = [(call, argument, name) for call in calls() for argument in call.values for name in bad]
    if most is None or most > len(found):
        return found
    return random.Random(seed).sample(found, most)


def main(n_values: int = len(BAD)) -> None:
    """Print every fault, and the table."""
    table: dict[str, Counter[str]] = {}
    for call, argument, bad in cases(n_values):
        kind = verdict(call, argument, bad)
        if kind not in ("works", "refused"):
            print(f"{call.name} | {argument} | {bad} | {' '.join(kind.split())[:160]}", flush=True)
            kind = "fault"
        table.setdefault(call.name, Counter())[kind] += 1
    table["all"] = sum(table.values(), Counter())
    print("| function | calls | works | refused | faults |\n|---|---|---|---|---|")
    for name, n in table.items():
        print(f"| {name} | {n.total()} | {n['works']} | {n['refused']} | {n['fault']} |")


if __name__ == "__main__":
    # Some texts are taken for files to write.
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        main(*map(int, sys.argv[1:2]))
