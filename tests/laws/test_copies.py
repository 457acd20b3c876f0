"""Every public object can be pickled and deep-copied after use: equal values, independent of the original.

A new public class is added by one entry of ``USED``, or of ``LIVE`` if it cannot outlive its process.
"""

from __future__ import annotations

import copy
import inspect
import math
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from importlib import import_module
from typing import Any

import pandas
import pytest
import torch
from botorch.models import ModelListGP
from gpytorch.kernels import AdditiveKernel, MaternKernel, RBFKernel
from torch import Tensor

import kbo
from experiments import problems
from kbo import acquisition, bandit, confidence, errors, models, regression, report, space
from kbo.bandit import Bandit
from kbo.confidence import FixedWidth, MartingaleMixture, NoiseBounds
from kbo.confidence import chaining as covers
from kbo.kernels import PrecomputedKernel
from kbo.models.base import FunctionPaths
from kbo.optimize import Pruning
from kbo.optimize.insight.comparison import Estimate
from kbo.regression import Hypothetical, KernelRidge, NystromRidge, Posterior
from tests.laws.confidences import BOUNDS, Setting
from tests.laws.states import DICTIONARIES, STATES, matern, rbf, seeded, unit_square
from tests.parts import once

COPIES = {"pickle": lambda value: pickle.loads(pickle.dumps(value)), "deepcopy": copy.deepcopy}
Z = unit_square(5, 3)
NUMBERS = {"noise_std": 0.3, "norm_bound": 9.0, "delta": 0.1}


@dataclass(frozen=True)
class Used:
    """A public object.

    Attributes:
        make: Makes one.
        values: What it answers. It is asked before the copy, so that whatever an object keeps is there.
        change: Changes an object; a copy is then what it was, and the original too. None for values.
    """

    make: Callable[[], Any]
    values: Callable[[Any], Any]
    change: Callable[[Any], Any] | None = None


def data(n: int = 12) -> tuple[Tensor, Tensor]:
    X = unit_square(n, 1)
    return X, torch.sin(4 * X).sum(-1)


def columns() -> tuple[Tensor, Tensor]:
    X, y = data()
    return X, y.unsqueeze(-1)


def fed(state: Posterior | None = None) -> Any:
    state = KernelRidge(matern(2.5), 0.1) if state is None else state
    state.update(*data())
    return state


def more(state: Posterior) -> None:
    state.update(unit_square(3, 9), unit_square(3, 9)[:, 0])


def prior_mean(X: Tensor) -> Tensor:
    return X.sum(-1)


def predicted(state: Any) -> list[Tensor]:
    """The answers of a posterior, by its factors, its eigenbasis and a drawn function."""
    points = Z if state.like.shape[-1] == 2 else torch.arange(5.0).double().unsqueeze(-1)
    ridges = state.across(points.unsqueeze(-2)).grid([0.05, 0.5])
    return [*state.predict(points), *ridges, state.at().log_det(), state.at().quad()]


def posterior(make: Callable[[], Any]) -> Used:
    return Used(make, predicted, more)


def of_law(case: Any) -> Used:
    def make() -> Posterior:
        state = case.make(case.kernel(), 0.1)
        state.update(*case.data(12, "cpu"))
        return state

    new = case.data(14, "cpu", seed=1)
    return Used(make, predicted, lambda state: state.update(*new))


def batch() -> Any:
    view = regression.BatchView(fed(), Z)
    view.observe(1)
    return view


def sketched() -> NystromRidge:
    return fed(NystromRidge(rbf(), 0.1, regression.GreedyDictionary(0.01)))


def path() -> Any:
    return fed().at().draw_function(Z, seeded(1))


def all_kernels() -> AdditiveKernel:
    return AdditiveKernel(RBFKernel(active_dims=[0]), matern(1.5)).double()


def bound(make: Callable[[], Any], state: Callable[[], Any] = fed) -> Used:
    def values(one: Any) -> list[Any]:
        own = state()
        return [
            *one.interval(own, Z),
            one.guarantee_on(own),
            one.objections(own),
            one.argmax_upper(own, Z),
        ]

    return Used(make, values)


