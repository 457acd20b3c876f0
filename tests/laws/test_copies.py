"""Every public object can be pickled and deep-copied after use: equal values, independent of the original.

A new public class is added to one of the functions of ``MADE``, or to ``LIVE`` if it cannot outlive its process.
"""

from __future__ import annotations

import copy
import functools
import inspect
import pickle
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Any

import pandas
import pytest
import torch
from botorch.acquisition import AcquisitionFunction
from botorch.models import ModelListGP
from gpytorch.kernels import AdditiveKernel, MaternKernel, RBFKernel
from torch import Tensor

import kbo
from kbo import (
    acquisition,
    bandit,
    confidence,
    errors,
    models,
    optimize,
    regression,
    report,
    space,
)
from kbo.acquisition import InflatedThompsonSampling
from kbo.confidence import FixedWidth, MartingaleMixture, NoiseBounds
from kbo.confidence import chaining as covers
from kbo.kernels import PrecomputedKernel
from kbo.models.base import FunctionPaths
from kbo.optimize import Estimate, Pruning
from kbo.regression import FixedPoints, Hypothetical, KernelRidge, NystromRidge, Posterior
from tests.laws.confidences import BOUNDS, Setting
from tests.laws.states import DICTIONARIES, STATES, matern, rbf, seeded, unit_square

COPIES = [lambda value: pickle.loads(pickle.dumps(value)), copy.deepcopy]
Z = unit_square(5, 3)
GROUPS = Z.unsqueeze(-2)
NUMBERS = {"noise_std": 0.3, "norm_bound": 9.0, "delta": 0.1}
SAFE = {"noise_std": 0.1, "norm_bound": 3.0}
SPACE = {"x": (0.0, 1.0), "kind": ["a", "b"]}


def targets(X: Tensor) -> Tensor:
    return torch.sin(4 * X).sum(-1)


def fed(state: Any = None) -> Any:
    state = KernelRidge(matern(2.5), 0.1) if state is None else state
    X = unit_square(12, 1)
    state.update(X, targets(X))
    return state


def pending() -> Hypothetical:
    return Hypothetical(fed(), unit_square(3, 4))


def sketched() -> NystromRidge:
    return fed(NystromRidge(rbf(), 0.1, regression.GreedyDictionary(0.01)))


def drawn(state: Posterior) -> Any:
    return state.at().draw_function(Z, seeded(1))


def adaptive(kind: Any) -> Any:
    schedule = kind(9.0, 0.1, upper=1.0)
    return fed(kbo.AdaptiveRidge(KernelRidge(matern(2.5), schedule.ridge), schedule))


def columns(n: int = 12) -> tuple[Tensor, Tensor]:
    X = unit_square(n, 1)
    return X, targets(X).unsqueeze(-1)


def gp(kernel: Any = None, n: int = 12) -> models.KernelRidgeGP:
    return models.KernelRidgeGP(*columns(n), kernel or matern(2.5), 0.1)


def all_kernels() -> AdditiveKernel:
    return AdditiveKernel(RBFKernel(active_dims=[0]), matern(1.5)).double()


def matern_of(d: int) -> MaternKernel:
    return MaternKernel(nu=2.5, ard_num_dims=d).double()


def prior_mean(X: Tensor) -> Tensor:
    return X.sum(-1)


def objective(params: Any) -> float:
    return (params["x"] - 0.3) ** 2


def noisy(params: Any) -> float:
    return params["x"] + 0.1 * float(torch.randn(()))


# Objects to use


def states() -> list[Any]:
    adaptive_state = adaptive(NoiseBounds)
    return [
        fed(),
        sketched(),
        adaptive_state,
        adaptive_state.schedule,
        adaptive(confidence.MixtureNoiseBounds).schedule,
        regression.FixedDictionary(Z),
        PrecomputedKernel(torch.eye(5).double()),
    ]


