"""Bad values for every argument of the public interface, one at a time.

``python -m tests.faults.bad_calls 64`` calls every function with that many bad values for each of its arguments and
prints a table by function; ``-v`` prints every fault. A call passes if it works and its result is finite, or if it
raises a ``KboError`` whose text names the argument.

Left out are the methods that those who write posteriors implement (``at``, ``prior``, ``prior_variance``,
``all_ridges``, ``residual_log_det``, ...), which are called behind the checks, and what only holds values.
"""

from __future__ import annotations

import dataclasses
import math
import random
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch
from botorch.models import ModelListGP
from botorch.models.transforms import Normalize, Standardize
from gpytorch.kernels import RBFKernel, ScaleKernel
from torch import Tensor

import kbo
from kbo import acquisition, bandit, confidence, covers, kernels, models, problems, recipes, regression
from kbo.optimize.result import result_of
from kbo.space import Space
from kbo.workers.call import described
from kbo.workers.time_limit import call_with_limit


class Hostile:
    """An object whose conversion and texts raise."""

    def __float__(self) -> float:
        raise OSError("no number")

    def __repr__(self) -> str:
        raise OSError("no text")


def _tensor(*shape: int, value: float = 0.5, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.full(shape, value, dtype=torch.float64).to(dtype)


BAD: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "NaN": lambda: math.nan,
    "inf": lambda: math.inf,
    "-1": lambda: -1,
    "0": lambda: 0,
    "empty text": lambda: "",
    "text '5'": lambda: "5",
    "bytes": lambda: b"x",
    "True": lambda: True,
    "10**400": lambda: 10**400,
    "complex": lambda: 1 + 2j,
    "empty list": lambda: [],
    "empty dict": lambda: {},
    "object": object,
    "function": lambda: lambda *a, **k: None,
    "class of kernels": lambda: RBFKernel,
    "batched kernel": lambda: RBFKernel(batch_shape=torch.Size([2])),
    "NaN tensor [4 2]": lambda: _tensor(4, 2, value=math.nan),
    "tensor [3]": lambda: _tensor(3),
    "integer tensor [4 2]": lambda: _tensor(4, 2, value=1, dtype=torch.int64),
    "meta tensor [4 2]": lambda: torch.empty(4, 2, dtype=torch.float64, device="meta"),
    "sparse tensor [4 2]": lambda: _tensor(4, 2).to_sparse(),
    "array [4 2]": lambda: np.full((4, 2), 0.5),
    "hostile object": Hostile,
    "empty tensor": lambda: torch.empty(0, dtype=torch.float64),
    "tensor [0 2]": lambda: _tensor(0, 2),
    "tensor [4 0]": lambda: _tensor(4, 0),
    "tensor [4 7]": lambda: _tensor(4, 7),
    "tensor [2 3 4 2]": lambda: _tensor(2, 3, 4, 2),
    "bool tensor [4 2]": lambda: _tensor(4, 2, value=1, dtype=torch.bool),
    "complex tensor [4 2]": lambda: _tensor(4, 2, dtype=torch.complex128),
    "float16 tensor [4 2]": lambda: _tensor(4, 2, dtype=torch.float16),
    "float32 tensor [4 2]": lambda: _tensor(4, 2, dtype=torch.float32),
    "inf tensor [4 2]": lambda: _tensor(4, 2, value=math.inf),
    "huge tensor [4 2]": lambda: _tensor(4, 2, value=1e300),
    "0-dim tensor": lambda: _tensor(),
    "0-dim NaN tensor": lambda: _tensor(value=math.nan),
    "nested tensor": lambda: torch.nested.nested_tensor([_tensor(4, 2), _tensor(3, 2)]),
    "quantized tensor": lambda: torch.quantize_per_tensor(torch.ones(4, 2), 0.1, 0, torch.qint8),
    "False": lambda: False,
    "-0.5": lambda: -0.5,
    "1.5": lambda: 1.5,
    "-inf": lambda: -math.inf,
    "1e-320": lambda: 1e-320,
    "1e308": lambda: 1e308,
    "2**63": lambda: 2**63,
    "int64 -1": lambda: np.int64(-1),
    "complex128": lambda: np.complex128(1 + 2j),
    "decimal NaN": lambda: Decimal("NaN"),
    "negative fraction": lambda: Fraction(-1, 2),
    "text with NUL": lambda: "a\0b",
    "half a character": lambda: "\ud800",
    "bytearray": lambda: bytearray(b"1"),
    "list [1.0, 'a']": lambda: [1.0, "a"],
    "list [NaN]": lambda: [math.nan],
    "dict {'y': 1}": lambda: {"y": 1},
    "set": lambda: {1, 2},
    "module": lambda: math,
    "class": lambda: int,
    "empty array": lambda: np.array([]),
    "array of text": lambda: np.array(["a"]),
    "kernel of 7 columns": lambda: RBFKernel(ard_num_dims=7).double(),
    "generator": torch.Generator,
    "missing path": lambda: Path("/nowhere/at/all"),
}
"""About sixty bad values; the first dozens are those that users really give."""


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
    return fed(kbo.AdaptiveRidge(kbo.KernelRidge(K(), 0.1), kbo.NoiseBounds(5.0, 0.1, upper=1.0, variant="mixture")))