def adaptive(schedule: Any) -> Any:
    return fed(kbo.AdaptiveRidge(KernelRidge(matern(2.5), schedule.ridge), schedule))


def noise() -> NoiseBounds:
    return NoiseBounds(9.0, 0.1, upper=1.0)


def mixed_noise() -> Any:
    return confidence.MixtureNoiseBounds(9.0, 0.1, upper=1.0)


def exact() -> models.KernelRidgeGP:
    return models.KernelRidgeGP(*columns(), matern(2.5), 0.1)


def model(make: Callable[[], Any]) -> Used:
    def values(one: Any) -> list[Tensor]:
        own = one.posterior(Z)
        return [own.mean, own.variance, one.state.at().quad(), one.likelihood.noise]

    return Used(
        make, values, lambda one: one.covar_module.requires_grad_(False).initialize(**lengths(one))
    )


def lengths(one: Any) -> dict[str, Any]:
    return {name: 2 * value.detach() for name, value in one.covar_module.named_parameters()}


def acquired(make: Callable[[], Any]) -> Used:
    X = Z.unsqueeze(-2)
    return Used(make, lambda one: [one(X), one.objections], lambda one: one.set_X_pending(Z[:2]))


def limited(kind: Any) -> Used:
    both = [FixedWidth(2.0), FixedWidth(1.0)]
    return acquired(lambda: kind(ModelListGP(exact(), exact()), both, 0, {1: (None, 2.0)}))


def thompson(kernel: Any) -> Used:
    make = lambda: acquisition.InflatedThompsonSampling(  # noqa: E731
        models.KernelRidgeGP(*columns(), kernel, 0.1), FixedWidth(1.0)
    )
    return acquired(make)


def sampled(sampling: Any) -> Tensor:
    """Points of a copy, since every call has new draws."""
    return copy.deepcopy(sampling)(unit_square(30, 7), num_samples=2)


def chosen(rule: Any) -> Used:
    def values(one: Any) -> list[int]:
        state = one.state(lambda: KernelRidge(matern(2.5), 0.1), None)
        state.update(*data())
        return one.choose(FixedWidth(2.0), state, Z, 1, seeded(3))

    return Used(lambda: rule, values)


def contents(value: Any) -> Any:
    """Plain contents of an object that is compared by its parts: tensors, numbers and texts."""
    if isinstance(value, Tensor) or value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, dict):
        return {str(name): contents(part) for name, part in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return [
            type(value).__name__,
            *(contents(getattr(value, field.name)) for field in fields(value)),
        ]
    if isinstance(value, (list, tuple)):
        return [contents(part) for part in value]
    if isinstance(value, torch.nn.Module):
        return contents({"class": type(value).__name__, **value.state_dict()})
    return type(value).__name__ if callable(value) else str(value)


def value(one: Any) -> Used:
    """An object that is nothing but its values."""
    return Used(lambda: one() if callable(one) else one, contents)


def objective(params: Any, trial: Any = None) -> float:
    return (params["x"] - 0.3) ** 2


def noisy(params: Any) -> float:
    return params["x"] + 0.1 * float(torch.randn(()))


def in_space() -> dict[str, Any]:
    return {"x": (0.0, 1.0), "kind": ["a", "b"]}


def run(**options: Any) -> Any:
    return kbo.minimize(objective, in_space(), 8, seed=0, **options)


def optimised(result: Any) -> list[Any]:
    optimizer = getattr(result, "optimizer", result)
    return [
        contents(optimizer.trials),
        optimizer.interval({"x": 0.2, "kind": "a"}),
        optimizer.suggest(),
    ]


def tell_more(result: Any) -> None:
    optimizer = getattr(result, "optimizer", result)
    optimizer.tell(optimizer.ask(), 1.0)


def certified() -> Any:
    return run(setting=kbo.Certified(matern_of(3), noise_std=0.1, norm_bound=3.0))


def several() -> Any:
    optimizer = kbo.Optimizer([(0.0, 1.0)], objectives=["error", "size"], seed=1)
    for x in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 0.3):
        optimizer.tell([x], {"error": (x - 0.7) ** 2, "size": x})
    return optimizer.insight.front()