def dictionaries() -> list[Any]:
    candidates: list[Any] = []

    class Watching(regression.GreedyDictionary):
        def accepts(self, point: Any, sketch: Any) -> bool:
            candidates.append(point)
            return super().accepts(point, sketch)

    state = NystromRidge(rbf(), 0.1, Watching(0.01))
    for x in Z.split(1):
        state.update(x, targets(x))
    living = [case for case in [*STATES, *DICTIONARIES] if case.living]
    found = [case.fed(*case.data(12, "cpu")).dictionary for case in living]
    return [*found, candidates[-1]]


def views() -> list[Any]:
    batch = regression.BatchView(fed(), Z)
    batch.observe(1)
    return [
        FixedPoints(fed(), Z),
        FixedPoints(sketched(), Z),
        pending(),
        batch,
        Hypothetical(fed(), unit_square(3, 4), unit_square(3, 5)[:, 0]),
        fed(regression.PriorMean(KernelRidge(matern(2.5), 0.1), prior_mean)),
        regression.View(fed()),
    ]


def parts_of_states() -> list[Any]:
    return [
        KernelRidge(matern(2.5), 0.1).at(),
        fed().columns(Z),
        fed().provenance,
        regression.Error(fed()),
        fed().error.rounding,
        drawn(KernelRidge(all_kernels(), 0.1)),
        drawn(fed()),
        drawn(sketched()),
        drawn(pending()),
        regression.AllRidges(fed(), GROUPS),
        fed().across(GROUPS),
        pending().across(GROUPS),
        fed().across(GROUPS).grid([0.1]),
        fed().least_squares,
    ]


def bounds() -> list[Any]:
    return [
        *(bound.make(Setting()) for bound in BOUNDS),
        confidence.AlternatingWidth(1.0, 2.0),
        confidence.UnknownNorm(0.3, 0.1),
        confidence.AdaptiveMixture("dmm"),
        confidence.AdaptiveSelfNormalized(),
        confidence.Limit(fed(), FixedWidth(2.0), upper=0.4),
        confidence.candidate_gap(FixedWidth(2.0), fed(), Z),
        confidence.certify(MartingaleMixture(**NUMBERS), fed(), Z[0]),
        covers.Chain(covers.PosteriorMetric(fed(), unit_square(20, 4)), 1.0, 3),
        covers.PosteriorMetric(fed(), Z),
    ]


def models_of_botorch() -> list[Any]:
    return [
        gp(),
        models.NystromGP(*columns(), rbf(), 0.1),
        models.AdaptiveRidgeGP(*columns(), rbf(), NoiseBounds(9.0, 0.1, upper=1.0)),
        models.PosteriorGP(*columns(), KernelRidge(rbf(), 0.1)),
        gp().condition_on_observations(Z.expand(2, 5, 2), Z[:, :1].expand(2, 5, 1)),
        FunctionPaths(gp(), torch.Size([2])),
    ]


def acquisitions() -> list[Any]:
    limits = ModelListGP(gp(), gp()), [FixedWidth(2.0), FixedWidth(1.0)], 0, {1: (None, 2.0)}
    sketch = models.NystromGP(*columns(), rbf(), 0.1)
    return [
        acquisition.KernelUCB(gp(), FixedWidth(2.0), X_pending=Z[3:]),
        acquisition.AMMUCB(gp(), **NUMBERS),
        acquisition.DMMUCB(gp(), **NUMBERS),
        acquisition.CMMUCB(gp(), **NUMBERS),
        acquisition.ChainingUCB(gp(), unit_square(15, 4), 0.1),
        acquisition.ConstrainedKernelUCB(*limits),
        acquisition.SafeUCB(*limits),
        acquisition.SafeExpander(*limits),
        *(
            InflatedThompsonSampling(model, FixedWidth(1.0))
            for model in (gp(), gp(all_kernels()), sketch, gp(rbf(), 0))
        ),
        acquisition.InflatedPosteriorSampling(gp(), FixedWidth(1.0)),
    ]


