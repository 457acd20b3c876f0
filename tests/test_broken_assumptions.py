"""What kbo says when an assumption of a theorem is broken: no row keeps its guarantee silently.

``python -m tests.test_broken_assumptions`` prints the whole of the table in docs/reliability.md.
"""

from __future__ import annotations

import copy
import math
import pickle
import warnings
from dataclasses import replace

import optuna
import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import ChainedOutcomeTransform as chain
from botorch.models.transforms import Log, Normalize, Standardize, Warp
from gpytorch.kernels import MaternKernel, RBFKernel
from gpytorch.mlls import ExactMarginalLogLikelihood

import kbo
from kbo import AdaptiveRidge, KernelRidge, NystromRidge, confidence
from kbo.acquisition import CMMUCB, InflatedThompsonSampling, KernelUCB
from kbo.bandit import pareto_set
from kbo.confidence import (
    AdaptiveMixture,
    AdaptiveSelfNormalized,
    FiniteSet,
    MartingaleMixture,
    NoiseBounds,
    SelfNormalized,
)
from kbo.integrations.optuna import KBOSampler
from kbo.models import KernelRidgeGP, NystromGP, PosteriorGP
from kbo.optimize.result import result_of
from kbo.regression import (
    BatchView,
    FixedDictionary,
    GreedyDictionary,
    Hypothetical,
    LeverageResampling,
)
from tests.dense_noise import noise_bounds

