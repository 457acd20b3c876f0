"""Every public object can be pickled and deep-copied after use: equal values, independent of the original.

A new public class is added by one entry of ``MADE``, or of ``LIVE`` if it cannot outlive its process.
"""

from __future__ import annotations

import copy
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
from experiments import problems
from kbo import acquisition, bandit, confidence, errors, models, regression, report, space
from kbo.acquisition import InflatedThompsonSampling
from kbo.confidence import FixedWidth, MartingaleMixture, NoiseBounds
from kbo.confidence import chaining as covers
from kbo.kernels import PrecomputedKernel
from kbo.models.base import FunctionPaths
from kbo.optimize import Pruning
from kbo.optimize.insight.comparison import Estimate
from kbo.regression import FixedPoints, Hypothetical, KernelRidge, NystromRidge, Posterior
from tests.laws.confidences import BOUNDS, Setting
from tests.laws.states import DICTIONARIES, STATES, matern, rbf, seeded, unit_square

COPIES = [lambda value: pickle.loads(pickle.dumps(value)), copy.deepcopy]
Z = unit_square(5, 3)
NUMBERS = {"noise_std": 0.3, "norm_bound": 9.0, "delta": 0.1}


# Objects to use


def targets(X: Tensor) -> Tensor:
    return torch.sin(4 * X).sum(-1)


def columns(n: int = 12) -> tuple[Tensor, Tensor]:
    X = unit_square(n, 1)
    return X, targets(X).unsqueeze(-1)


def fed(state: Any = None) -> Any:
    state = KernelRidge(matern(2.5), 0.1) if state is None else state
    X = unit_square(12, 1)
    state.update(X, targets(X))
    return state


def of_law(case: Any) -> Posterior:
    state = case.make(case.kernel(), 0.1)
    state.update(*case.data(12, "cpu"))
    return state


def batch() -> Any:
    view = regression.BatchView(fed(), Z)
    view.observe(1)
    return view


def pending() -> Hypothetical:
    return Hypothetical(fed(), unit_square(3, 4))


def sketched() -> NystromRidge:
    return fed(NystromRidge(rbf(), 0.1, regression.GreedyDictionary(0.01)))


def drawn(state: Posterior) -> Any:
    return state.at().draw_function(Z, seeded(1))


def all_kernels() -> AdditiveKernel:
    return AdditiveKernel(RBFKernel(active_dims=[0]), matern(1.5)).double()


def adaptive(schedule: Any) -> Any:
    return fed(kbo.AdaptiveRidge(KernelRidge(matern(2.5), schedule.ridge), schedule))


def noise() -> NoiseBounds:
    return NoiseBounds(9.0, 0.1, upper=1.0)


def mixed_noise() -> Any:
    return confidence.MixtureNoiseBounds(9.0, 0.1, upper=1.0)


def gp(kernel: Any = None, n: int = 12) -> models.KernelRidgeGP:
    return models.KernelRidgeGP(*columns(n), matern(2.5) if kernel is None else kernel, 0.1)


def sketched_gp() -> models.NystromGP:
    return models.NystromGP(*columns(), rbf(), 0.1)


def limited(kind: Any) -> Any:
    bounds = [FixedWidth(2.0), FixedWidth(1.0)]
    return kind(ModelListGP(gp(), gp()), bounds, 0, {1: (None, 2.0)})


def thompson(model: Any) -> Any:
    return InflatedThompsonSampling(model, FixedWidth(1.0))


def prior_mean(X: Tensor) -> Tensor:
    return X.sum(-1)


def objective(params: Any) -> float:
    return (params["x"] - 0.3) ** 2


def noisy(params: Any) -> float:
    return params["x"] + 0.1 * float(torch.randn(()))


def in_space() -> dict[str, Any]:
    return {"x": (0.0, 1.0), "kind": ["a", "b"]}


def run(**options: Any) -> Any:
    return kbo.minimize(objective, in_space(), 8, seed=0, **options)


def matern_of(d: int) -> MaternKernel:
    return MaternKernel(nu=2.5, ard_num_dims=d).double()


def certified() -> Any:
    return run(setting=kbo.Certified(matern_of(3), noise_std=0.1, norm_bound=3.0))


def front() -> Any:
    optimizer = kbo.Optimizer([(0.0, 1.0)], objectives=["error", "size"], seed=1)
    for x in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 0.3):
        optimizer.tell([x], {"error": (x - 0.7) ** 2, "size": x})
    return optimizer.insight.front()


def audited() -> Any:
    x = [0.1 * i for i in range(8)]
    return kbo.audit(pandas.DataFrame({"x": x, "value": [(value - 0.3) ** 2 for value in x]}))