def C() -> Any:
    return confidence.MartingaleMixture(0.3, 50.0, 0.1, "dmm")


def G(**options: Any) -> Any:
    return models.KernelRidgeGP(X(6, 1), y(6).unsqueeze(-1), K(), 0.1, **options)


def predicted(state: Any) -> Any:
    return state.predict(X())


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


def _result() -> kbo.optimize.Result:
    return result_of(_optimizer(), "", None)


def _method(name: str = "dmm-ucb", **options: Any) -> Any:
    return recipes.make(name, K(), 0.3, 50.0, 0.1, **options)


def _problem() -> Any:
    return problems.RKHSBandit("rbf", 0.5, dim=2, n_arms=12, fixed=True)


def _distances() -> Tensor:
    return torch.cdist(X(8), X(8))


def _numbers(**more: Any) -> dict[str, Any]:
    return {"noise_std": 0.3, "norm_bound": 5.0, "delta": 0.1, **more}


@dataclasses.dataclass(frozen=True)
class Call:
    """A function with valid arguments, made afresh for each call, as some of them change."""

    name: str
    function: Callable[..., Any]
    arguments: Callable[[], dict[str, Any]]
    words: dict[str, str] = dataclasses.field(default_factory=dict)
    """Regular expressions for the arguments that messages call otherwise."""


def _states() -> Iterator[Call]:
    for kind, make in {"KernelRidge": S, "NystromRidge": N, "AdaptiveRidge": A}.items():
        yield Call(
            f"{kind}.update",
            lambda make=make, **g: (s := make(), s.update(**g), predicted(s))[2],
            lambda: {"X": X(), "y": y(), "weights": None},
        )
        for name in ("predict", "leverage"):
            yield Call(
                f"{kind}.{name}",
                lambda make=make, name=name, **g: getattr(make(), name)(**g),
                lambda: {"X": X(), "ridge": 0.2},
            )
        yield Call(
            f"{kind}.covariance",
            lambda make=make, **g: make().covariance(**g),
            lambda: {"X": X(), "Z": X(3, 5), "ridge": 0.2},
        )
        yield Call(
            f"{kind}.sample",
            lambda make=make, **g: make().sample(**g),
            lambda: {"X": X(), "count": 2, "generator": torch.Generator().manual_seed(0)},
        )
        for name in ("log_det", "quad", "rss", "effective_dimension", "leverage_sum"):
            yield Call(
                f"{kind}.{name}", lambda make=make, name=name, **g: getattr(make(), name)(**g), lambda: {"ridge": 0.2}
            )
        yield Call(f"{kind}.check", lambda make=make, **g: make().check(**g), lambda: {"X": X()})
        yield Call(f"{kind}.add_caveat", lambda make=make, **g: make().add_caveat(**g), lambda: {"reason": "odd"})