NUMBERS = {"noise_std": 0.1, "norm_bound": 5.0, "delta": 0.1}
CMM, AY = MartingaleMixture(**NUMBERS), SelfNormalized(**NUMBERS)
ADAPTIVE = AdaptiveSelfNormalized()
SETTING = kbo.Certified(RBFKernel().double(), **NUMBERS)
ONLINE = replace(SETTING, noise_std=None, noise_upper=1.0)
BOX = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
X = torch.rand(60, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
NOISE = torch.randn(60, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
Y = torch.sin(3 * X).sum(-1) + 0.1 * NOISE

STATES = {
    "exact": KernelRidge,
    "fixed": lambda kernel, ridge: NystromRidge(kernel, ridge, FixedDictionary(X[:5])),
    "greedy": lambda kernel, ridge: NystromRidge(kernel, ridge, GreedyDictionary(0.1)),
    "resampled": lambda kernel, ridge: NystromRidge(kernel, ridge, LeverageResampling(2.0)),
}
MODELS = {
    "exact": lambda X, Y, **options: KernelRidgeGP(X, Y, RBFKernel(), 0.01, **options),
    "sketched": lambda X, Y, **options: NystromGP(X, Y, RBFKernel(), 0.01, **options),
    "any": lambda X, Y, **options: PosteriorGP(X, Y, KernelRidge(RBFKernel(), 0.01), **options),
}


def fed(state, X=X[:20], y=Y[:20]):
    state.update(X, y)
    return state


def exact():
    return fed(KernelRidge(RBFKernel(), 0.01))


def rough(X, y=Y):
    return fed(KernelRidge(MaternKernel(nu=0.5), 0.01), X, y)


def sketch():
    return fed(NystromRidge(MaternKernel(nu=0.5), 0.01, FixedDictionary(X[:3])))


def adaptive(variant="tight+grid"):
    schedule = noise_bounds(variant, 5.0, 0.1, 1.0)
    return fed(AdaptiveRidge(KernelRidge(RBFKernel(), 1.0), schedule), X, Y)


def restored(saved):
    return pickle.loads(pickle.dumps(saved))


def after(change, thing):
    """The thing after a change in place."""
    change(thing)
    return thing


def moved():
    return after(lambda state: state.move_ridge(0.02), exact())


class OfOnesOwn(confidence.Confidence):
    """A bound with a guarantee that does not say what its theorem covers."""

    guarantee = "holds for all points with probability at least 0.9"
    delta = 0.1

    def interval(self, state, X):
        mean, variance = state.predict(X)
        return mean - variance, mean + variance


def on(bound, state):
    """What is said of a confidence on a state: the guarantee, or the reasons why there is none."""
    return bound.guarantee_on(state) or "; ".join(bound.objections(state))


def said_by(acquisition):
    return acquisition.guarantee or "; ".join(acquisition.objections)


def model(kind="exact", **options):
    return MODELS[kind](X[:20], (1 + Y[:20] / 4).unsqueeze(-1), **options)


def cmm(made):
    return said_by(CMMUCB(made, **NUMBERS))


def changed(change, **options):
    return cmm(after(change, model(**options)))


def bent(made):
    made.input_transform.concentration0.data.fill_(3.0)


def fitted(made):
    fit_gpytorch_mll(ExactMarginalLogLikelihood(made.likelihood, made))


def crossed(state):
    state.schedule._lower = 10.0


def optimizer(method="cmm-ucb", setting=SETTING, **options):
    return kbo.Optimizer([(0.0, 1.0)] * 2, setting=setting, method=method, **options)


def result(change, **options):
    return result_of(after(change, optimizer(**options)), "", None).guarantee


def run_of(objective):
    found = kbo.minimize(objective, [(0.0, 1.0)] * 2, 4, setting=SETTING, max_failures=4)
    return found.guarantee


def in_flight(run, points=((0.1, 0.1), (0.5, 0.5), (0.9, 0.9)), told=(0, 2)):
    for x in points:
        run.run.begin(x)
    for i in told:
        run.tell(points[i], 0.1 * (1 + i))


def at_one_point(run):
    in_flight(run, [(0.5, 0.5)] * 2, (0, 1))


def pruned(run):
    run.prune(run.begin())
    run.tell(run.ask(), 0.1)


def in_optuna(*order):
    """What is said of two trials in Optuna that end in this order."""
    study = optuna.create_study(sampler=KBOSampler(setting=SETTING))
    space = {name: optuna.distributions.FloatDistribution(0, 1) for name in "xy"}
    trials = [study.ask(space) for _ in range(2)]
    for i in order:
        study.tell(trials[i], 0.1)
    return study.sampler.guarantee(study)


def pending(rule):
    return said_by(after(lambda acquisition: acquisition.set_X_pending(X[:1]), rule(model(), AY)))


def at_other_points():
    bound, by_number, state = FiniteSet(X[:20], 0.1), FiniteSet(20, 0.1), exact()
    bound.interval(state, X[:3].flip(0).repeat(2, 1))
    assert bound.guarantee_on(state)
    by_number.interval(state, X[:20])
    assert by_number.guarantee_on(state)
    by_number.interval(state, X[20:22])
    assert not by_number.guarantee_on(state)
    found = pareto_set([state, state], [FiniteSet(X[:20], 0.1), bound], X[:22], 0.1)
    assert found.guarantee is None
    return on(copy.deepcopy(bound), state)


def of_variances():
    variances = torch.full((60, 1), 0.04).double()
    return KernelRidgeGP(X, Y.unsqueeze(-1), RBFKernel(), 0.04, train_Yvar=variances).state


ROWS = {
    "float32": {
        "the data are in float32": lambda: on(
            CMM, fed(KernelRidge(RBFKernel(), 0.01), X.float(), Y.float())
        ),
    },
    "rounding": {"points far from zero": lambda: on(AY, restored(rough(X + 1e13)))},
    "takes its constants from the data": {
        "targets standardised by their own mean after a fixed transform": lambda: cmm(
            model(outcome_transform=chain(a=Log(), b=Standardize(1)))
        ),
        "inputs scaled by their own range": lambda: cmm(model(input_transform=Normalize(2))),
    },
    "changed after the model had data": {
        "a warp of the inputs changed after data": lambda: changed(
            bent, input_transform=Warp(2, [0, 1], bounds=BOX)
        ),
        "a kernel fitted by `fit_gpytorch_mll`": lambda: changed(fitted),
    },
    "come from a model that was fitted to data": {
        "a fitted `SingleTaskGP` taken over": lambda: cmm(
            KernelRidgeGP.from_gp(SingleTaskGP(X, Y.unsqueeze(-1)).eval())
        ),
    },
    "chosen after the first observation": {
        "`state.move_ridge` after data, saved and loaded": lambda: on(AY, restored(moved())),
        "a ridge that follows the data, fixed-ridge theorem": lambda: on(AY, adaptive()),
        "the same, a bound of your own without `covers`": lambda: on(OfOnesOwn(), moved()),
    },
    "hypothetical": {
        "hypothetical observations": lambda: on(CMM, Hypothetical(exact(), X[:2])),
        "the same, the noise level bounded online": lambda: on(
            ADAPTIVE, Hypothetical(adaptive(), X[:2])
        ),
        "fantasies of BoTorch": lambda: cmm(
            model().condition_on_observations(X[:3, None], X[:3, None, :1])
        ),
    },
    "X_pending is set": {
        "pending points in an acquisition function": lambda: pending(KernelUCB),
        "the same in Thompson sampling": lambda: pending(InflatedThompsonSampling),
    },
    "error of the dictionary": {
        "a sketch under a theorem about exact posteriors": lambda: on(FiniteSet(20, 0.1), sketch()),
        "a dictionary that misses too much for BKB": lambda: on(
            confidence.BKB(**NUMBERS), sketch()
        ),
    },
    "points other than": {"other points than those of a bound for a finite set": at_other_points},
    "random seed": {
        "the same values again at the same points": lambda: on(AY, fed(exact(), X[:2], Y[:2]))
    },
    "variances that were given": {
        "noise variances were given, and are larger": lambda: on(AY, of_variances())
    },
    "no theorem covers": {
        "a width chosen by hand": lambda: on(confidence.FixedWidth(2.0), exact()),
        "a norm bound that follows the data": lambda: on(confidence.UnknownNorm(0.1, 0.1), exact()),
        "Algorithm 1 of chaining as a bound": lambda: on(
            confidence.Chaining(0.1, points=X), exact()
        ),
    },
    "data refute": {
        "a norm bound that is too small": lambda: cmm(MODELS["exact"](X, 100 * Y[:, None])),
    },
    "contradict each other": {
        "noise bounds that contradict each other": lambda: on(
            AdaptiveMixture(), after(crossed, adaptive("mixture"))
        )
    },
    "has not reported: 1": {
        "a value of a trial that a later one has passed": lambda: result(in_flight)
    },
    "trials failed: ": {
        "a trial failed with an exception": lambda: run_of(lambda x: 1 / 0 if x[0] > 0.5 else 0.0),
        "a trial returned NaN": lambda: run_of(lambda x: math.nan if x[0] > 0.5 else 0.0),
    },
    "stopped early: 1": {"a trial was stopped early": lambda: result(pruned)},
    "ran at once": {
        "trials at one point at once, noise level bounded online": lambda: result(
            at_one_point, method="dmm-ucb-adaptive", setting=ONLINE
        )
    },
    "that ended after later ones: 1": {
        "Optuna: a trial that ended after a later one": lambda: in_optuna(1, 0)
    },
}
"""A part of what kbo says: the assumptions that are broken, and what is done."""

NAMED = {
    "a kernel that is too smooth, not refuted by the data": "if the function has norm at most 5",
    "a noise level that is too small": "the noise is 0.1-sub-Gaussian",
    "noise that depends on earlier noise": "the noise is 0.1-sub-Gaussian given the past",
    "a kernel that was fitted to the same data by other software": "were chosen without these data",
}
"""Assumptions that no data can refute, and the words in which every guarantee names them."""


@pytest.mark.parametrize(
    ("name", "words"), [(name, words) for words, cases in ROWS.items() for name in cases]
)
@pytest.mark.filterwarnings("ignore")
def test_no_guarantee_is_kept_silently(name, words):
    said = ROWS[words][name]()
    assert words in said
    certified = "with probability at least" in said
    assert not certified or "has not reported: 1" in said  # that bound does not use what waits


def test_what_cannot_be_detected_is_named():
    for words in NAMED.values():
        assert words in CMM.guarantee_on(exact())
        assert words in AY.guarantee_on(exact())


def test_bounds_over_a_finite_set_name_the_assumption_that_the_points_were_fixed():
    for bound in (FiniteSet(X, 0.1), confidence.Chaining(0.1, True, X[:20])):
        assert "points were chosen without these data" in bound.guarantee


def test_what_breaks_no_assumption_keeps_the_guarantee():
    repeats = fed(exact(), X[:5], Y[:5] + 0.01)
    pairs = [
        (CMM, repeats),
        (AY, repeats),
        (AY, restored(exact())),
        (CMM, moved()),
        (SelfNormalized(**NUMBERS, least_ridge=1e-6), adaptive()),
        (CMM, sketch()),
        (SelfNormalized(0.2, 5.0, 0.1), of_variances()),
        (AY, rough(X + 1e3)),
    ]
    assert all(bound.guarantee_on(state) for bound, state in pairs)
    logged = model(outcome_transform=chain(log=Log()))
    scaled = model(input_transform=Normalize(2, bounds=BOX))
    loaded = model()
    loaded.load_state_dict(model().state_dict())
    for made, again in ((logged, Y[:1].exp()), (scaled, Y[:1] + 0.01), (loaded, Y[:1] + 0.01)):
        assert cmm(made).startswith("holds")
        assert cmm(made.condition_on_observations(X[:1], again.unsqueeze(-1))).startswith("holds")
    empty = KernelRidgeGP(X[:0], X[:0, :1], RBFKernel(), 0.01)
    empty.covar_module.lengthscale = 0.3  # there are no data yet
    assert cmm(empty.condition_on_observations(X, Y.unsqueeze(-1))).startswith("holds")
    declared = replace(SETTING, completion_independent_of_noise=True)
    assert result(in_flight, setting=declared).startswith("certified")
    assert in_optuna(0, 1).startswith("certified")


def test_every_model_tells_what_was_fitted_or_changed():
    for kind in MODELS:
        made = model(kind)
        assert cmm(made).startswith("holds")
        assert "takes its constants" in cmm(model(kind, outcome_transform=Standardize(1)))
        made.ridge.data.fill_(0.2)
        assert "changed after" in cmm(made)
        assert "changed after" in cmm(made.condition_on_observations(X[:1], X[:1, :1]))


@pytest.mark.parametrize("name", STATES)
def test_every_state_knows_its_kernel_its_ridge_and_values_that_are_no_news(name):
    state = fed(STATES[name](MaternKernel(nu=0.5), 0.01))
    fed(state, X[:2], Y[:2])
    for twin in (state, copy.deepcopy(state), state.fork()):
        assert "random seed" in on(AY, twin)
        for attribute in ("ridge", "kernel"):
            with pytest.raises((kbo.KboError, AttributeError), match=attribute):
                setattr(twin, attribute, 7.0)
    assert AY.guarantee_on(fed(state, X[:1], Y[:1] + 0.01))


def test_numbers_that_a_statement_names_are_read_only():
    for bound in (AY, FiniteSet(X, 0.1), NoiseBounds(5.0, 0.1, 1.0), adaptive().schedule):
        for twin in (bound, copy.deepcopy(bound), copy.copy(bound)):
            for attribute in ("noise_std", "norm_bound", "delta", "upper", "guarantee"):
                if hasattr(twin, attribute):
                    with pytest.raises((kbo.KboError, AttributeError), match=attribute):
                        setattr(twin, attribute, 0.01)
    with pytest.raises(kbo.KboError, match="ridge"):
        adaptive().ridge = 1.0


def test_points_outside_of_a_set_are_an_objection_until_the_next_observation():
    bound, state = FiniteSet(X[:20], 0.1), exact()
    bound.interval(state, X[20:22])
    assert bound.objections(state)
    assert not bound.objections(rough(X))
    fed(state, X[:1], Y[:1] + 0.01)
    assert bound.guarantee_on(state)


def test_a_set_of_unknown_points_is_counted_over_all_calls_and_observations():
    bound, state = FiniteSet(20, 0.1), exact()
    for i in range(20):
        bound.interval(state, X[i : i + 1])
    fed(state, X[:1], Y[:1] + 0.01)
    assert bound.guarantee_on(state)
    bound.interval(state, X[20:21])
    fed(state, X[:1], Y[:1] + 0.02)
    assert not bound.guarantee_on(state)


# States that are whole in part


def test_noise_bounds_of_other_data_than_the_state_are_no_guarantee():
    for variant, bound in (("tight+grid", ADAPTIVE), ("mixture", AdaptiveMixture("amm"))):
        state = adaptive(variant)
        assert not bound.objections(state)
        state.state.update(X[:1], Y[:1])  # beside its schedule, as an interrupt leaves it
        assert "noise bounds have seen 60 of 61" in " ".join(bound.objections(state))


def interrupted(*arguments):
    raise KeyboardInterrupt


@pytest.mark.parametrize("name", STATES)
def test_an_interrupted_update_leaves_no_answers_of_before(name, monkeypatch):
    state = fed(STATES[name](RBFKernel(), 0.01))
    state.predict(X[:3])
    version = state.version
    monkeypatch.setattr(kbo.regression.exact.observations, "merge", interrupted, raising=True)
    monkeypatch.setattr(kbo.regression.sketch.rows.Rows, "extend", interrupted, raising=True)
    with pytest.raises(KeyboardInterrupt):
        state.update(X[20:25], Y[20:25], torch.full((5,), 9.0, dtype=torch.float64))
    assert state.version != version


def test_hypothetical_points_of_a_batch_are_marked_in_every_part_of_it():
    batch = BatchView(exact(), X[:9])
    batch.observe(0)
    for state in (batch, batch.after, batch.fork_frozen()):
        assert "hypothetical" in " ".join(AY.objections(state))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for cases in ROWS.values():
        for name, call in cases.items():
            print(f"| {name} | {call().splitlines()[0][:260]} |")
    for name, words in NAMED.items():
        print(f"| {name} | the guarantee says: ... {words} ... |")


class Refused(OfOnesOwn):
    """A bound whose theorem covers nothing."""

    def objections(self, state):
        return ["its condition does not hold"]


class Around(OfOnesOwn):
    """A bound from another one, whose author does not mention that one's objections."""

    def __init__(self, bound):
        self.bound = bound


def test_a_bound_from_another_one_has_the_objections_of_that_one():
    assert Around(OfOnesOwn()).guarantee_on(exact()) is not None
    assert Around(Refused()).objections(exact()) == ["its condition does not hold"]