def candidate() -> Any:
    seen: list[Any] = []

    class Watching(regression.GreedyDictionary):
        def accepts(self, point: Any, sketch: Any) -> bool:
            seen.append(point)
            return super().accepts(point, sketch)

    state = NystromRidge(rbf(), 0.1, Watching(0.01))
    for x in unit_square(12, 1).split(1):
        state.update(x, targets(x))
    return seen[-1]


_GROUPS = Z.unsqueeze(-2)
_SAFE = {"noise_std": 0.1, "norm_bound": 3.0}
MADE: dict[str, Callable[[], Any]] = {
    **{f"state {case.name}": lambda case=case: of_law(case) for case in [*STATES, *DICTIONARIES]},
    **{
        f"dictionary {case.name}": lambda case=case: of_law(case).dictionary
        for case in [*STATES, *DICTIONARIES]
        if case.living
    },
    "FixedPoints": lambda: FixedPoints(fed(), Z),
    "FixedPoints of a sketch": lambda: FixedPoints(sketched(), Z),
    "Hypothetical": lambda: Hypothetical(fed(), unit_square(3, 4), unit_square(3, 5)[:, 0]),
    "Hypothetical pending": pending,
    "BatchView": batch,
    "PriorMean": lambda: fed(regression.PriorMean(KernelRidge(matern(2.5), 0.1), prior_mean)),
    "View": lambda: regression.View(fed()),
    "PriorAt": lambda: KernelRidge(matern(2.5), 0.1).at(),
    "drawn prior": lambda: drawn(KernelRidge(all_kernels(), 0.1)),
    "SamplePath": lambda: drawn(fed()),
    "path of a sketch": lambda: drawn(sketched()),
    "path under pending points": lambda: drawn(pending()),
    "AllRidges": lambda: regression.AllRidges(fed(), _GROUPS),
    "ridges of an exact posterior": lambda: fed().across(_GROUPS),
    "ridges under pending points": lambda: pending().across(_GROUPS),
    "Moments": lambda: fed().across(_GROUPS).grid([0.1]),
    "columns": lambda: fed().columns(Z),
    "Error": lambda: regression.Error(fed()),
    "Rounding": lambda: fed().error.rounding,
    "Provenance": lambda: fed().provenance,
    "Candidate": candidate,
    "FixedDictionary": lambda: regression.FixedDictionary(Z),
    **{f"bound {bound.name}": lambda bound=bound: bound.make(Setting()) for bound in BOUNDS},
    "AlternatingWidth": lambda: confidence.AlternatingWidth(1.0, 2.0),
    "UnknownNorm": lambda: confidence.UnknownNorm(0.3, 0.1),
    "AdaptiveMixture": lambda: confidence.AdaptiveMixture("dmm"),
    "AdaptiveSelfNormalized": confidence.AdaptiveSelfNormalized,
    "NoiseBounds": lambda: adaptive(noise()).schedule,
    "MixtureNoiseBounds": lambda: adaptive(mixed_noise()).schedule,
    "Limit": lambda: confidence.Limit(fed(), FixedWidth(2.0), upper=0.4),
    "Gap": lambda: confidence.optimality_gap(FixedWidth(2.0), fed(), Z),
    "Certificate": lambda: confidence.certify(MartingaleMixture(**NUMBERS), fed(), Z[0]),
    "Chain": lambda: covers.Chain(covers.PosteriorMetric(fed(), unit_square(20, 4)), 1.0, 3),
    "PosteriorMetric": lambda: covers.PosteriorMetric(fed(), Z),
    "KernelRidgeGP": gp,
    "NystromGP": sketched_gp,
    "AdaptiveRidgeGP": lambda: models.AdaptiveRidgeGP(*columns(), rbf(), noise()),
    "PosteriorGP": lambda: models.PosteriorGP(*columns(), KernelRidge(rbf(), 0.1)),
    "FantasyGP": lambda: gp().condition_on_observations(
        Z.expand(2, 5, 2), Z[:, :1].expand(2, 5, 1)
    ),
    "FunctionPaths": lambda: FunctionPaths(gp(), torch.Size([2])),
    "PrecomputedKernel": lambda: PrecomputedKernel(torch.eye(5).double()),
    "KernelUCB": lambda: acquisition.KernelUCB(gp(), FixedWidth(2.0), X_pending=Z[3:]),
    "AMMUCB": lambda: acquisition.AMMUCB(gp(), **NUMBERS),
    "DMMUCB": lambda: acquisition.DMMUCB(gp(), **NUMBERS),
    "CMMUCB": lambda: acquisition.CMMUCB(gp(), **NUMBERS),
    "ChainingUCB": lambda: acquisition.ChainingUCB(gp(), unit_square(15, 4), 0.1),
    "ConstrainedKernelUCB": lambda: limited(acquisition.ConstrainedKernelUCB),
    "SafeUCB": lambda: limited(acquisition.SafeUCB),
    "SafeExpander": lambda: limited(acquisition.SafeExpander),
    "InflatedThompsonSampling": lambda: thompson(gp()),
    "InflatedThompsonSampling of a sum": lambda: thompson(gp(all_kernels())),
    "InflatedThompsonSampling of a sketch": lambda: thompson(sketched_gp()),
    "InflatedThompsonSampling without data": lambda: thompson(gp(rbf(), 0)),
    "InflatedPosteriorSampling": lambda: acquisition.InflatedPosteriorSampling(
        gp(), FixedWidth(1.0)
    ),
    "Method": lambda: bandit.make("cmm-ucb", matern(2.5), **NUMBERS),
    "UpperBound": bandit.UpperBound,
    "ThompsonSampling": bandit.ThompsonSampling,
    "UniformChoice": bandit.UniformChoice,
    "NamedMethod": lambda: bandit.get("cmm-ucb"),
    "Facts": lambda: bandit.Facts(matern(2.5), 0.1),
    "ParetoSet": lambda: bandit.pareto_set([fed()], [FixedWidth(1.0)], Z, 0.1),
    "Float": lambda: kbo.Float(0.1, 1.0, log=True),
    "Int": lambda: kbo.Int(1, 9),
    "Choice": lambda: kbo.Choice(["a", None]),
    "Ordinal": lambda: kbo.Ordinal([1, 2, 8]),
    "Fixed": lambda: kbo.Fixed(3),
    "Linear": lambda: kbo.Linear({"x": 1}, upper=0.5),
    "When": lambda: kbo.When("x", 1, {"y": (0.0, 1.0)}),
    "Condition": lambda: space.Condition("x", (1,)),
    "Space": lambda: kbo.Space(in_space()),
    "Constraint": lambda: kbo.Constraint("memory", upper=2.0),
    "Curves": kbo.Curves,
    "Pruning": lambda: Pruning(kbo.Curves(), kbo.Space(in_space()), False),
    "Practical": kbo.Practical,
    "Certified": lambda: kbo.Certified(matern_of(1), **_SAFE),
    "Safe": lambda: kbo.Safe(matern_of(1), start=[{"x": 0.2}], **_SAFE),
    "Hypothesis": lambda: kbo.hypotheses(0.1, 1.0)[0],
    "Optimizer": lambda: run().optimizer,
    "Result": run,
    "Result certified": certified,
    "Audit": audited,
    "Trial": lambda: run().trials[0],
    "Minimize": lambda: kbo.Minimize("error", noise_std=0.1),
    "Maximize": lambda: kbo.Maximize("speed"),
    "Front": front,
    "Fitted": lambda: run().optimizer.insight.surrogate().fitted,
    "Processes": lambda: kbo.Processes(2),
    "Threads": lambda: kbo.Threads(2),
    "Importance": lambda: report.Importance("x", Estimate(0.2, 0.1, 0.3), True, False),
}