def _regression() -> list[Call]:
    def sketch(dictionary: Any) -> Any:
        return predicted(fed(kbo.NystromRidge(K(), 0.1, dictionary)))

    return [
        Call("KernelRidge", lambda **g: predicted(fed(kbo.KernelRidge(**g))), lambda: {"kernel": K(), "ridge": 0.1}),
        Call(
            "NystromRidge",
            lambda **g: predicted(fed(kbo.NystromRidge(**g))),
            lambda: {"kernel": K(), "ridge": 0.1, "dictionary": regression.FixedDictionary(X(5, 2))},
        ),
        Call(
            "AdaptiveRidge",
            lambda **g: predicted(fed(kbo.AdaptiveRidge(**g))),
            lambda: {"state": kbo.KernelRidge(K(), 0.1), "schedule": kbo.NoiseBounds(5.0, 0.1, upper=1.0)},
        ),
        Call(
            "FixedDictionary",
            lambda **g: sketch(regression.FixedDictionary(**g)),
            lambda: {"points": X(5, 2)},
            {"points": "points|X"},
        ),
        Call(
            "FixedDictionary.pivoted",
            lambda **g: sketch(regression.FixedDictionary.pivoted(**g)),
            lambda: {"kernel": K(), "X": X(9, 2), "m": 4, "tolerance": 1e-9},
        ),
        Call(
            "GreedyDictionary",
            lambda **g: sketch(regression.GreedyDictionary(**g)),
            lambda: {"threshold": 0.01, "most": 5},
        ),
        Call(
            "LeverageResampling",
            lambda **g: sketch(regression.LeverageResampling(**g)),
            lambda: {"oversampling": 5.0, "most": 5, "seed": 0},
        ),
        Call(
            "LeverageResampling.for_horizon",
            lambda **g: sketch(regression.LeverageResampling.for_horizon(**g)),
            lambda: {"horizon": 20, "delta": 0.1, "eps": 0.5, "most": 5, "seed": 0},
        ),
        Call(
            "BatchedResampling",
            lambda **g: sketch(regression.BatchedResampling(**g)),
            lambda: {"oversampling": 5.0, "growth": 3.0, "most": 5, "seed": 0},
        ),
        Call(
            "OnlineRowSampling",
            lambda **g: sketch(regression.OnlineRowSampling(**g)),
            lambda: {"mu": 0.1, "gamma": 10.0, "eps": 0.5, "most": 5, "seed": 0},
        ),
        Call(
            "OnlineRowSampling.for_horizon",
            lambda **g: sketch(regression.OnlineRowSampling.for_horizon(**g)),
            lambda: {"mu": 0.1, "horizon": 20, "delta": 0.1, "most": 5, "seed": 0},
        ),
        Call(
            "Hypothetical",
            lambda **g: predicted(regression.Hypothetical(**g)),
            lambda: {"state": S(), "P": X(3, 4), "targets": y(3), "weights": y(3).exp()},
            {"P": "points|P", "targets": "targets|y"},
        ),
        Call("BatchView", lambda **g: predicted(regression.BatchView(**g)), lambda: {"state": S(), "points": X(3, 4)}),
        Call("BatchView.observe", lambda **g: regression.BatchView(S(), X(3, 4)).observe(**g), lambda: {"index": 1}),
        Call("Tracked", lambda **g: regression.Tracked(**g).predict(), lambda: {"state": S(), "points": X(3, 4)}),
        Call("track", lambda **g: regression.track(**g).predict(), lambda: {"state": S(), "points": X(3, 4)}),
        Call(
            "centred_draws",
            regression.centred_draws,
            lambda: {"state": S(), "X": X(), "count": 2, "generator": torch.Generator().manual_seed(0), "ridge": 0.2},
        ),
        Call(
            "draw_path",
            lambda **g: regression.draw_path(**g)(X()),
            lambda: {"state": S(), "like": X(), "generator": torch.Generator().manual_seed(0), "ridge": 0.2},
        ),
        Call(
            "PrecomputedKernel",
            lambda **g: kbo.KernelRidge(kernels.PrecomputedKernel(**g), 0.1).predict(
                torch.tensor([[0.0], [1.0]], dtype=torch.float64)
            ),
            lambda: {"gram": torch.eye(4, dtype=torch.float64)},
        ),
        *_states(),
    ]


def _confidence() -> list[Call]:
    c = confidence
    simple: dict[str, tuple[Any, dict[str, Any]]] = {
        "SelfNormalized": (c.SelfNormalized, _numbers(least_ridge=0.1)),
        "ImprovedGPUCB": (c.ImprovedGPUCB, _numbers(eta=0.01)),
        "KUCB": (c.KUCB, _numbers()),
        "EKUCB": (c.EKUCB, _numbers(projection=0.1, factor=1.0)),
        "BKB": (c.BKB, _numbers(eps=0.5, printed=False)),
        "WangDeFreitas": (c.WangDeFreitas, _numbers()),
        "MartingaleMixture": (c.MartingaleMixture, _numbers(kind="dmm", scale=1.0, ridges=None)),
        "FiniteSet": (c.FiniteSet, {"points": 50, "delta": 0.1, "variant": "mixture"}),
        "FixedWidth": (c.FixedWidth, {"multiplier": 2.0}),
        "UnknownNorm": (
            c.UnknownNorm,
            {"noise_std": 0.3, "delta": 0.1, "kind": "dmm", "scale": 1.0, "guess": None, "multiple": None},
        ),
        "Chaining": (
            c.Chaining,
            {"delta": 0.1, "rigorous": False, "points": X(9, 6), "smooth": True, "refresh": 2.0},
        ),
    }
    state_words = {"state": "state|posterior"}
    certain = {"confidence": lambda: c.MartingaleMixture(0.3, 5.0, 0.1, "cmm"), "state": S}
    calls = [
        Call(n, lambda make=m, **g: bounds(make(**g)), lambda g=g: dict(g), {"points": "points|X"})
        for n, (m, g) in simple.items()
    ]
    for name in ("interval", "upper", "lower", "argmax_upper", "argmax_lower"):
        for kind, make in {
            "MartingaleMixture": C,
            "SelfNormalized": lambda: c.SelfNormalized(0.3, 5.0, 0.1),
            "FixedWidth": lambda: c.FixedWidth(2.0),
            "FiniteSet": lambda: c.FiniteSet(9, 0.1),
            "Chaining": lambda: c.Chaining(0.1, points=X(9, 6)),
            "UnknownNorm": lambda: c.UnknownNorm(0.3, 0.1, "dmm"),
            "AdaptiveMixture": lambda: c.AdaptiveMixture("dmm"),
        }.items():
            state = A if kind == "AdaptiveMixture" else S
            calls.append(
                Call(
                    f"{kind}.{name}",
                    lambda make=make, name=name, **g: getattr(make(), name)(**g),
                    lambda state=state: {"state": state(), "X": X()},
                    state_words,
                )
            )
    return [
        *calls,
        Call("AdaptiveMixture", lambda **g: c.AdaptiveMixture(**g).interval(A(), X()), lambda: {"kind": "dmm"}),
        Call(
            "NoiseBounds",
            lambda **g: predicted(fed(kbo.AdaptiveRidge(kbo.KernelRidge(K(), 0.1), kbo.NoiseBounds(**g)))),
            lambda: {
                "norm_bound": 5.0,
                "delta": 0.1,
                "upper": 1.0,
                "lower": 0.0,
                "variant": "tight+grid",
                "largest_ridge": 0.5,
            },
        ),
        Call(
            "NoiseBounds.update",
            lambda **g: kbo.NoiseBounds(5.0, 0.1, upper=1.0).update(**g),
            lambda: {"state": S()},
            state_words,
        ),
        Call(
            "AlternatingWidth",
            lambda multipliers: bounds(c.AlternatingWidth(multipliers)),
            lambda: {"multipliers": 2.0},
            {"multipliers": "multiplier"},
        ),
        Call("certify", c.certify, lambda: {n: f() for n, f in certain.items()} | {"x": X(1)[0], "side": "upper"}),
        Call(
            "cone_program",
            c.cone_program,
            lambda: {n: f() for n, f in certain.items()} | {"x": X(1)[0], "side": "upper"},
        ),
        Call(
            "norm_lower_bound",
            c.norm_lower_bound,
            lambda: {"state": S(), "noise_std": 0.3, "delta": 0.1, "scale": 1.0, "ridges": None},
        ),
        Call("optimality_gap", c.optimality_gap, lambda: {"confidence": C(), "state": S(), "X": X()}),
        Call("refuse_if_refuted", c.refuse_if_refuted, lambda: {"state": S(), **_numbers(scale=1.0)}),
        Call(
            "squared_radius",
            c.squared_radius,
            lambda: {"state": S(), "noise_std": 0.3, "delta": 0.1, "scale": 1.0, "many": False},
        ),
    ]