def audited() -> Any:
    x = [0.1 * i for i in range(8)]
    return kbo.audit(pandas.DataFrame({"x": x, "value": [(one - 0.3) ** 2 for one in x]}))


def matern_of(d: int) -> MaternKernel:
    return MaternKernel(nu=2.5, ard_num_dims=d).double()


def candidate() -> Any:
    seen: list[Any] = []

    class Watching(regression.GreedyDictionary):
        def accepts(self, point: Any, sketch: Any) -> bool:
            seen.append(point)
            return super().accepts(point, sketch)

    state = NystromRidge(rbf(), 0.1, Watching(0.01))
    X, y = data()
    for x, value in zip(X.split(1), y.split(1), strict=True):
        state.update(x, value)
    return seen[-1]


def chain() -> Any:
    return covers.Chain(covers.PosteriorMetric(fed(), unit_square(20, 4)), 1.0, 3)


def played(problem: Any) -> list[Any]:
    """Arms, means and rewards of a bandit problem, of a copy, since noise is drawn anew."""
    problem = copy.deepcopy(problem)
    arms = problem.arms()[:4]
    return [arms, problem.mean(arms), problem.observe(arms)]


def tuned(problem: Any) -> list[Any]:
    problem = copy.deepcopy(problem)
    return [problem(problem.space.params(torch.full((problem.space.dimension,), 0.4).double()))]