def methods() -> list[Any]:
    return [
        bandit.make("cmm-ucb", matern(2.5), **NUMBERS),
        bandit.get("cmm-ucb"),
        bandit.UpperBound(),
        bandit.ThompsonSampling(),
        bandit.UniformChoice(),
        bandit.Facts(matern(2.5), noise_std=0.1),
        bandit.pareto_set([fed()], [FixedWidth(1.0)], Z, 0.1),
    ]


def descriptions() -> list[Any]:
    return [
        kbo.Float(0.1, 1.0, log=True),
        kbo.Int(1, 9),
        kbo.Choice(["a", None]),
        kbo.Ordinal([1, 2, 8]),
        kbo.Fixed(3),
        kbo.Linear({"x": 1}, upper=0.5),
        kbo.When("x", 1, {"y": (0.0, 1.0)}),
        space.Condition("x", (1,)),
        kbo.Space(SPACE),
        kbo.Constraint("memory", upper=2.0),
        kbo.Minimize("error", noise_std=0.1),
        kbo.Maximize("speed"),
        kbo.Curves(),
        Pruning(kbo.Curves(), kbo.Space(SPACE), False),
        kbo.Practical(),
        kbo.Certified(matern_of(1), **SAFE),
        kbo.Safe(matern_of(1), start=[{"x": 0.2}], **SAFE),
        kbo.hypotheses(0.1, 1.0)[0],
        kbo.Processes(2),
        kbo.Threads(2),
        report.Importance("x", Estimate(0.1, 0.2, 0.3), True, False),
        report.History("a tool", [1], [("best", "1")]),
        optimize.Comparison(0.2, 0.1, 0.3, 0.9),
        optimize.Outlier(3, 9.0, 0.1, 0.3, True),
        optimize.Finalist("a", {"x": 0.1}, [0.2, 0.3], 0.1, 0.4),
        optimize.Gap(0.1, True, "the whole space", True),
        optimize.Infeasible(
            None, {"x": 0.1}, {"size": 3.0}, (kbo.Constraint("size", upper=1.0),), 0.1
        ),
    ]


def runs() -> list[Any]:
    front = kbo.Optimizer([(0.0, 1.0)], objectives=["error", "size"], seed=1)
    for x in (0.0, 0.4, 0.8, 1.0, 0.3):
        front.tell([x], {"error": (x - 0.7) ** 2, "size": x})
    values = [0.1 * i for i in range(8)]
    table = pandas.DataFrame({"x": values, "value": [(x - 0.3) ** 2 for x in values]})
    certified = kbo.Certified(matern_of(3), **SAFE)
    result = kbo.minimize(objective, SPACE, 7, seed=0)
    limit = kbo.Constraint("size", upper=-1.0, noise_std=0.1, norm_bound=1.0)
    limited = kbo.Optimizer(SPACE, setting=certified, constraints=[limit])
    for x in (0.1, 0.4, 0.7):
        limited.tell({"x": x, "kind": "a"}, (x, {"size": 0.1}))
    return [
        result.answers,
        result.answers.effects[0],
        result.answers.effects[0].range,
        result.optimizer.insight.surrogate().bound(0),
        limited.insight.feasibility(),
        result.trials[0],
        result.optimizer.insight.surrogate().fitted,
        report.slice_of(result.optimizer, "x"),
        report.Record.of(result),
        result,
        copy.deepcopy(result.optimizer),
        kbo.minimize(objective, SPACE, 3, seed=0, setting=certified),
        front.insight.front(),
        kbo.audit(table),
        kbo.confirm(noisy, [{"x": 0.1}, {"x": 0.9}], 8, tolerance=0.1),
    ]


MADE = [states, dictionaries, views, parts_of_states, bounds, models_of_botorch, acquisitions]
MADE = [functools.cache(make) for make in (*MADE, methods, descriptions, runs)]


# What they answer, and how they change