def _covers() -> list[Call]:
    cover = {"distance": _distances, "radius": lambda: 0.5, "among": lambda: None}
    return [
        Call(
            "DistanceMatrix",
            lambda **g: covers.greedy_cover(covers.DistanceMatrix(**g), 0.5),
            lambda: {"distances": _distances()},
        ),
        Call(
            "PosteriorMetric",
            lambda **g: covers.greedy_cover(covers.PosteriorMetric(**g), 0.5),
            lambda: {"state": S(), "points": X()},
        ),
        Call("greedy_cover", covers.greedy_cover, lambda: {n: f() for n, f in cover.items()}),
        Call("first_fit_net", covers.first_fit_net, lambda: {n: f() for n, f in cover.items()}),
        Call(
            "farthest_point_net",
            covers.farthest_point_net,
            lambda: {"distance": _distances(), "radius": 0.5, "first": 0},
        ),
        Call(
            "covers", covers.covers, lambda: {"distance": _distances(), "centres": torch.tensor([0, 3]), "radius": 0.5}
        ),
        Call(
            "Chain",
            lambda **g: covers.Chain(**g).centres(1),
            lambda: {"metric": covers.PosteriorMetric(S(), X()), "scale": 1.0, "depth": 2},
        ),
    ]


def _models() -> list[Call]:
    def data(**more: Any) -> dict[str, Any]:
        return {"train_X": X(6, 1), "train_Y": y(6).unsqueeze(-1), "kernel": K(), **more}

    transforms = {"input_transform": None, "outcome_transform": None}
    return [
        Call(
            "KernelRidgeGP",
            lambda **g: on_points(models.KernelRidgeGP(**g)),
            lambda: data(ridge=0.1, train_Yvar=None, **transforms),
        ),
        Call(
            "KernelRidgeGP with transforms",
            lambda **g: on_points(models.KernelRidgeGP(**g)),
            lambda: data(ridge=0.1, input_transform=Normalize(2), outcome_transform=Standardize(1)),
        ),
        Call(
            "NystromGP",
            lambda **g: on_points(models.NystromGP(**g)),
            lambda: data(ridge=0.1, dictionary=regression.FixedDictionary(X(5, 2)), train_Yvar=None, **transforms),
        ),
        Call(
            "AdaptiveRidgeGP",
            lambda **g: on_points(models.AdaptiveRidgeGP(**g)),
            lambda: data(noise_bounds=kbo.NoiseBounds(5.0, 0.1, upper=1.0), dictionary=None, **transforms),
        ),
        Call(
            "PosteriorGP",
            lambda **g: on_points(models.PosteriorGP(**g)),
            lambda: {
                "train_X": X(6, 1),
                "train_Y": y(6).unsqueeze(-1),
                "posterior": kbo.KernelRidge(K(), 0.1),
                **transforms,
            },
        ),
        Call(
            "FantasyGP",
            lambda **g: on_points(models.FantasyGP(**g)),
            lambda: {"model": G(), "P": X(3, 4), "targets": y(3), "weights": y(3).exp()},
            {"P": "points|P"},
        ),
        Call(
            "KernelRidgeGP.posterior",
            lambda **g: G().posterior(**g).mean,
            lambda: {"X": X(), "output_indices": None, "observation_noise": False, "posterior_transform": None},
        ),
        Call(
            "KernelRidgeGP.condition_on_observations",
            lambda **g: on_points((m := G(), m.eval(), m.condition_on_observations(**g))[2]),
            lambda: {"X": X(3, 4), "Y": y(3).unsqueeze(-1), "noise": None},
            {"X": "X|P", "noise": "noise|Yvar"},
        ),
        Call(
            "KernelRidgeGP.set_train_data",
            lambda **g: G().set_train_data(**g),
            lambda: {"inputs": X(6, 3), "targets": y(6), "strict": True},
        ),
    ]