# What they answer, and how they change


def points_of(state: Posterior) -> Tensor:
    return Z if state.like.shape[-1] == 2 else torch.arange(5.0).double().unsqueeze(-1)


def predicted(state: Any) -> list[Tensor]:
    """The answers of a posterior, by its factors, its eigenbasis and a drawn function."""
    points = points_of(state)
    ridges = state.across(points.unsqueeze(-2)).grid([0.05, 0.5])
    return [*state.predict(points), *ridges, state.at().log_det(), state.at().quad()]


def bounded(bound: Any) -> list[Any]:
    states = {
        confidence.AdaptiveMixture: lambda: adaptive(mixed_noise()),
        confidence.AdaptiveSelfNormalized: lambda: adaptive(noise()),
    }
    state = states.get(type(bound), fed)()
    interval = bound.interval(state, Z)
    said = [bound.guarantee_on(state), bound.objections(state)]
    return [*interval, *said, bound.argmax_upper(state, Z)]


def modelled(model: Any) -> list[Tensor]:
    posterior = model.posterior(Z)
    if isinstance(model, models.FantasyGP):
        return [posterior.mean, posterior.variance]
    return [posterior.mean, posterior.variance, model.state.at().quad(), model.likelihood.noise]


def chosen(rule: Any) -> list[int]:
    state = rule.state(lambda: KernelRidge(matern(2.5), 0.1), None)
    return rule.choose(FixedWidth(2.0), fed(state), Z, 1, seeded(3))