_X, _SQUARE = Z.unsqueeze(-2), torch.eye(5).double()
_REGRESSION = {
    **{f"state {case.name}": of_law(case) for case in [*STATES, *DICTIONARIES]},
    "FixedPoints": posterior(lambda: regression.FixedPoints(fed(), Z)),
    "FixedPoints of a sketch": posterior(lambda: regression.FixedPoints(sketched(), Z)),
    "Hypothetical": posterior(
        lambda: Hypothetical(fed(), unit_square(3, 4), unit_square(3, 5)[:, 0])
    ),
    "Hypothetical pending": posterior(lambda: Hypothetical(fed(), unit_square(3, 4))),
    "BatchView": posterior(batch),
    "PriorMean": posterior(
        lambda: fed(regression.PriorMean(KernelRidge(matern(2.5), 0.1), prior_mean))
    ),
    "View": posterior(lambda: regression.View(fed())),
    "PriorAt": Used(lambda: KernelRidge(matern(2.5), 0.1).at(), lambda one: one.predict(Z)),
    "drawn prior": Used(
        lambda: KernelRidge(all_kernels(), 0.1).at().draw_function(Z, seeded(1)), lambda f: f(Z)
    ),
    "SamplePath": Used(path, lambda one: one(Z)),
    "path of a sketch": Used(lambda: sketched().at().draw_function(Z, seeded(1)), lambda f: f(Z)),
    "path under pending points": Used(
        lambda: Hypothetical(fed(), unit_square(3, 4)).at().draw_function(Z, seeded(1)),
        lambda f: f(Z),
    ),
    "AllRidges": Used(lambda: regression.AllRidges(fed(), _X), lambda one: one.grid([0.1])),
    "ridges of an exact posterior": Used(lambda: fed().across(_X), lambda one: one.grid([0.1])),
    "ridges under pending points": Used(
        lambda: Hypothetical(fed(), unit_square(3, 4)).across(_X), lambda one: one.grid([0.1])
    ),
    "Moments": value(lambda: fed().across(_X).grid([0.1])),
    "columns": Used(lambda: fed().columns(Z), lambda one: one.predict(0.1)),
    "Error": Used(
        lambda: regression.Error(fed()), lambda one: [one.trace, one.norm(), one.rounding]
    ),
    "Rounding": value(lambda: fed().error.rounding),
    "Provenance": value(lambda: fed().provenance),
    "Candidate": Used(candidate, lambda one: [one.prior, one.residual, one.features]),
    "FixedDictionary": Used(lambda: regression.FixedDictionary(Z), lambda one: one.points),
    **{
        f"dictionary {case.name}": Used(
            lambda case=case: of_law(case).make().dictionary,
            lambda one: [type(one), repr(one), one.points],
        )
        for case in [*STATES, *DICTIONARIES]
        if case.living
    },
}
_CONFIDENCE = {
    **{f"bound {one.name}": bound(lambda one=one: one.make(Setting())) for one in BOUNDS},
    "AlternatingWidth": bound(lambda: confidence.AlternatingWidth(1.0, 2.0)),
    "UnknownNorm": bound(lambda: confidence.UnknownNorm(0.3, 0.1)),
    "AdaptiveMixture": bound(
        lambda: confidence.AdaptiveMixture("dmm"), lambda: adaptive(mixed_noise())
    ),
    "AdaptiveSelfNormalized": bound(confidence.AdaptiveSelfNormalized, lambda: adaptive(noise())),
    "NoiseBounds": Used(
        lambda: adaptive(noise()).schedule, lambda one: [one.ridge, one.upper, one.n]
    ),
    "MixtureNoiseBounds": Used(
        lambda: adaptive(mixed_noise()).schedule, lambda one: [one.ridge, one.upper, one.n]
    ),
    "Limit": Used(
        lambda: confidence.Limit(fed(), FixedWidth(2.0), upper=0.4), lambda one: one.certain(Z)
    ),
    "Gap": value(lambda: confidence.optimality_gap(FixedWidth(2.0), fed(), Z)),
    "Certificate": value(lambda: confidence.certify(MartingaleMixture(**NUMBERS), fed(), Z[0])),
    "Chain": Used(chain, lambda one: [one.sizes, one.centres(2)]),
    "PosteriorMetric": Used(lambda: covers.PosteriorMetric(fed(), Z), lambda one: one.squared(one)),
}
_BOTORCH = {
    "KernelRidgeGP": model(exact),
    "NystromGP": model(lambda: models.NystromGP(*columns(), rbf(), 0.1)),
    "AdaptiveRidgeGP": model(lambda: models.AdaptiveRidgeGP(*columns(), rbf(), noise())),
    "PosteriorGP": Used(
        lambda: models.PosteriorGP(*columns(), KernelRidge(rbf(), 0.1)),
        lambda one: one.posterior(Z).mean,
    ),
    "FantasyGP": Used(
        lambda: exact().condition_on_observations(Z.expand(2, 5, 2), Z[:, :1].expand(2, 5, 1)),
        lambda one: [one.posterior(Z).mean, one.posterior(Z).variance],
    ),
    "FunctionPaths": Used(lambda: FunctionPaths(exact(), torch.Size([2])), lambda one: one(Z)),
    "PrecomputedKernel": Used(
        lambda: PrecomputedKernel(_SQUARE), lambda one: one(one.points).to_dense()
    ),
    "KernelUCB": acquired(lambda: acquisition.KernelUCB(exact(), FixedWidth(2.0), X_pending=Z[3:])),
    **{
        kind.__name__: acquired(lambda kind=kind: kind(exact(), **NUMBERS))
        for kind in (acquisition.AMMUCB, acquisition.DMMUCB, acquisition.CMMUCB)
    },
    "ChainingUCB": acquired(lambda: acquisition.ChainingUCB(exact(), unit_square(15, 4), 0.1)),
    **{
        kind.__name__: limited(kind)
        for kind in (
            acquisition.ConstrainedKernelUCB,
            acquisition.SafeUCB,
            acquisition.SafeExpander,
        )
    },
    "InflatedThompsonSampling": thompson(matern(2.5)),
    "InflatedThompsonSampling of a sum": thompson(all_kernels()),
    "InflatedThompsonSampling of a sketch": acquired(
        lambda: acquisition.InflatedThompsonSampling(
            models.NystromGP(*columns(), rbf(), 0.1), FixedWidth(1.0)
        )
    ),
    "InflatedThompsonSampling without data": acquired(
        lambda: acquisition.InflatedThompsonSampling(
            models.KernelRidgeGP(*(part[:0] for part in columns()), rbf(), 0.1), FixedWidth(1.0)
        )
    ),
    "InflatedPosteriorSampling": Used(
        lambda: acquisition.InflatedPosteriorSampling(exact(), FixedWidth(1.0)), sampled
    ),
    "Method": Used(
        lambda: bandit.make("cmm-ucb", matern(2.5), **NUMBERS),
        lambda one: one.choose(fed(one.state()), Z, seeded(2)),
    ),
    **{
        type(rule).__name__: chosen(rule)
        for rule in (bandit.UpperBound(), bandit.ThompsonSampling(), bandit.UniformChoice())
    },
    "NamedMethod": Used(lambda: bandit.get("cmm-ucb"), lambda one: one.name),
    "Facts": Used(lambda: bandit.Facts(matern(2.5), 0.1), lambda one: one.ridge),
    "ParetoSet": value(lambda: bandit.pareto_set([fed()], [FixedWidth(1.0)], Z, 0.1)),
}
_OPTIMIZE = {
    "Float": value(kbo.Float(0.1, 1.0, log=True)),
    "Int": value(kbo.Int(1, 9)),
    "Choice": value(kbo.Choice(["a", None])),
    "Ordinal": value(kbo.Ordinal([1, 2, 8])),
    "Fixed": value(kbo.Fixed(3)),
    "Linear": value(kbo.Linear({"x": 1}, upper=0.5)),
    "When": value(kbo.When("x", 1, {"y": (0.0, 1.0)})),
    "Condition": value(space.Condition("x", (1,))),
    "Space": Used(
        lambda: kbo.Space(in_space()),
        lambda one: [one.describe(), one.features(Z.new_full((1, 2), 0.3))],
    ),
    "Constraint": value(lambda: kbo.Constraint("memory", upper=2.0)),
    "Curves": value(kbo.Curves()),
    "Pruning": Used(
        lambda: Pruning(kbo.Curves(), kbo.Space(in_space()), False), lambda one: one.n_events
    ),
    "Practical": value(kbo.Practical()),
    "Certified": value(lambda: kbo.Certified(matern_of(1), noise_std=0.1, norm_bound=3.0)),
    "Safe": Used(
        lambda: kbo.Safe(matern_of(1), noise_std=0.1, norm_bound=3.0, start=[{"x": 0.2}]),
        lambda one: [contents(one.start), one.norm_bound],
    ),
    "Hypothesis": Used(lambda: kbo.hypotheses(0.1, 1.0)[0], str),
    "Optimizer": Used(lambda: run().optimizer, optimised, tell_more),
    "Result": Used(run, optimised, tell_more),
    "Result certified": Used(certified, optimised, tell_more),
    "Audit": Used(audited, lambda one: [one.likely, one.margin, one.result.predict({"x": 0.2})]),
    "Trial": Used(lambda: run().trials[0], contents),
    "Minimize": Used(lambda: kbo.Minimize("error", noise_std=0.1), contents),
    "Maximize": Used(lambda: kbo.Maximize("speed"), contents),
    "Front": Used(several, lambda front: [repr(front.points), front.choose().values]),
    "Fitted": Used(lambda: run().optimizer.insight.surrogate().fitted, str),
    "Processes": value(kbo.Processes(2)),
    "Threads": value(kbo.Threads(2)),
    "Importance": value(report.Importance("x", Estimate(0.2, 0.1, 0.3), True, False)),
}
USED = {**_REGRESSION, **_CONFIDENCE, **_BOTORCH, **_OPTIMIZE}