def _acquisition() -> list[Call]:
    a = acquisition
    ucb = {"posterior_transform": None, "X_pending": None}
    return [
        *(
            Call(
                name,
                lambda name=name, **g: value(getattr(a, name)(**g)),
                lambda: {"model": G(), **_numbers(scale=1.0), **ucb},
            )
            for name in ("AMMUCB", "DMMUCB", "CMMUCB")
        ),
        Call(
            "ChainingUCB",
            lambda **g: value(a.ChainingUCB(**g)),
            lambda: {
                "model": G(),
                "points": X(9, 6),
                "delta": 0.1,
                "rigorous": False,
                "smooth": True,
                "previous": None,
                **ucb,
            },
            {"points": "points|X"},
        ),
        Call("KernelUCB", lambda **g: value(a.KernelUCB(**g)), lambda: {"model": G(), "confidence": C(), **ucb}),
        Call(
            "ConstrainedKernelUCB",
            lambda **g: value(a.ConstrainedKernelUCB(**g)),
            lambda: {
                "model": ModelListGP(G(), G()),
                "confidences": [C(), C()],
                "objective_index": 0,
                "constraints": {1: (None, 1.0)},
                **ucb,
            },
            {"confidences": "confidences|confidence"},
        ),
        Call(
            "optimize_safely",
            lambda **g: a.optimize_safely(**g)[1],
            lambda: {
                "acqf": a.SafeUCB(ModelListGP(G(), G()), [C(), C()], 0, {1: (None, 1.0)}),
                "bounds": torch.tensor([[0.0] * 2, [1.0] * 2], dtype=torch.float64),
                "X_safe": X(2),
                "num_restarts": 1,
                "raw_samples": 4,
            },
        ),
        Call("KernelUCB.forward", lambda X: a.KernelUCB(G(), C())(X), lambda: {"X": X().unsqueeze(-2)}),
        Call(
            "KernelUCB.set_X_pending",
            lambda **g: (f := a.KernelUCB(G(), C()), f.set_X_pending(**g), value(f))[2],
            lambda: {"X_pending": X(3, 4)},
        ),
        Call(
            "InflatedThompsonSampling",
            lambda **g: value(a.InflatedThompsonSampling(**g)),
            lambda: {"model": G(), "confidence": C(), "seed": 0, **ucb},
        ),
        Call(
            "InflatedPosteriorSampling",
            lambda **g: a.InflatedPosteriorSampling(**g)(X()),
            lambda: {"model": G(), "confidence": C(), "seed": 0, "posterior_transform": None},
        ),
        Call(
            "inflated_draws",
            a.inflated_draws,
            lambda: {
                "confidence": C(),
                "state": S(),
                "X": X(),
                "count": 2,
                "generator": torch.Generator().manual_seed(0),
            },
        ),
    ]


def _played(method: Any) -> Any:
    return [row["regret"] for row in bandit.play(method, _problem(), 3)]


