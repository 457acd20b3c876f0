"""Bad values for every argument of the public interface, one at a time.

``python -m tests.faults.bad_calls 64`` calls every function with that many bad values for each of its arguments and
prints a table by function; ``-v`` prints every fault. A call passes if it works and its result is finite, or if it
raises a ``KboError`` whose text names the argument.

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
from functools import cache, partial
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import pandas as pd
import torch
from botorch.models import ModelListGP
from botorch.models.transforms import Normalize, Standardize
from gpytorch.kernels import RBFKernel, ScaleKernel
from torch import Tensor

import kbo
from experiments import problems
from kbo import acquisition, bandit, confidence, kernels, models, regression
from kbo.confidence import chaining as covers
from kbo.optimize.result import result_of
from kbo.space import Space
from kbo.workers.call import described
from kbo.workers.in_process import call_with_limit
from tests.processes import PATIENCE


class Hostile:
    """An object whose conversion and texts raise."""

    def __float__(self) -> float:
        raise OSError("no number")

    def __repr__(self) -> str:
        raise OSError("no text")


def _tensor(*shape: int, value: float = 0.5, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.full(shape, value, dtype=torch.float64).to(dtype)


USUAL = [None, math.nan, math.inf, -1, 0, "", "5", b"x", True, 10**400, 1 + 2j]
NUMBERS = [
    False,
    -0.5,
    1.5,
    -math.inf,
    1e-320,
    1e308,
    2**63,
    np.int64(-1),
    Decimal("NaN"),
    Fraction(-1, 2),
]
OTHERS = [np.complex128(1 + 2j), "a\0b", "\ud800", math, int, RBFKernel, Path("/dev/null/no/file")]
SHAPES = [(3,), (0,), (), (0, 2), (4, 0), (4, 7), (2, 3, 4, 2)]
DTYPES = [torch.int64, torch.bool, torch.complex128, torch.float16, torch.float32]

BAD: dict[str, Callable[[], Any]] = {
    **{ascii(value)[:20]: lambda value=value: value for value in USUAL},
    "empty list": list,
    "empty dict": dict,
    "object": object,
    "function": lambda: lambda *a, **k: None,
    "batched kernel": lambda: RBFKernel(batch_shape=torch.Size([2])),
    **{f"tensor {list(shape)}": lambda shape=shape: _tensor(*shape) for shape in SHAPES},
    **{
        f"{dtype} [4, 2]": lambda dtype=dtype: _tensor(4, 2, value=1, dtype=dtype)
        for dtype in DTYPES
    },
    **{
        f"tensor of {value}": lambda value=value: _tensor(4, 2, value=value)
        for value in (math.nan, math.inf, 1e300)
    },
    "NaN tensor []": lambda: _tensor(value=math.nan),
    "meta tensor": lambda: torch.empty(4, 2, dtype=torch.float64, device="meta"),
    "sparse tensor": lambda: _tensor(4, 2).to_sparse(),
    "nested tensor": lambda: torch.nested.nested_tensor([_tensor(4, 2), _tensor(3, 2)]),
    "quantized tensor": lambda: torch.quantize_per_tensor(torch.ones(4, 2), 0.1, 0, torch.qint8),
    "array [4 2]": lambda: np.full((4, 2), 0.5),
    "empty array": lambda: np.array([]),
    "array of text": lambda: np.array(["a"]),
    "hostile object": Hostile,
    **{ascii(value)[:40]: lambda value=value: value for value in NUMBERS + OTHERS},
    "bytearray": lambda: bytearray(b"1"),
    "list [1.0, 'a']": lambda: [1.0, "a"],
    "list [NaN]": lambda: [math.nan],
    "dict {'y': 1}": lambda: {"y": 1},
    "set": lambda: {1, 2},
    "kernel of 7 columns": lambda: RBFKernel(ard_num_dims=7).double(),
    "generator": torch.Generator,
}
"""Bad values; the first dozens are those that users really give."""


def K() -> Any:
    kernel = ScaleKernel(RBFKernel()).double()
    kernel.base_kernel.lengthscale = 0.4
    return kernel


def X(n: int = 4, seed: int = 0, d: int = 2) -> Tensor:
    return torch.rand(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def y(n: int = 4) -> Tensor:
    return torch.linspace(-0.5, 0.5, n, dtype=torch.float64)


def fed(state: Any) -> Any:
    state.update(X(6, 1), y(6))
    return state


def S() -> Any:
    return fed(kbo.KernelRidge(K(), 0.1))


def N() -> Any:
    return fed(kbo.NystromRidge(K(), 0.1, regression.FixedDictionary(X(5, 2))))


def A() -> Any:
    return fed(
        kbo.AdaptiveRidge(
            kbo.KernelRidge(K(), 0.1), confidence.MixtureNoiseBounds(5.0, 0.1, upper=1.0)
        )
    )


def C() -> Any:
    return confidence.MartingaleMixture(0.3, 50.0, 0.1, "dmm")


def G() -> Any:
    return models.KernelRidgeGP(X(6, 1), y(6).unsqueeze(-1), K(), 0.1)


def predicted(state: Any) -> Any:
    return state.predict(X())


def updated(state: Any, **given: Any) -> Any:
    state.update(**given)
    return predicted(state)


def bounds(found: Any) -> Any:
    """What a confidence says about a state."""
    return found.interval(S(), X()), found.guarantee_on(S())


def on_points(model: Any) -> Any:
    posterior = model.posterior(X().unsqueeze(-2))
    return posterior.mean, posterior.variance


def value(function: Any) -> Tensor:
    return function(X().unsqueeze(-2))


def _optimizer(**options: Any) -> kbo.Optimizer:
    optimizer = kbo.Optimizer({"x": (0.0, 1.0), "c": ["a", "b"]}, **options)
    for i in range(6):
        optimizer.tell({"x": i / 6, "c": "ab"[i % 2]}, (i / 6 - 0.4) ** 2)
    return optimizer


def _several(n: int = 6, **options: Any) -> kbo.Optimizer:
    """A run with two objectives."""
    given = {"objectives": ["error", kbo.Maximize("speed")], **options}
    optimizer = kbo.Optimizer({"x": (0.0, 1.0)}, **given)
    for i in range(n):
        values = {objective.name: (i / 6 - 0.4) ** 2 for objective in optimizer.objectives}
        optimizer.tell({"x": i / 6}, {**values, "speed": i / 6})
    return optimizer


@cache
def _front() -> Any:
    return _several().insight.front()


def _method() -> Any:
    return bandit.make("dmm-ucb", K(), 0.3, 50.0, 0.1)


def _problem() -> Any:
    return problems.RKHSBandit("rbf", 0.5, dim=2, n_arms=12, fixed=True)


def made(value: Any) -> Any:
    """A value of the tables below: what a function returns, afresh for each call, or anything else itself."""
    return value() if isinstance(value, FunctionType) else value


def same(found: Any) -> Any:
    return found


class Call:
    """A public function with valid arguments.

    Args:
        label: What the table calls it.
        function: The function.
        names: Its arguments, with values from ``SHARED``.
        then: What is done with its result.
        own: Further arguments, with values of their own.
    """

    def __init__(
        self,
        label: str,
        function: Callable,
        names: str = "",
        then: Callable[[Any], Any] = same,
        /,
        **own: Any,
    ) -> None:
        self.name, self.function = label, lambda **given: then(function(**given))
        self.values = {name: SHARED[name] for name in names.split()} | own

    def arguments(self) -> dict[str, Any]:
        """Valid values, made afresh, as some calls change them."""
        return {name: made(value) for name, value in self.values.items()}


def method(
    label: str,
    make: Callable[[], Any],
    names: str = "",
    then: Callable[[Any], Any] = same,
    /,
    **own,
) -> Call:
    """A method, the last word of the label, of what ``make`` returns."""
    return Call(
        label,
        lambda **given: getattr(make(), label.rpartition(".")[2])(**given),
        names,
        then,
        **own,
    )


NO_VALUE = """weights ridges train_Yvar input_transform outcome_transform posterior_transform X_pending setting method
stop_when value_range study target tolerance
device context choices noise_upper client journal timeout stop_at_gap pruner evaluated on_trial among"""
LEVELS = {
    "noise_std": 0.3,
    "norm_bound": 50.0,
    "delta": 0.1,
    "scale": 1.0,
    "ridge": 0.2,
    "eps": 0.5,
    "mu": 0.1,
}
SIZES = {
    "radius": 0.5,
    "lengthscale": 0.5,
    "upper": 1.0,
    "seconds": 1.0,
    "oversampling": 5.0,
    "low": 1,
    "high": 5,
}
COUNTS = {
    "count": 2,
    "seed": 0,
    "horizon": 20,
    "most": 5,
    "n_trials": 2,
    "dim": 2,
    "n_arms": 9,
    "n_points": 30,
}
FLAGS = {"smooth": True, "rigorous": False, "log": False}

SHARED: dict[str, Any] = {
    **dict.fromkeys(NO_VALUE.split()),
    **LEVELS,
    **SIZES,
    **COUNTS,
    **FLAGS,
    "X": X,
    "y": y,
    "P": lambda: X(3, 4),
    "targets": lambda: y(3),
    "points": lambda: X(9, 6),
    "kernel": K,
    "state": S,
    "model": G,
    "kind": "dmm",
    "confidence": C,
    "generator": lambda: torch.Generator().manual_seed(0),
    "dictionary": lambda: regression.FixedDictionary(X(5, 2)),
    "train_X": lambda: X(6, 1),
    "train_Y": lambda: y(6).unsqueeze(-1),
    "options": ["a", 2],
    "bounds": {"x": (0.0, 1.0)},
    "constraints": [],
    "params": {"x": 0.5, "c": "a"},
    "path": "/dev/null/x",
}
"""A valid value for the name of an argument, where a function has none of its own."""

WORDS = """points|X P|points X|P targets|y state|posterior states|objective confidences|confidence|objective
multipliers|multiplier noise|Yvar noise_lower|lower noise_upper|upper name|method|kernel options|option
values|condition|parent parameters|parameter weights|weight|parameter entries|space|parameter|bounds
params|parameter|trial run|journal|evaluations path|journal|write"""
"""How messages may call an argument otherwise."""


def _regression() -> Iterator[Call]:
    r = regression

    def of_ridge(state: Any) -> Any:
        return predicted(fed(state))

    def sketch(dictionary: Any) -> Any:
        return of_ridge(kbo.NystromRidge(K(), 0.1, dictionary))

    def of_rows(kernel: Any) -> Any:
        return kbo.KernelRidge(kernel, 0.1).predict(
            torch.tensor([[0.0], [1.0]], dtype=torch.float64)
        )

    yield Call("KernelRidge", kbo.KernelRidge, "kernel ridge", of_ridge)
    yield Call("NystromRidge", kbo.NystromRidge, "kernel ridge dictionary", of_ridge)
    empty = {
        "state": lambda: kbo.KernelRidge(K(), 0.1),
        "schedule": lambda: kbo.NoiseBounds(5.0, 0.1, upper=1.0),
    }
    yield Call("AdaptiveRidge", kbo.AdaptiveRidge, "", of_ridge, **empty)
    yield Call("FixedDictionary", r.FixedDictionary, "points", sketch)
    yield Call(
        "FixedDictionary.pivoted",
        r.FixedDictionary.pivoted,
        "kernel X",
        sketch,
        m=4,
        tolerance=1e-9,
    )
    yield Call("GreedyDictionary", r.GreedyDictionary, "most", sketch, threshold=0.01)
    yield Call("LeverageResampling", r.LeverageResampling, "oversampling most seed", sketch)
    of_horizon = r.LeverageResampling.for_horizon
    yield Call("LeverageResampling.for_horizon", of_horizon, "horizon delta eps most seed", sketch)
    yield Call(
        "BatchedResampling", r.BatchedResampling, "oversampling most seed", sketch, growth=3.0
    )
    yield Call("OnlineRowSampling", r.OnlineRowSampling, "mu most seed", sketch, gamma=10.0)
    yield Call(
        "Hypothetical", r.Hypothetical, "state P targets", predicted, weights=lambda: y(3).exp()
    )
    yield Call("BatchView", r.BatchView, "state points", predicted)
    yield method("BatchView.observe", lambda: r.BatchView(S(), X(3, 4)), index=1)
    yield Call(
        "PriorMean",
        lambda state: r.PriorMean(state, lambda X: X.sum(-1)),
        "state",
        lambda view: view.predict(X()),
    )
    yield Call("FixedPoints", r.FixedPoints, "state points", lambda view: view.predict(view.points))
    yield Call(
        "PrecomputedKernel",
        kernels.PrecomputedKernel,
        "",
        of_rows,
        gram=torch.eye(4, dtype=torch.float64),
    )
    for kind, make in {"KernelRidge": S, "NystromRidge": N, "AdaptiveRidge": A}.items():
        yield Call(
            f"{kind}.update", lambda make=make, **given: updated(make(), **given), "X y weights"
        )
        yield method(f"{kind}.predict", make, "X")
        yield method(f"{kind}.at", make, "ridge")
        yield method(f"{kind}.covariance", lambda make=make: make().at(), "X", Z=lambda: X(3, 5))
        yield method(f"{kind}.draw", lambda make=make: make().at(), "X count generator")
        yield method(f"{kind}.draw_function", lambda make=make: make().at(), "generator", like=X)
        yield method(f"{kind}.check", make, "X")


def _confidence() -> Iterator[Call]:
    c = confidence

    def in_ridge(schedule: Any) -> Any:
        return predicted(fed(kbo.AdaptiveRidge(kbo.KernelRidge(K(), 0.1), schedule)))

    numbers = "noise_std norm_bound delta"
    yield Call("SelfNormalized", c.SelfNormalized, numbers, bounds, least_ridge=0.1)
    yield Call("ImprovedGPUCB", c.ImprovedGPUCB, numbers, bounds, eta=0.01)
    yield Call("EKUCB", c.EKUCB, numbers, bounds, projection=0.1)
    yield Call("BKB", c.BKB, f"{numbers} eps", bounds)
    yield Call("MartingaleMixture", c.MartingaleMixture, f"{numbers} kind scale ridges", bounds)
    yield Call("FiniteSet", c.FiniteSet, "delta", bounds, points=50, variant="mixture")
    yield Call("FixedWidth", c.FixedWidth, "", bounds, multiplier=2.0)
    yield Call(
        "UnknownNorm",
        c.UnknownNorm,
        "noise_std delta kind scale",
        bounds,
        guess=None,
        multiple=None,
    )
    yield Call("Chaining", c.Chaining, "delta rigorous points smooth", bounds)
    ready: dict[str, Callable[[], Any]] = {
        "MartingaleMixture": C,
        "SelfNormalized": lambda: c.SelfNormalized(0.3, 5.0, 0.1),
        "FixedWidth": lambda: c.FixedWidth(2.0),
        "FiniteSet": lambda: c.FiniteSet(9, 0.1),
        "Chaining": lambda: c.Chaining(0.1, points=X(9, 6)),
        "UnknownNorm": lambda: c.UnknownNorm(0.3, 0.1, "dmm"),
        "AdaptiveMixture": lambda: c.AdaptiveMixture("dmm"),
    }
    for name in ("interval", "upper", "lower", "argmax_upper", "argmax_lower"):
        for kind, make in ready.items():
            yield method(f"{kind}.{name}", make, "X", state=A if kind == "AdaptiveMixture" else S)
    yield Call("AdaptiveMixture", c.AdaptiveMixture, "kind", lambda made: made.interval(A(), X()))
    noise = {"lower": 0.0, "largest_ridge": 0.5}
    yield Call("NoiseBounds", kbo.NoiseBounds, "norm_bound delta upper", in_ridge, **noise)
    yield Call(
        "MixtureNoiseBounds",
        c.MixtureNoiseBounds,
        "norm_bound delta upper",
        in_ridge,
        strict=False,
        **noise,
    )
    yield method("NoiseBounds.update", lambda: kbo.NoiseBounds(5.0, 0.1, upper=1.0), "state")
    yield Call(
        "AlternatingWidth",
        lambda multipliers: c.AlternatingWidth(multipliers),
        "",
        bounds,
        multipliers=2.0,
    )
    ball = {
        "confidence": lambda: c.MartingaleMixture(0.3, 5.0, 0.1, "cmm"),
        "x": lambda: X(1)[0],
        "side": "upper",
    }
    yield Call("certify", c.certify, "state", **ball)
    yield Call("cone_program", c.cone_program, "state", **ball)
    yield Call("norm_lower_bound", c.norm_lower_bound, "state noise_std delta scale ridges")
    yield Call("optimality_gap", c.optimality_gap, "confidence state X")
    yield Call("refuse_if_refuted", c.refuse_if_refuted, "state noise_std norm_bound delta scale")
    yield Call("squared_radius", c.squared_radius, "state noise_std delta scale")


def _covers() -> Iterator[Call]:
    v = covers

    def covered(metric: Any) -> Any:
        return v.greedy_cover(metric, 0.5)

    metric = {"metric": lambda: v.PosteriorMetric(S(), X())}
    yield Call("PosteriorMetric", v.PosteriorMetric, "state points", covered)
    yield Call("greedy_cover", v.greedy_cover, "radius", **metric)
    yield Call("first_fit_net", v.first_fit_net, "radius", **metric)
    yield Call("covers", v.covers, "radius", centres=lambda: torch.tensor([0, 3]), **metric)
    yield Call("Chain", v.Chain, "scale", lambda chain: chain.centres(1), depth=2, **metric)


def _models() -> Iterator[Call]:
    m = models

    def conditioned(**given: Any) -> Any:
        (model := G()).eval()
        return on_points(model.condition_on_observations(**given))

    data, transforms = "train_X train_Y kernel", "input_transform outcome_transform"
    transformed = {
        "input_transform": lambda: Normalize(2),
        "outcome_transform": lambda: Standardize(1),
    }
    schedule = {"noise_bounds": lambda: kbo.NoiseBounds(5.0, 0.1, upper=1.0), "dictionary": None}
    posterior = {"posterior": lambda: kbo.KernelRidge(K(), 0.1)}
    yield Call("KernelRidgeGP", m.KernelRidgeGP, f"{data} ridge train_Yvar {transforms}", on_points)
    yield Call(
        "KernelRidgeGP with transforms", m.KernelRidgeGP, f"{data} ridge", on_points, **transformed
    )
    yield Call(
        "NystromGP", m.NystromGP, f"{data} ridge dictionary train_Yvar {transforms}", on_points
    )
    yield Call("AdaptiveRidgeGP", m.AdaptiveRidgeGP, f"{data} {transforms}", on_points, **schedule)
    yield Call(
        "PosteriorGP", m.PosteriorGP, f"train_X train_Y {transforms}", on_points, **posterior
    )
    yield Call("FantasyGP", m.FantasyGP, "model P targets", on_points, weights=lambda: y(3).exp())
    options = {"output_indices": None, "observation_noise": False}
    yield method(
        "KernelRidgeGP.posterior", G, "X posterior_transform", lambda found: found.mean, **options
    )
    observed = {"X": lambda: X(3, 4), "Y": lambda: y(3).unsqueeze(-1), "noise": None}
    yield Call("KernelRidgeGP.condition_on_observations", conditioned, **observed)
    given = {"inputs": lambda: X(6, 3), "targets": lambda: y(6), "strict": True}
    yield method("KernelRidgeGP.set_train_data", G, **given)


def _acquisition() -> Iterator[Call]:
    a = acquisition

    def two() -> Any:
        return ModelListGP(G(), G())

    def waiting(**given: Any) -> Any:
        (found := a.KernelUCB(G(), C())).set_X_pending(**given)
        return value(found)

    ucb, limits = "posterior_transform X_pending", {1: (None, 1.0)}
    for name in ("AMMUCB", "DMMUCB", "CMMUCB"):
        yield Call(name, getattr(a, name), f"model noise_std norm_bound delta scale {ucb}", value)
    yield Call(
        "ChainingUCB",
        a.ChainingUCB,
        f"model points delta rigorous smooth {ucb}",
        value,
        previous=None,
    )
    yield Call("KernelUCB", a.KernelUCB, f"model confidence {ucb}", value)
    joint = {
        "model": two,
        "confidences": lambda: [C(), C()],
        "objective_index": 0,
        "constraints": limits,
    }
    for name in ("ConstrainedKernelUCB", "SafeUCB", "SafeExpander"):
        yield Call(name, getattr(a, name), ucb, value, **joint)
    search = {
        "acqf": lambda: a.SafeUCB(two(), [C(), C()], 0, limits),
        "bounds": torch.tensor([[0.0] * 2, [1.0] * 2], dtype=torch.float64),
        "X_safe": lambda: X(2),
    }
    yield Call(
        "optimize_safely",
        a.optimize_safely,
        "",
        lambda found: found[1],
        num_restarts=1,
        raw_samples=4,
        **search,
    )
    yield Call("KernelUCB.forward", lambda X: a.KernelUCB(G(), C())(X), X=lambda: X().unsqueeze(-2))
    yield Call("KernelUCB.set_X_pending", waiting, X_pending=lambda: X(3, 4))
    yield Call(
        "InflatedThompsonSampling",
        a.InflatedThompsonSampling,
        f"model confidence seed {ucb}",
        value,
    )
    drawn = "model confidence seed posterior_transform"
    yield Call(
        "InflatedPosteriorSampling", a.InflatedPosteriorSampling, drawn, lambda found: found(X())
    )
    yield Call("inflated_draws", a.inflated_draws, "confidence state X count generator")


def _recipes() -> Iterator[Call]:
    from experiments.bandits import BanditMethod, BanditProblem

    def played(rule: Any) -> Any:
        return [row["regret"] for row in bandit.play(rule, _problem(), 3)]

    def play(**given: Any) -> Any:
        return [row["regret"] for row in bandit.play(**given)]

    two = {"states": lambda: [S(), S()], "confidences": lambda: [C(), C()]}
    yield Call(
        "bandit.pareto_set",
        bandit.pareto_set,
        "points",
        lambda p: p.accepted.double(),
        epsilon=0.5,
        **two,
    )
    yield Call("bandit.get", bandit.get, name="ucb")
    numbers = "kernel noise_std norm_bound delta"
    yield Call("bandit.make", bandit.make, f"{numbers} scale seed", played, name="dmm-ucb")
    sketched = f"{numbers} scale ridge horizon points"
    yield Call("bandit.make, sketched", bandit.make, sketched, played, name="bkb")
    online = {"noise_std": None, "noise_upper": 1.0, "noise_lower": 0.0}
    adaptive = partial(bandit.make, "dmm-ucb-adaptive")
    yield Call("bandit.make, adaptive", adaptive, "kernel norm_bound delta", played, **online)
    parts = {
        "posterior": lambda: partial(kbo.KernelRidge, K(), 0.1),
        "rule": lambda: bandit.UpperBound(),
    }
    yield Call("Method", bandit.Method, "confidence", played, **parts)
    yield method("Method.choose", _method, "state points generator")
    yield method("Method.choose_batch", _method, "state points generator", size=2)
    yield method("Method.state", _method, "points", lambda state: predicted(fed(state)))
    yield method("Method.with_multiplier", _method, "", played, multiplier=2.0)
    yield Call(
        "play",
        play,
        "seed",
        method=_method,
        problem=_problem,
        rounds=3,
        gap_every=1,
        first=1,
        initial=1,
    )
    named = {"problem": "rkhs", "options": {"n_arms": 9}, "rounds": 3, "first": None}
    yield Call(
        "BanditProblem",
        BanditProblem,
        "delta noise_upper",
        lambda found: found.environment(0).arms(),
        **named,
    )
    yield Call("BanditMethod", BanditMethod, method="dmm-ucb", ridge=None, multiplier=None)


def _spaces() -> Iterator[Call]:
    def shown(parameter: Any) -> Any:
        return parameter.value(0.3)

    def middle(space: Any) -> Any:
        return space.params(torch.full((space.dimension,), 0.5))

    def conditional(condition: Any) -> Any:
        return Space([{"a": ["p", "q"]}, condition])

    def limited(limit: Any) -> Any:
        return Space({"a": (0.0, 1.0), "b": (0.0, 1.0)}, [limit])

    yield Call("Float", kbo.Float, "log", shown, low=0.1, high=1.0, step=0.3)
    yield Call("Int", kbo.Int, "low high log", shown, step=2)
    yield Call("Choice", kbo.Choice, "options", shown)
    yield Call("Ordinal", kbo.Ordinal, "options", shown)
    yield Call("Fixed", kbo.Fixed, "", shown, constant=1)
    yield Call("When", kbo.When, "", conditional, parent="a", values="p", parameters={"b": bool})
    yield Call(
        "Linear", kbo.Linear, "", limited, weights={"a": 1.0, "b": 1.0}, upper=1.5, lower=0.5
    )
    yield Call(
        "Space.from_dict", Space.from_dict, entries={"x": {"kind": "Int", "low": 1, "high": 2}}
    )
    yield Call("Space", Space, "bounds", middle, constraints=[kbo.Linear({"x": 1}, upper=0.5)])
    yield method("Space.unit", lambda: Space([(0, 1)]), params=[0.5])
    yield method("Space.canonical", lambda: Space({"x": (0.0, 1.0)}), params={"x": 0.5})


def _optimize() -> Iterator[Call]:
    def asked(optimizer: Any) -> Any:
        return optimizer.ask()

    def safely(setting: Any) -> Any:
        return kbo.Optimizer(
            [(0, 1)], setting=setting, constraints=[kbo.Constraint("objective", upper=0.5)]
        ).ask()

    given = "bounds n_trials setting method seed device journal"
    more = f"{given} timeout stop_at_gap stop_when value_range pruner evaluated on_trial"
    run = {
        "objective": lambda: lambda p: p["x"],
        "max_failures": 5,
        "try_first": [],
        "progress": False,
    }
    yield Call("minimize", kbo.minimize, more, **run)
    yield Call("maximize", kbo.maximize, more, **run)
    both = {
        "objective": lambda: lambda p: 0.5,
        "candidates": lambda: [{"x": 0.1}, {"x": 0.2}],
        "budget": 4,
    }
    both |= {"tolerance": 0.1, "maximize": False, "workers": None, "progress": False}
    yield Call("confirm", kbo.confirm, "delta value_range journal timeout", **both)
    yield Call("Curves", kbo.Curves, "delta", n_startup=10, n_warmup=2)
    table = lambda: pd.DataFrame({"x": [0.1, 0.5, 0.9], "value": [3.0, 1.0, 2.0]})  # noqa: E731
    yield Call("audit", kbo.audit, "study target bounds", str, history=table, maximize=False)
    limit = {"name": "g", "upper": 0.5, "lower": None}
    yield Call("Constraint", kbo.Constraint, "noise_std norm_bound kernel", **limit)
    yield from _with_objectives()
    yield Call("Processes", kbo.Processes, count=1, trials_each=None)
    yield Call("Threads", kbo.Threads, count=1)
    yield Call("Optimizer", kbo.Optimizer, given, asked, maximize=False)
    o = _optimizer
    yield method("Optimizer.ask", o, "context choices", n=1)
    yield method("Optimizer.best", o, "context choices")
    yield method("Optimizer.suggest", o, "context", number=1)
    yield method("Optimizer.tell", o, "params seconds", value=1.0)
    yield method("Optimizer.fail", o, "params seconds", reason="broken")
    yield method("Run.begin", lambda: _optimizer().run, "params")
    yield method("Optimizer.interval", o, "params")
    yield method("Insight.answers", lambda: _optimizer().insight, "tolerance")
    yield method("Optimizer.save", lambda: kbo.Optimizer([(0, 1)]), "path")
    yield method("Optimizer.load", lambda: kbo.Optimizer([(0, 1)]), "path")
    practical = {"norm_factor": 1.25, "n_initial": None, "noise_std": None}
    yield Call(
        "Practical",
        kbo.Practical,
        "delta scale",
        lambda s: _optimizer(setting=s).ask(),
        **practical,
    )
    yield Call(
        "fit_values", kbo.optimize.fit_values, "X y noise_std", lambda fitted: fitted.noise_std
    )
    certified = "kernel noise_std norm_bound delta scale noise_upper"
    flag = {"completion_independent_of_noise": False}
    yield Call(
        "Certified",
        kbo.Certified,
        certified,
        lambda s: kbo.Optimizer([(0, 1)], setting=s).ask(),
        **flag,
    )
    yield Call("Hypothesis", kbo.Hypothesis, "kernel noise_std norm_bound", str)
    yield Call(
        "hypotheses", kbo.hypotheses, "noise_std", len, size=1.0, lengthscales=[0.2], norms=[1.0]
    )
    yield Call("Safe", kbo.Safe, certified, safely, start=[[0.5]], **flag)
    yield method("Result.plot", lambda: result_of(o(), "", None), "", bool, what="history")
    yield Call("report.plot", partial(kbo.report.plot, what="history"), "", bool, run=o)
    yield Call(
        "report.slice_of",
        partial(kbo.report.slice_of, o()),
        "",
        lambda found: found.mean,
        parameter="x",
    )
    yield Call("report.importance", kbo.report.importance, "", len, run=o)
    yield Call(
        "report.Live",
        kbo.report.Live,
        "",
        lambda live: live.address,
        port=0,
        title="run",
        quiet=True,
    )


def _with_objectives() -> Iterator[Call]:
    def found(optimizer: Any) -> Any:
        gap = optimizer.gap()
        return None if gap is None else gap.value

    for kind in (kbo.Minimize, kbo.Maximize):
        yield Call(
            f"{kind.__name__}",
            kind,
            "noise_std norm_bound kernel",
            lambda objective: found(
                _several(
                    2,
                    objectives=["error", objective],
                    setting=kbo.Certified(K(), 0.3, 50.0),
                )
            ),
            name="speed",
        )
    yield Call(
        "Optimizer with objectives",
        partial(_several, 3),
        "value_range",
        found,
        objectives=["error", "speed"],
        reference={"error": 1.0},
        maximize=False,
    )
    yield method(
        "Optimizer with objectives.tell",
        lambda: _several(0),
        "seconds",
        str,
        params={"x": 0.5},
        value={"error": 1.0, "speed": 2.0},
    )
    yield method(
        "Optimizer with objectives.correct",
        lambda: _several(1),
        "",
        str,
        trial=0,
        value={"error": 1.0, "speed": 2.0},
    )
    yield method(
        "Front.choose",
        _front,
        "",
        lambda point: point.probability,
        weights={"error": 1.0},
        limits={"error": 0.3},
    )


def _problems() -> Iterator[Call]:
    p = problems

    def pulled(problem: Any) -> Any:
        arms = problem.arms()[:3]
        return problem.mean(arms), problem.observe(arms)

    def tried(problem: Any) -> Any:
        return problem(
            problem.space.params(torch.full((problem.space.dimension,), 0.5, dtype=torch.float64))
        )

    fixed = {"norm": 5.0, "fixed": False, "n_centres": 5}
    yield Call(
        "RKHSBandit",
        p.RKHSBandit,
        "lengthscale dim noise_std n_arms seed",
        pulled,
        kernel="rbf",
        **fixed,
    )
    stream = {"noise": "gaussian", "norm": 2.0}
    yield Call(
        "StreamingBandit", p.StreamingBandit, "n_arms noise_std norm_bound seed", pulled, **stream
    )
    drawn = "n_points lengthscale dim noise_std seed"
    yield Call("GaussianProcessBandit", p.GaussianProcessBandit, drawn, pulled, side=3.0)
    yield Call("HimmelblauBandit", p.HimmelblauBandit, "n_points noise_std seed", pulled, trend=5.0)
    yield Call("GraphBandit", p.GraphBandit, "noise_std seed", pulled, n_graphs=12, graph_seed=0)
    for name in ("Bump", "Chessboard", "StepDiagonal"):
        yield Call(name, getattr(p, name), "noise_std norm_bound seed", pulled, lengthscale=0.1)
    yield Call("ackley", p.ackley, "dim noise_std seed", tried)
    yield Call("levy", p.levy, "dim noise_std seed", tried)
    yield Call("branin", p.branin, "noise_std seed", tried)
    yield Call("hartmann6", p.hartmann6, "noise_std seed", tried)
    yield Call("GridBandit", p.GridBandit, "dim noise_std seed", tried, side=4)
    coco = {"function": 2, "dim": 5, "instance": 1, "noise": "heavy", "integers": True}
    yield Call("BBOB", p.BBOB, "seed", tried, **coco)
    yield Call("LearnerOnData", p.LearnerOnData, "seed", tried, learner="svm", data="wine")
    yield method("RKHSBandit.observe", _problem, "X")
    yield method("RKHSBandit.mean", _problem, "X")
    yield Call("random_graphs", p.random_graphs, "count seed", len)
    kernel_of = p.stationary_kernel
    yield Call(
        "stationary_kernel",
        kernel_of,
        "lengthscale",
        lambda k: kbo.KernelRidge(k, 0.1).predict(X()),
        name="rbf",
    )


def _integrations() -> Iterator[Call]:
    import optuna

    from kbo.integrations import ax
    from kbo.integrations.optuna import KBOSampler

    def studied(sampler: Any) -> Any:
        study = optuna.create_study(sampler=sampler)
        study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=2)
        return study.best_value

    options = "method setting n_trials seed constraints device"
    yield Call(
        "KBOSampler", KBOSampler, options, studied, n_startup_trials=None, constraints_func=None
    )
    yield Call("ax.generation_strategy", ax.generation_strategy, options)
    yield Call("ax.guarantee", ax.guarantee, "client")
    yield Call("ax.recommended", ax.recommended, "client")
    yield Call("ax.feasibility", ax.feasibility, "client")
    yield Call("ax.interval", lambda client: ax.interval(client, {"x": 0.5}), "client")


GROUPS = [_regression, _confidence, _covers, _models, _acquisition, _recipes]
GROUPS += [_spaces, _optimize, _problems, _integrations]


def calls() -> list[Call]:
    """Every public function with valid arguments."""
    return [call for group in GROUPS for call in group()]


def finite(found: Any) -> bool:
    """Whether no number in a result is NaN."""
    if isinstance(found, Tensor):
        return not bool(torch.isnan(found).any()) if found.is_floating_point() else True
    if isinstance(found, float):
        return not math.isnan(found)
    if isinstance(found, dict):
        return all(map(finite, found.values()))
    if isinstance(found, (list, tuple)):
        return all(map(finite, found))
    return True


_SIGNATURE = re.compile(
    r"unexpected keyword argument|missing \d+ required|takes \d+ pos|multiple values|__init__\(\) needs"
)


QUERIES = ("X", "Z", "x", "points")
"""Arguments that are points at which a posterior is asked."""


def verdict(call: Call, argument: str, bad: str) -> str:
    """Call with one bad value; return "works", "refused", or the fault in words."""
    nan_in = argument in QUERIES and re.search(
        "nan|inf", bad.lower()
    )  # gives NaN out, or an error about NaN
    try:
        given = call.arguments()
        given[argument] = BAD[bad]()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = call_with_limit(lambda: call.function(**given), PATIENCE)
        return "works" if nan_in or finite(found) else f"a result with NaN: {str(found)[:80]}"
    except kbo.KboError as error:
        names = next(
            (names for names in WORDS.split() if names.startswith(f"{argument}|")), argument
        )
        named = re.search(rf"(?<![A-Za-z])({names})(?![A-Za-z])", str(error))
        return "refused" if named or nan_in else f"not named: {type(error).__name__}: {error}"
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        if argument in (
            "on_trial",
            "constraints_func",
        ):  # an exception of the caller's own function passes through
            return "works"
        text = described(error)
        signature = isinstance(error, TypeError) and _SIGNATURE.search(text)
        return "refused" if signature else f"raw: {text}"


def cases(
    values: int, seed: int | None = None, most: int | None = None
) -> list[tuple[Call, str, str]]:
    """Every function with each argument and the first ``values`` bad values; ``most`` of them at random."""
    bad = list(BAD)[:values]
    found = [
        (call, argument, name) for call in calls() for argument in call.arguments() for name in bad
    ]
    return found if most is None else random.Random(seed).sample(found, min(most, len(found)))


def main() -> None:
    """Print the table."""
    numbers = [int(argument) for argument in sys.argv[1:] if argument.isdigit()]
    names = [argument for argument in sys.argv[1:] if not argument.isdigit() and argument != "-v"]
    table: dict[str, Counter[str]] = {}
    faults = 0
    for call, argument, bad in cases(numbers[0] if numbers else len(BAD)):
        if names and not any(name in call.name for name in names):
            continue
        found = verdict(call, argument, bad)
        kind = found if found in ("works", "refused") else "fault"
        table.setdefault(call.name, Counter())[kind] += 1
        faults += kind == "fault"
        if kind == "fault" and "-v" in sys.argv:
            print(f"{call.name} | {argument} | {bad} | {' '.join(found.split())[:160]}", flush=True)
    print("| function | calls | works | refused | faults |\n|---|---|---|---|---|")
    for name, count in table.items():
        print(
            f"| {name} | {count.total()} | {count['works']} | {count['refused']} | {count['fault']} |"
        )
    total = sum(table.values(), Counter())
    print(f"| all | {total.total()} | {total['works']} | {total['refused']} | {total['fault']} |")


if __name__ == "__main__":
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(folder),
    ):  # some texts are taken for files to write
        main()