def leaves(value: Any) -> Iterator[Any]:
    """The tensors, numbers and texts of nested results, in order."""
    if isinstance(value, dict):
        yield from (leaf for name, part in value.items() for leaf in (name, *leaves(part)))
    elif isinstance(value, (list, tuple)):
        yield from (leaf for part in value for leaf in leaves(part))
    else:
        yield value


def recorded(value: Any) -> list[Any]:
    """The leaves as they are now: tensors are copied."""
    return [leaf.detach().clone() if isinstance(leaf, Tensor) else leaf for leaf in leaves(value)]


def equal(found: list[Any], expected: list[Any]) -> None:
    """Numbers agree up to rounding, since a copy forgets what was remembered of its answers; all else is the same."""
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        if isinstance(other, (Tensor, float)) and not (
            isinstance(other, float) and math.isnan(other)
        ):
            torch.testing.assert_close(
                torch.as_tensor(one), torch.as_tensor(other), rtol=1e-9, atol=1e-12
            )
        else:
            assert repr(one) == repr(other)


@pytest.mark.parametrize("way", once(COPIES))
@pytest.mark.parametrize("name", USED)
def test_a_used_object_is_copied_with_its_values_and_independently(name, way):
    used = USED[name]
    original = used.make()
    before = recorded(used.values(original))
    twin = COPIES[way](original)
    assert type(twin) is type(original)
    equal(recorded(used.values(twin)), before)
    if used.change is not None:
        used.change(COPIES[way](original))
        equal(recorded(used.values(original)), before)
        used.change(original)
        equal(recorded(used.values(twin)), before)
        assert any(
            str(a) != str(b) for a, b in zip(recorded(used.values(original)), before, strict=False)
        )