def _recipes() -> list[Call]:
    from kbo.experiments.bandits import BanditMethod, BanditProblem

    made = {"name": "dmm-ucb", "noise_std": 0.3, "norm_bound": 50.0, "delta": 0.1, "scale": 1.0}
    return [
        Call(
            "recipes.pareto_set",
            lambda **g: recipes.pareto_set(**g).accepted.double(),
            lambda: {"states": [S(), S()], "confidences": [C(), C()], "points": X(9, 6), "epsilon": 0.5},
            {"states": "states|objective", "confidences": "confidences|objective", "points": "points|X"},
        ),
        Call("recipes.get", recipes.get, lambda: {"name": "ucb"}, {"name": "name|method"}),
        Call(
            "recipes.make",
            lambda **g: _played(recipes.make(**g)),
            lambda: {**made, "kernel": K(), "seed": 0},
            {"name": "name|method"},
        ),
        Call(
            "recipes.make, sketched",
            lambda **g: _played(recipes.make(**g)),
            lambda: {**made, "name": "bkb", "kernel": K(), "ridge": 0.1, "horizon": 9, "points": X()},
            {"name": "name|method"},
        ),
        Call(
            "recipes.make, adaptive",
            lambda **g: _played(recipes.make("dmm-ucb-adaptive", **g)),
            lambda: {
                "kernel": K(),
                "noise_std": None,
                "norm_bound": 50.0,
                "delta": 0.1,
                "noise_upper": 1.0,
                "noise_lower": 0.0,
            },
            {"noise_lower": "noise_lower|lower", "noise_upper": "noise_upper|upper"},
        ),
        Call(
            "Method",
            lambda **g: _played(recipes.Method(**g)),
            lambda: {"name": "mine", "kernel": K(), "ridge": 0.1, "confidence": C()},
        ),
        Call(
            "Method.choose",
            lambda **g: _method().choose(**g),
            lambda: {"state": S(), "points": X(), "generator": torch.Generator().manual_seed(0)},
            {"points": "points|X"},
        ),
        Call(
            "Method.choose_batch",
            lambda **g: _method().choose_batch(**g),
            lambda: {"state": S(), "points": X(), "size": 2, "generator": torch.Generator().manual_seed(0)},
            {"points": "points|X"},
        ),
        Call("Method.state", lambda **g: predicted(fed(_method().state(**g))), lambda: {"points": X()}),
        Call(
            "Method.model",
            lambda **g: on_points(_method().model(**g)),
            lambda: {"train_X": X(6, 1), "train_Y": y(6).unsqueeze(-1)},
        ),
        Call(
            "Method.with_multiplier", lambda **g: _played(_method().with_multiplier(**g)), lambda: {"multiplier": 2.0}
        ),
        Call(
            "StagedElimination",
            lambda **g: recipes.StagedElimination(**g),
            lambda: {"horizon": 20, "reward_scale": 1.0},
        ),
        Call(
            "play",
            lambda **g: [r["regret"] for r in bandit.play(**g)],
            lambda: {
                "method": _method(),
                "problem": _problem(),
                "rounds": 3,
                "seed": 0,
                "gap_every": 1,
                "first": 1,
                "initial": 1,
            },
        ),
        Call(
            "BanditProblem",
            lambda **g: BanditProblem(**g).environment(0).arms(),
            lambda: {
                "problem": "rkhs",
                "options": {"n_arms": 9},
                "rounds": 3,
                "delta": 0.1,
                "first": None,
                "noise_upper": None,
            },
            {"options": "options?"},
        ),
        Call(
            "BanditMethod",
            lambda **g: BanditMethod(**g),
            lambda: {"method": "dmm-ucb", "ridge": None, "multiplier": None},
        ),
    ]