def predicted(state: Any) -> list[Tensor]:
    """The answers of a posterior, by its factors and its eigenbasis."""
    ridges = state.across(GROUPS).grid([0.05, 0.5])
    return [*state.predict(Z), *ridges, state.at().log_det(), state.at().quad()]


def bounded(bound: Any) -> list[Any]:
    state = fed()
    if isinstance(bound, confidence.AdaptiveMixture):
        state = adaptive(confidence.MixtureNoiseBounds)
    elif isinstance(bound, confidence.AdaptiveSelfNormalized):
        state = adaptive(NoiseBounds)
    interval = bound.interval(state, Z)
    return [*interval, bound.guarantee_on(state), bound.objections(state)]


def known(optimizer: kbo.Optimizer) -> list[Any]:
    return [contents(optimizer.trials), optimizer.interval({"x": 0.2, "kind": "a"})]


ANSWERS: list[tuple[Any, Callable[[Any], Any]]] = [
    (Posterior, predicted),
    (regression.PosteriorAt, lambda one: one.predict(Z)),
    (regression.AllRidges, lambda one: one.grid([0.1])),
    (regression.Columns, lambda one: one.predict(0.1)),
    (regression.Error, lambda one: [one.trace, one.norm(), one.rounding]),
    (regression.Dictionary, lambda one: [repr(one), one.points]),
    (regression.Candidate, lambda one: [one.prior, one.residual, one.features]),
    (confidence.Confidence, bounded),
    (confidence.NoiseLevel, lambda one: [one.ridge, one.upper, one.n]),
    (confidence.Limit, lambda one: one.certain(Z)),
    (covers.Chain, lambda one: [one.sizes, one.centres(2)]),
    (covers.PosteriorMetric, lambda one: one.squared(one)),
    (models.PosteriorModel, lambda one: [one.posterior(Z).mean, one.posterior(Z).variance]),
    (PrecomputedKernel, lambda one: one(one.points).to_dense()),
    (AcquisitionFunction, lambda one: [one(Z.unsqueeze(-2)), one.objections]),
    # Of copies, since every call has new draws.
    (
        acquisition.InflatedPosteriorSampling,
        lambda one: copy.deepcopy(one)(unit_square(30, 7), num_samples=2),
    ),
    (bandit.Method, lambda one: one.choose(fed(one.state()), Z, seeded(2))),
    (bandit.Rule, lambda one: one.choose(FixedWidth(2.0), fed(), Z, 1, seeded(3))),
    (bandit.NamedMethod, lambda one: one.name),
    (bandit.Facts, lambda one: one.ridge),
    (kbo.Space, lambda one: [one.describe(), one.features(Z.new_full((1, 2), 0.3))]),
    (Pruning, lambda one: one.n_events),
    (kbo.Safe, lambda one: [contents(one.start), one.norm_bound]),
    (kbo.Hypothesis, str),
    (optimize.Bound, lambda one: [one.posterior.n, repr(one.confidence)]),
    (kbo.Audit, lambda one: [one.likely, one.margin, one.result.interval({"x": 0.2})]),
    (kbo.Front, lambda one: [repr(one.points), one.choose().values]),
    (kbo.Optimizer, lambda one: [*known(one), one.suggest()]),
    ((kbo.Result, report.Record), lambda one: known(one.optimizer)),
]


def double_parameters(model: Any) -> None:
    parameters = model.covar_module.named_parameters()
    doubled = {name: 2 * value.detach() for name, value in parameters}
    model.covar_module.requires_grad_(False).initialize(**doubled)


CHANGES: list[tuple[Any, Callable[[Any], Any]]] = [
    (Posterior, fed),
    ((models.KernelRidgeGP, models.NystromGP, models.AdaptiveRidgeGP), double_parameters),
    (AcquisitionFunction, lambda one: one.set_X_pending(Z[:2])),
    (kbo.Optimizer, lambda one: one.tell({"x": 0.4, "kind": "b"}, 1.0)),
]