LIVE = {
    "RunningTrial": "the handle of a call that is running, with its connection",
    "Live": "the page of a run that goes on, with its server",
}
"""Public classes whose objects cannot outlive their process."""

ELSEWHERE = {
    "History": "test_what_reports_are_made_of_is_copied",
    "Slice": "test_what_reports_are_made_of_is_copied",
    "Record": "test_what_reports_are_made_of_is_copied",
    "Moment": "test_what_reports_are_made_of_is_copied",
    "Confirmation": "test_what_reports_are_made_of_is_copied",
    "KBOSampler": "tests/test_optuna.py",
}
"""Classes whose objects are copied in other tests, which have them at hand."""


def public_classes() -> dict[str, type]:
    """The concrete public classes of kbo and of its public modules, but for exceptions, by name."""
    found: dict[str, type] = {}
    modules = [
        "kbo",
        *(f"kbo.{name}" for name in kbo.__all__ if inspect.ismodule(getattr(kbo, name))),
    ]
    for module in map(import_module, [*modules, "kbo.report", "kbo.integrations.optuna"]):
        for name in getattr(module, "__all__", ()):
            kind = getattr(module, name)
            if not inspect.isclass(kind) or inspect.isabstract(kind) or issubclass(kind, Exception):
                continue
            if kind.__module__.startswith("kbo."):
                found[name] = kind
    return found


def test_every_public_class_has_an_entry_of_its_kind():
    public = public_classes()
    named = {name: used for name, used in USED.items() if name in public}
    assert [name for name, used in named.items() if type(used.make()) is not public[name]] == []
    others = [type(used.make()) for name, used in USED.items() if name not in public]
    covered = {
        *named,
        *LIVE,
        *ELSEWHERE,
        *(base.__name__ for kind in [*others, *map(public.get, named)] for base in kind.__mro__),
    }
    assert sorted(set(public) - covered) == []


@pytest.mark.parametrize("way", once(COPIES))
def test_exceptions_are_copied_with_their_numbers(way):
    for kind in {
        kind
        for kind in vars(errors).values()
        if inspect.isclass(kind) and issubclass(kind, Exception)
    }:
        original = kind("reason", n=3.0) if kind is errors.RefutedAssumptions else kind("reason")
        twin = COPIES[way](original)
        assert (type(twin), str(twin), vars(twin)) == (kind, str(original), vars(original))


@pytest.mark.thorough
@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize("name", [*problems.BANDITS, *problems.TUNING])
def test_problems_are_copied_and_go_on_alike(name, way):
    original = {**problems.BANDITS, **problems.TUNING}[name](seed=0)
    values = played if isinstance(original, Bandit) else tuned
    before = recorded(values(original))
    equal(recorded(values(COPIES[way](original))), before)
    equal(recorded(values(original)), before)


def test_what_reports_are_made_of_is_copied():
    record = report.Record.of(run())
    confirmation = kbo.confirm(noisy, [{"x": 0.1}, {"x": 0.9}], 8, tolerance=0.1)
    history = report.History("a tool", [1], {"best": "1"})
    for original in (confirmation, report.slice_of(record.optimizer, "x"), history):
        for copied in (COPIES[way](original) for way in COPIES):
            assert str(contents(copied)) == str(contents(original))
    for copied in (COPIES[way](record) for way in COPIES):
        assert contents(copied.trials) == contents(record.trials)
        assert copied.optimizer.interval({"x": 0.2, "kind": "a"}) == record.optimizer.interval(
            {"x": 0.2, "kind": "a"}
        )
        assert contents(report.history(copied)) == contents(report.history(record))