def optimised(result: Any) -> list[Any]:
    optimizer = getattr(result, "optimizer", result)
    interval = optimizer.interval({"x": 0.2, "kind": "a"})
    return [contents(optimizer.trials), interval, optimizer.suggest()]


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
    (models.PosteriorModel, modelled),
    (PrecomputedKernel, lambda one: one(one.points).to_dense()),
    (AcquisitionFunction, lambda one: [one(Z.unsqueeze(-2)), one.objections]),
    # Of copies, since every call has new draws.
    (
        acquisition.InflatedPosteriorSampling,
        lambda one: copy.deepcopy(one)(unit_square(30, 7), num_samples=2),
    ),
    (bandit.Method, lambda one: one.choose(fed(one.state()), Z, seeded(2))),
    (bandit.Rule, chosen),
    (bandit.NamedMethod, lambda one: one.name),
    (bandit.Facts, lambda one: one.ridge),
    (kbo.Space, lambda one: [one.describe(), one.features(Z.new_full((1, 2), 0.3))]),
    (Pruning, lambda one: one.n_events),
    (kbo.Safe, lambda one: [contents(one.start), one.norm_bound]),
    ((kbo.Hypothesis, errors.KboError), str),
    (kbo.Audit, lambda one: [one.likely, one.margin, one.result.predict({"x": 0.2})]),
    (kbo.Front, lambda one: [repr(one.points), one.choose().values]),
    ((kbo.Optimizer, kbo.Result), optimised),
]


def more(state: Posterior) -> None:
    points = points_of(state)[:3]
    state.update(points, targets(points))


def double_parameters(model: Any) -> None:
    parameters = model.covar_module.named_parameters()
    doubled = {name: 2 * value.detach() for name, value in parameters}
    model.covar_module.requires_grad_(False).initialize(**doubled)


def tell_more(result: Any) -> None:
    optimizer = getattr(result, "optimizer", result)
    optimizer.tell(optimizer.ask(), 1.0)


CHANGES: list[tuple[Any, Callable[[Any], Any]]] = [
    (Posterior, more),
    ((models.KernelRidgeGP, models.NystromGP, models.AdaptiveRidgeGP), double_parameters),
    (AcquisitionFunction, lambda one: one.set_X_pending(Z[:2])),
    ((kbo.Optimizer, kbo.Result), tell_more),
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


PUBLIC = dict(public_classes())


@pytest.mark.parametrize("name", MADE)
def test_a_used_object_is_copied_with_its_values_and_independently(name):
    original = MADE[name]()
    before = answers(original)
    twins = [copied(original) for copied in COPIES]
    for twin in twins:
        assert type(twin) is type(original) is PUBLIC.get(name, type(original))
        equal(answers(twin), before)
    change = function_of(CHANGES, original)
    if change is None:
        return
    change(copy.deepcopy(original))
    equal(answers(original), before)
    change(original)
    assert str(answers(original)) != str(before)
    for twin in twins:
        equal(answers(twin), before)


LIVE = {"RunningTrial", "Live"}
"""Classes whose objects cannot outlive their process: a running call with its connection, a page with its server."""

ELSEWHERE = {"History", "Slice", "Record", "Moment", "Confirmation", "KBOSampler"}
"""Classes whose objects are copied in other tests, which have them at hand."""


def test_every_public_class_has_an_entry_of_its_kind():
    made = {PUBLIC[name] if name in PUBLIC else type(MADE[name]()) for name in MADE}
    covered = {base for kind in made for base in kind.__mro__}
    missing = {
        name
        for name, kind in PUBLIC.items()
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


@pytest.mark.thorough
@pytest.mark.parametrize("name", [*problems.BANDITS, *problems.TUNING])
def test_problems_are_copied_and_go_on_alike(name):
    original = {**problems.BANDITS, **problems.TUNING}[name](seed=0)
    for copied in COPIES:
        twins = copied(original), copied(original)
        if isinstance(original, bandit.Bandit):
            found = [[one.mean(one.arms()[:4]), one.observe(one.arms()[:4])] for one in twins]
        else:
            unit = torch.full((original.space.dimension,), 0.4, dtype=torch.float64)
            found = [[one(original.space.params(unit))] for one in twins]
        equal(*(list(leaves(values)) for values in found))


def test_what_reports_are_made_of_is_copied():
    record = report.Record.of(run())
    confirmation = kbo.confirm(noisy, [{"x": 0.1}, {"x": 0.9}], 8, tolerance=0.1)
    history = report.History("a tool", [1], {"best": "1"})
    for copied in COPIES:
        for original in (confirmation, report.slice_of(record.optimizer, "x"), history):
            assert str(contents(copied(original))) == str(contents(original))
        twin = copied(record)
        intervals = [one.optimizer.interval({"x": 0.2, "kind": "a"}) for one in (twin, record)]
        assert intervals[0] == intervals[1]
        assert contents(twin.trials) == contents(record.trials)
        assert contents(report.history(twin)) == contents(report.history(record))