def function_of(table: list[tuple[Any, Callable]], value: Any) -> Callable[[Any], Any] | None:
    return next((function for kind, function in table if isinstance(value, kind)), None)


def contents(value: Any) -> Any:
    """Plain contents of an object that is compared by its parts: tensors, numbers and texts."""
    if isinstance(value, Tensor) or value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, dict):
        return {str(name): contents(part) for name, part in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        parts = [contents(getattr(value, field.name)) for field in fields(value)]
        return [type(value).__name__, *parts]
    if isinstance(value, (list, tuple)):
        return [contents(part) for part in value]
    if isinstance(value, torch.nn.Module):
        return contents({"class": type(value).__name__, **value.state_dict()})
    return type(value).__name__ if callable(value) else str(value)


def leaves(value: Any) -> Iterator[Any]:
    """Tensors, which are copied, numbers and texts of nested results, in order."""
    if isinstance(value, dict):
        yield from leaves(list(value.items()))
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from leaves(part)
    else:
        yield value.detach().clone() if isinstance(value, Tensor) else value


def answers(value: Any) -> list[Any]:
    if isinstance(value, (regression.SamplePath, FunctionPaths)) or "Path" in type(value).__name__:
        return list(leaves(value(Z)))
    return list(leaves((function_of(ANSWERS, value) or contents)(value)))


def equal(found: list[Any], expected: list[Any]) -> None:
    """Numbers agree up to rounding, since a copy forgets what was remembered of its answers; all else is the same."""
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        is_number = isinstance(other, Tensor) or (isinstance(other, float) and other == other)
        if is_number:
            pair = torch.as_tensor(one), torch.as_tensor(other)
            torch.testing.assert_close(*pair, rtol=1e-9, atol=1e-12)
        else:
            assert repr(one) == repr(other)


def public_classes() -> Iterator[tuple[str, type]]:
    modules = [kbo, *filter(inspect.ismodule, (getattr(kbo, name) for name in kbo.__all__))]
    for module in (*modules, report, import_module("kbo.integrations.optuna")):
        for name in getattr(module, "__all__", ()):
            kind = getattr(module, name)
            if inspect.isclass(kind) and kind.__module__.startswith("kbo."):
                yield name, kind


@pytest.mark.parametrize("make", MADE, ids=lambda make: make.__name__)
def test_used_objects_are_copied_with_their_values_and_independently(make):
    for original in make():
        before = answers(original)
        twins = [copied(original) for copied in COPIES]
        for twin in twins:
            assert type(twin) is type(original)
            equal(answers(twin), before)
        change = function_of(CHANGES, original)
        if change is None:
            continue
        changed = copy.deepcopy(original)
        change(changed)
        assert str(answers(changed)) != str(before)
        for other in (original, *twins):
            equal(answers(other), before)


LIVE = {"RunningTrial", "Live"}
"""Classes whose objects cannot outlive their process: a running call with its connection, a page with its server."""

ELSEWHERE = {"Moment", "KBOSampler", "Insight", "Estimate", "Pruner"}
"""Classes whose objects are copied in other tests, which have them at hand, or as parts of others."""


def test_every_public_class_has_an_object():
    covered = {base for make in MADE for value in make() for base in type(value).__mro__}
    missing = {
        name
        for name, kind in public_classes()
        if kind not in covered and not inspect.isabstract(kind) and not issubclass(kind, Exception)
    }
    assert missing == LIVE | ELSEWHERE


def test_exceptions_are_copied_with_their_numbers():
    for kind in vars(errors).values():
        if not (inspect.isclass(kind) and issubclass(kind, Exception)):
            continue
        original = kind("reason", n=3.0) if kind is errors.RefutedAssumptions else kind("reason")
        for copied in COPIES:
            twin = copied(original)
            assert (type(twin), str(twin), vars(twin)) == (kind, str(original), vars(original))