def _optimize() -> list[Call]:
    run = {
        "objective": lambda p: p["x"],
        "bounds": {"x": (0.0, 1.0)},
        "n_trials": 2,
        "setting": None,
        "method": None,
        "seed": 0,
        "journal": None,
        "timeout": None,
        "max_failures": 5,
        "stop_at_gap": None,
        "pruner": None,
        "evaluated": None,
        "try_first": [],
        "progress": False,
        "on_trial": None,
        "device": None,
    }
    given = ("bounds", "setting", "method", "seed", "journal", "n_trials", "device")
    made = {name: run[name] for name in given} | {"maximize": False}
    point = {"x": 0.5, "c": "a"}
    certified = {
        "noise_std": 0.3,
        "norm_bound": 5.0,
        "delta": 0.1,
        "scale": 1.0,
        "noise_upper": None,
        "completion_independent_of_noise": False,
    }
    return [
        Call(
            "Float", lambda **g: kbo.Float(**g).value(0.3), lambda: {"low": 0.1, "high": 1.0, "log": False, "step": 0.3}
        ),
        Call("Int", lambda **g: kbo.Int(**g).value(0.3), lambda: {"low": 1, "high": 5, "log": False, "step": 2}),
        Call("Choice", lambda **g: kbo.Choice(**g).value(0.3), lambda: {"options": ["a", 2]}, {"options": "options?"}),
        Call(
            "Ordinal", lambda **g: kbo.Ordinal(**g).value(0.3), lambda: {"options": ["a", 2]}, {"options": "options?"}
        ),
        Call("Fixed", lambda **g: kbo.Fixed(**g).value(0.3), lambda: {"constant": 1}),
        Call(
            "When",
            lambda **g: Space([{"a": ["p", "q"]}, kbo.When(**g)]),
            lambda: {"parent": "a", "values": "p", "parameters": {"b": bool}},
            {"values": "values|condition|parent", "parameters": "parameters?"},
        ),
        Call(
            "Linear",
            lambda **g: Space({"a": (0.0, 1.0), "b": (0.0, 1.0)}, [kbo.Linear(**g)]),
            lambda: {"weights": {"a": 1.0, "b": 1.0}, "upper": 1.5, "lower": 0.5},
            {"weights": "weight|parameter"},
        ),
        Call(
            "Space.from_dict",
            Space.from_dict,
            lambda: {"entries": {"x": {"kind": "Int", "low": 1, "high": 2}}},
            {"entries": "space|parameter|bounds"},
        ),
        Call(
            "Space",
            lambda **g: Space(**g).params(torch.full((Space(**g).dimension,), 0.5)),
            lambda: {"bounds": {"x": (0.0, 1.0)}, "constraints": [kbo.Linear({"x": 1}, upper=0.5)]},
        ),
        Call(
            "Space.unit",
            lambda **g: Space([(0, 1)]).unit(**g),
            lambda: {"params": [0.5]},
            {"params": "params|parameter"},
        ),
        Call("Space.canonical", lambda **g: Space({"x": (0.0, 1.0)}).canonical(**g), lambda: {"params": {"x": 0.5}}),
        Call("minimize", kbo.minimize, lambda: dict(run)),
        Call("maximize", kbo.maximize, lambda: dict(run)),
        Call("Curves", kbo.Curves, lambda: {"delta": 0.1}),
        Call("Optimizer", lambda **g: kbo.Optimizer(**g).ask(), lambda: dict(made)),
        Call("Optimizer.ask", lambda **g: _optimizer().ask(**g), lambda: {"n": 1, "context": None, "choices": None}),
        Call("Optimizer.best", lambda **g: _optimizer().best(**g), lambda: {"context": None, "choices": None}),
        Call("Optimizer.suggest", lambda **g: _optimizer().suggest(**g), lambda: {"number": 1, "context": None}),
        Call(
            "Optimizer.tell",
            lambda **g: _optimizer().tell(**g),
            lambda: {"params": point, "value": 1.0, "seconds": 1.0},
        ),
        Call(
            "Optimizer.fail",
            lambda **g: _optimizer().fail(**g),
            lambda: {"params": point, "reason": "broken", "seconds": 1.0},
        ),
        Call("Optimizer.expect", lambda **g: _optimizer().expect(**g), lambda: {"params": point}),
        Call("Optimizer.interval", lambda **g: _optimizer().interval(**g), lambda: {"params": point}),
        Call("Optimizer.save", lambda **g: kbo.Optimizer([(0, 1)]).save(**g), lambda: {"path": "/dev/null/x"}),
        Call("Result.plot", lambda **g: bool(_result().plot(**g)), lambda: {"what": "history"}),
        Call(
            "report.plot",
            lambda **g: bool(kbo.report.plot(**g, what="history")),
            lambda: {"run": _optimizer()},
            {"run": "run|journal"},
        ),
        Call("report.slice_of", lambda **g: kbo.report.slice_of(_optimizer(), **g).mean, lambda: {"parameter": "x"}),
        Call(
            "report.importance",
            lambda **g: len(kbo.report.importance(**g)),
            lambda: {"run": _optimizer()},
            {"run": "run|journal"},
        ),
        Call(
            "report.Live",
            lambda **g: kbo.report.Live(**g).address,
            lambda: {"port": 0, "title": "run", "quiet": True},
        ),
        Call(
            "Optimizer.load",
            lambda **g: kbo.Optimizer([(0, 1)]).load(**g),
            lambda: {"path": "/dev/null/x"},
            {"path": "path|journal"},
        ),
        Call(
            "Practical",
            lambda **g: _optimizer(setting=kbo.Practical(**g)).ask(),
            lambda: {"delta": 0.1, "scale": 1.0, "norm_factor": 1.25, "n_initial": None, "noise_std": None},
        ),
        Call(
            "fit_values",
            lambda **g: kbo.optimize.fit_values(**g).noise_std,
            lambda: {"X": X(), "y": y(), "noise_std": 0.1},
        ),
        Call(
            "Certified",
            lambda **g: kbo.Optimizer([(0, 1)], setting=kbo.Certified(**g)).ask(),
            lambda: {"kernel": K(), **certified},
        ),
        Call(
            "Safe",
            lambda **g: kbo.Optimizer(
                [(0, 1)],
                setting=kbo.Safe(**g),
                constraints=[kbo.Constraint("objective", upper=0.5)],
            ).ask(),
            lambda: {"kernel": K(), **certified, "start": [[0.5]]},
        ),
    ]


def _problems() -> list[Call]:
    p = problems

    def pulled(problem: Any) -> Any:
        arms = problem.arms()[:3]
        return problem.mean(arms), problem.observe(arms)

    def tried(problem: Any) -> Any:
        return problem(problem.space.params(torch.full((problem.space.dimension,), 0.5, dtype=torch.float64)))

    small = {"lengthscale": 0.1, "noise_std": 0.1, "norm_bound": 1.0, "seed": 0}
    made = {
        "RKHSBandit": {
            "kernel": "rbf",
            "lengthscale": 0.5,
            "dim": 2,
            "norm": 5.0,
            "noise_std": 0.1,
            "n_arms": 9,
            "fixed": False,
            "n_centres": 5,
            "seed": 0,
        },
        "StreamingBandit": {
            "n_arms": 9,
            "noise_std": 0.1,
            "noise": "gaussian",
            "norm": 2.0,
            "norm_bound": 5.0,
            "seed": 0,
        },
        "GaussianProcessBandit": {
            "n_points": 30,
            "side": 3.0,
            "lengthscale": 1.0,
            "dim": 2,
            "noise_std": 0.05,
            "seed": 0,
        },
        "HimmelblauBandit": {"n_points": 30, "trend": 5.0, "noise_std": 0.05, "seed": 0},
        "GraphBandit": {"n_graphs": 12, "noise_std": 0.05, "graph_seed": 0, "seed": 0},
        "Bump": small,
        "Chessboard": small,
        "StepDiagonal": small,
    }
    tuning: dict[str, dict[str, Any]] = {
        "ackley": {"dim": 2, "noise_std": 0.3, "seed": 0},
        "levy": {"dim": 2, "noise_std": 0.3, "seed": 0},
        "branin": {"noise_std": 1.0, "seed": 0},
        "hartmann6": {"noise_std": 0.1, "seed": 0},
        "GridBandit": {"side": 4, "dim": 2, "noise_std": 1.0, "seed": 0},
        "BBOB": {"function": 2, "dim": 5, "instance": 1, "noise": "heavy", "integers": True, "seed": 0},
        "LearnerOnData": {"learner": "svm", "data": "wine", "seed": 0},
    }
    return [
        *(
            Call(name, lambda name=name, **g: pulled(getattr(p, name)(**g)), lambda g=g: dict(g))
            for name, g in made.items()
        ),
        *(
            Call(name, lambda name=name, **g: tried(getattr(p, name)(**g)), lambda g=g: dict(g))
            for name, g in tuning.items()
        ),
        Call("RKHSBandit.observe", lambda **g: _problem().observe(**g), lambda: {"X": X()}),
        Call("RKHSBandit.mean", lambda **g: _problem().mean(**g), lambda: {"X": X()}),
        Call("random_graphs", lambda **g: len(p.random_graphs(**g)), lambda: {"count": 3, "seed": 0}),
        Call(
            "stationary_kernel",
            lambda **g: kbo.KernelRidge(p.stationary_kernel(**g), 0.1).predict(X()),
            lambda: {"name": "rbf", "lengthscale": 0.5},
            {"name": "name|kernel"},
        ),
    ]


def _integrations() -> list[Call]:
    import optuna

    from kbo.integrations import ax
    from kbo.integrations.optuna import KBOSampler, kbo_candidates_func

    def study(**given: Any) -> Any:
        found = optuna.create_study(sampler=KBOSampler(**given))
        found.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=2)
        return found.best_value

    box = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    return [
        Call(
            "KBOSampler",
            study,
            lambda: {
                "method": None,
                "setting": None,
                "n_startup_trials": None,
                "n_trials": None,
                "seed": 0,
                "constraints_func": None,
                "constraints": [],
                "device": None,
            },
        ),
        Call(
            "kbo_candidates_func",
            kbo_candidates_func,
            lambda: {
                "train_x": X(1),
                "train_obj": y(1).unsqueeze(-1),
                "train_con": None,
                "bounds": box,
                "pending_x": None,
            },
        ),
        Call(
            "ax.generation_strategy",
            lambda **g: ax.generation_strategy(**g),
            lambda: {
                "method": None,
                "setting": None,
                "n_initial": None,
                "n_trials": None,
                "constraints": [],
                "seed": 0,
                "device": None,
            },
        ),
        Call("ax.guarantee", ax.guarantee, lambda: {"client": None}),
        Call("ax.recommended", ax.recommended, lambda: {"client": None}),
        Call("ax.feasibility", ax.feasibility, lambda: {"client": None}),
        Call("ax.interval", lambda client: ax.interval(client, {"x": 0.5}), lambda: {"client": None}),
    ]


def calls() -> list[Call]:
    """Every public function with valid arguments."""
    groups = (_regression, _confidence, _covers, _models, _acquisition, _recipes, _optimize, _problems, _integrations)
    return [call for group in groups for call in group()]


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


def verdict(call: Call, argument: str, bad: str) -> str:
    """Call with one bad value; return "works", "refused", or the fault in words."""
    try:
        given = call.arguments()
        given[argument] = BAD[bad]()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = call_with_limit(lambda: call.function(**given), 10.0)
        return "works" if finite(found) else f"a result with NaN: {str(found)[:80]}"
    except kbo.KboError as error:
        word = call.words.get(argument, re.escape(argument))
        named = re.search(rf"(?<![A-Za-z]){'(' + word + ')'}(?![A-Za-z])", str(error))
        return "refused" if named else f"not named: {type(error).__name__}: {error}"
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        if argument in (
            "on_trial",
            "constraints_func",
        ):  # an exception of the caller's own function, which passes through
            return "works"
        text = described(error)
        signature = isinstance(error, TypeError) and _SIGNATURE.search(text)
        return "refused" if signature else f"raw: {text}"


def cases(values: int, seed: int | None = None, most: int | None = None) -> list[tuple[Call, str, str]]:
    """Every function with each argument and the first ``values`` bad values; ``most`` of them at random."""
    bad = list(BAD)[:values]
    found = [(call, argument, name) for call in calls() for argument in call.arguments() for name in bad]
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
        print(f"| {name} | {count.total()} | {count['works']} | {count['refused']} | {count['fault']} |")
    total = sum(table.values(), Counter())
    print(f"| all | {total.total()} | {total['works']} | {total['refused']} | {total['fault']} |")


if __name__ == "__main__":
    main()
