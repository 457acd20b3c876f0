"""What kbo says when an assumption of a theorem is broken: no row keeps its guarantee silently.

``python -m tests.test_broken_assumptions`` prints the whole of the table in docs/reliability.md.
"""

from __future__ import annotations

import copy
import math
import pickle
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import optuna
import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import ChainedOutcomeTransform as chain
from botorch.models.transforms import Log, Normalize, Standardize, Warp
from gpytorch.kernels import MaternKernel, RBFKernel, RQKernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

import kbo
from kbo import AdaptiveRidge, KernelRidge, NystromRidge, confidence
from kbo.acquisition import CMMUCB, InflatedThompsonSampling, KernelUCB
from kbo.bandit import pareto_set
from kbo.confidence import (
    AdaptiveMixture,
    AdaptiveSelfNormalized,
    Confidence,
    FiniteSet,
    MartingaleMixture,
    NoiseBounds,
    SelfNormalized,
)
from kbo.integrations.optuna import KBOSampler
from kbo.kernels import freeze
from kbo.models import KernelRidgeGP, NystromGP, PosteriorGP
from kbo.optimize.result import result_of
from kbo.regression import (
    BatchView,
    FixedDictionary,
    GreedyDictionary,
    Hypothetical,
    LeverageResampling,
    Posterior,
)
from tests.dense_noise import noise_bounds

NUMBERS = {"noise_std": 0.1, "norm_bound": 5.0, "delta": 0.1}
CMM, AY, ADAPTIVE = (
    MartingaleMixture(**NUMBERS),
    SelfNormalized(**NUMBERS),
    AdaptiveSelfNormalized(),
)
SETTING = kbo.Certified(RBFKernel().double(), **NUMBERS)
ONLINE = replace(SETTING, noise_std=None, noise_upper=1.0)
BOX = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
X = torch.rand(60, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = torch.sin(3 * X).sum(-1) + 0.1 * torch.randn(
    60, generator=torch.Generator().manual_seed(1), dtype=torch.float64
)

STATES: dict[str, Callable[..., Posterior]] = {
    "exact": KernelRidge,
    "fixed": lambda kernel, ridge: NystromRidge(kernel, ridge, FixedDictionary(X[:5])),
    "greedy": lambda kernel, ridge: NystromRidge(kernel, ridge, GreedyDictionary(0.1)),
    "resampled": lambda kernel, ridge: NystromRidge(kernel, ridge, LeverageResampling(2.0)),
}
MODELS: dict[str, Callable[..., KernelRidgeGP]] = {
    "exact": lambda X, Y, **options: KernelRidgeGP(X, Y, RBFKernel(), 0.01, **options),
    "sketched": lambda X, Y, **options: NystromGP(X, Y, RBFKernel(), 0.01, **options),
    "any": lambda X, Y, **options: PosteriorGP(X, Y, KernelRidge(RBFKernel(), 0.01), **options),
}


def fed(state: Posterior, X: Tensor = X[:20], y: Tensor = Y[:20]) -> Posterior:
    state.update(X, y)
    return state


def exact() -> Posterior:
    return fed(KernelRidge(RBFKernel(), 0.01))


def rough(X: Tensor, y: Tensor = Y) -> Posterior:
    return fed(KernelRidge(MaternKernel(nu=0.5), 0.01), X, y)


def sketch() -> Posterior:
    return fed(NystromRidge(MaternKernel(nu=0.5), 0.01, FixedDictionary(X[:3])))


def adaptive(variant: str = "tight+grid") -> AdaptiveRidge:
    return fed(
        AdaptiveRidge(KernelRidge(RBFKernel(), 1.0), noise_bounds(variant, 5.0, 0.1, 1.0)), X, Y
    )


def restored(saved: Posterior) -> Posterior:
    return pickle.loads(pickle.dumps(saved))


def after(change: Callable, thing):
    """The thing after a change in place."""
    change(thing)
    return thing


def moved() -> Posterior:
    return after(lambda state: state.move_ridge(0.02), exact())


def on(bound: Confidence, state: Posterior) -> str:
    """What is said of a confidence on a state: the guarantee, or the reasons why there is none."""
    return bound.guarantee_on(state) or "; ".join(bound.objections(state))


def said_by(acquisition) -> str:
    return acquisition.guarantee or "; ".join(acquisition.objections)


def model(kind: str = "exact", **options) -> KernelRidgeGP:
    return MODELS[kind](X[:20], (1 + Y[:20] / 4).unsqueeze(-1), **options)


def cmm(made) -> str:
    return said_by(CMMUCB(made, **NUMBERS))


def changed(change: Callable, **options) -> str:
    return cmm(after(change, model(**options)))


def shorter(made: KernelRidgeGP) -> None:
    made.covar_module.lengthscale = 0.3


def stretched(made: KernelRidgeGP) -> None:
    made.input_transform._coefficient = 2 * made.input_transform._coefficient


def bent(made: KernelRidgeGP) -> None:
    made.input_transform.concentration0.data.fill_(3.0)


def fitted(made: KernelRidgeGP) -> None:
    fit_gpytorch_mll(ExactMarginalLogLikelihood(made.likelihood, made))


def crossed(state: AdaptiveRidge) -> None:
    state.schedule._lower = 10.0


def raised(call: Callable) -> str:
    with pytest.raises(kbo.KboError) as error:
        call()
    return f"{type(error.value).__name__}: {error.value}"


def optimizer(
    method: str = "cmm-ucb", setting: kbo.Certified = SETTING, **options
) -> kbo.Optimizer:
    return kbo.Optimizer([(0.0, 1.0)] * 2, setting=setting, method=method, **options)


def result(change: Callable, **options) -> str:
    return result_of(after(change, optimizer(**options)), "", None).guarantee


def run_of(objective: Callable, **options) -> str:
    return kbo.minimize(
        objective, [(0.0, 1.0)] * 2, 4, setting=SETTING, max_failures=4, **options
    ).guarantee


def slow() -> Callable:
    waits = iter([0.0, 1.0, 0.0, 0.0])
    return lambda x: time.sleep(next(waits)) or 0.0


def resumed(first: Callable, then: Callable, **other) -> str:
    """What is said of a run that was begun, changed, closed, and resumed with other arguments from its journal."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.jsonl"
        after(first, optimizer(journal=path)).close()
        arguments = {"bounds": [(0.0, 1.0)] * 2, "setting": SETTING, "method": "cmm-ucb"} | other
        run = after(then, kbo.Optimizer(**arguments, journal=path))
        run.close()
        return result_of(run, "", None).guarantee


def refused(**other) -> str:
    return raised(lambda: resumed(lambda run: None, lambda run: None, **other))


def in_flight(run: kbo.Optimizer, points=((0.1, 0.1), (0.5, 0.5), (0.9, 0.9)), told=(0, 2)) -> None:
    for x in points:
        run.run.begin(x)
    for i in told:
        run.tell(points[i], 0.1 * (1 + i))


def at_one_point(run: kbo.Optimizer) -> None:
    in_flight(run, [(0.5, 0.5)] * 2, (0, 1))


def pruned(run: kbo.Optimizer) -> None:
    run.prune(run.begin())
    run.tell(run.ask(), 0.1)


def in_optuna(late: bool, pruned: bool) -> str:
    study = optuna.create_study(sampler=KBOSampler(setting=SETTING))
    space = {name: optuna.distributions.FloatDistribution(0, 1) for name in "xy"}
    trials = [study.ask(space) for _ in range(2)]
    if late:
        trials.reverse()
    study.tell(trials[0], 0.1)
    study.tell(
        trials[1], None if pruned else 0.2, optuna.trial.TrialState.PRUNED if pruned else None
    )
    return study.sampler.guarantee(study)


def pending(rule) -> str:
    return said_by(after(lambda acquisition: acquisition.set_X_pending(X[:1]), rule(model(), AY)))


def gp(outcome_transform) -> SingleTaskGP:
    return SingleTaskGP(X, Y.unsqueeze(-1), outcome_transform=outcome_transform).eval()


def reused(transform) -> KernelRidgeGP:
    model(outcome_transform=transform)
    return model(outcome_transform=transform)


def at_other_points() -> str:
    bound, by_number, state = FiniteSet(X[:20], 0.1), FiniteSet(20, 0.1), exact()
    bound.interval(state, X[:3].flip(0).repeat(2, 1))
    assert bound.guarantee_on(state)
    by_number.interval(state, X[:22])
    assert not by_number.guarantee_on(state)
    assert (
        pareto_set([state, state], [FiniteSet(X[:20], 0.1), bound], X[:22], 0.1).guarantee is None
    )
    return on(copy.deepcopy(bound), state)


def of_variances() -> Posterior:
    return KernelRidgeGP(
        X, Y.unsqueeze(-1), RBFKernel(), 0.04, train_Yvar=torch.full((60, 1), 0.04).double()
    ).state


ROWS: dict[str, dict[str, Callable[[], str]]] = {
    "float32": {
        "the data are in float32": lambda: on(
            CMM, fed(KernelRidge(RBFKernel(), 0.01), X.float(), Y.float())
        ),
        "a model was moved to float32": lambda: changed(lambda m: m.float()),
    },
    "rounding": {"points far from zero": lambda: on(AY, restored(rough(X + 1e13)))},
    "takes its constants from the data": {
        "targets standardised by their own mean": lambda: cmm(
            model(outcome_transform=Standardize(1))
        ),
        "the same after a fixed transform": lambda: cmm(
            model(outcome_transform=chain(a=Log(), b=Standardize(1)))
        ),
        "the same with a transform that another model had": lambda: cmm(reused(Standardize(1))),
        "the same, fitted by a `SingleTaskGP`": lambda: cmm(
            model(outcome_transform=gp(Standardize(1)).outcome_transform)
        ),
        "inputs scaled by their own range": lambda: cmm(model(input_transform=Normalize(2))),
    },
    "changed after the model had data": {
        "`model.ridge` changed after data": lambda: changed(lambda m: m.ridge.data.fill_(0.1)),
        "the kernel's lengthscale changed after data": lambda: changed(shorter),
        "the same by `load_state_dict`": lambda: changed(
            lambda m: m.load_state_dict(KernelRidgeGP(X, X[:, :1], RBFKernel(), 0.5).state_dict())
        ),
        "an input transform changed after data": lambda: changed(
            stretched, input_transform=Normalize(2, bounds=BOX)
        ),
        "a warp of the inputs changed after data": lambda: changed(
            bent, input_transform=Warp(2, [0, 1], bounds=BOX)
        ),
        "a kernel fitted by `fit_gpytorch_mll`": lambda: changed(fitted),
    },
    "come from a model that was fitted to data": {
        "a fitted `SingleTaskGP` taken over": lambda: cmm(KernelRidgeGP.from_gp(gp(None))),
    },
    "chosen after the first observation": {
        "`state.move_ridge` after data, fixed-ridge theorem": lambda: on(AY, moved()),
        "the same, saved and loaded": lambda: on(AY, restored(moved())),
        "a ridge that follows the data, the same": lambda: on(AY, adaptive()),
    },
    "hypothetical": {
        "hypothetical observations": lambda: on(CMM, Hypothetical(exact(), X[:2])),
        "the same, the noise level bounded online": lambda: on(
            ADAPTIVE, Hypothetical(adaptive(), X[:2])
        ),
        "a batch with points chosen": lambda: on(
            CMM, after(lambda view: view.observe(0), BatchView(exact(), X))
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
        "the same for K-UCB": lambda: on(confidence.EKUCB(**NUMBERS, projection=0.0), sketch()),
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
        "a norm bound that is too small": lambda: raised(
            lambda: CMM.interval(rough(X, 100 * Y), X)
        ),
        "the same, the guarantee of an acquisition function": lambda: cmm(
            MODELS["exact"](X, 100 * Y[:, None])
        ),
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
        "a trial ran out of time": lambda: run_of(slow(), timeout=0.1),
    },
    "lost and started again: 1": {
        "a trial was killed and repeated": lambda: resumed(
            lambda run: run.ask(), lambda run: run.tell(run.ask(), 0.1)
        )
    },
    "stopped early: 1": {"a trial was stopped early": lambda: result(pruned)},
    "ask did not return: 1": {
        "a value at parameters that `ask` did not return": lambda: result(
            lambda run: run.tell([0.5, 0.5], 0.1)
        )
    },
    "ran at once": {
        "trials at one point at once, noise level bounded online": lambda: result(
            at_one_point, method="dmm-ucb-adaptive", setting=ONLINE
        )
    },
    "that ended after later ones: 1": {
        "Optuna: a trial that ended after a later one": lambda: in_optuna(True, False)
    },
    "failed or pruned: 1": {"Optuna: a pruned trial": lambda: in_optuna(False, True)},
    "belongs to another problem": {
        "resumed with other bounds of the space": lambda: refused(bounds=[(0.0, 2.0)] * 2),
        "resumed with another kernel": lambda: refused(
            setting=replace(SETTING, kernel=MaternKernel().double())
        ),
        "resumed with another norm bound": lambda: refused(
            setting=replace(SETTING, norm_bound=9.0)
        ),
    },
}
"""A part of what kbo says: the assumptions that are broken, and what is done."""

NAMED = {
    "a kernel that is too smooth, not refuted by the data": "if the function has norm at most 5",
    "a noise level that is too small": "the noise is 0.1-sub-Gaussian",
    "noise that depends on earlier noise": "the noise is 0.1-sub-Gaussian given the past",
    "a kernel that was fitted to the same data by other software": "kernel and numbers were fixed beforehand",
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


def test_what_breaks_no_assumption_keeps_the_guarantee():
    state = fed(exact(), X[:5], Y[:5] + 0.01)  # repeats
    least = SelfNormalized(**NUMBERS, least_ridge=1e-6)
    pairs = [
        (CMM, state),
        (AY, state),
        (AY, restored(exact())),
        (CMM, moved()),
        (least, adaptive()),
        (CMM, sketch()),
    ]
    assert all(bound.guarantee_on(one) for bound, one in pairs)
    assert SelfNormalized(0.2, 5.0, 0.1).guarantee_on(of_variances())
    assert AY.guarantee_on(rough(X + 1e3))
    for made in (
        model(),
        model(outcome_transform=chain(log=Log())),
        model(input_transform=Normalize(2, bounds=BOX)),
        after(lambda made: made.load_state_dict(model().state_dict()), model()),
    ):
        assert cmm(made).startswith("holds")
        again = (
            Y[:1].exp() if hasattr(made, "outcome_transform") else Y[:1] + 0.01
        )  # by the noise, not by more
        assert cmm(made.condition_on_observations(X[:1], again.unsqueeze(-1))).startswith("holds")
    empty = KernelRidgeGP(X[:0], X[:0, :1], RBFKernel(), 0.01)
    empty.covar_module.lengthscale = 0.3  # there are no data yet
    assert cmm(empty.condition_on_observations(X, Y.unsqueeze(-1))).startswith("holds")
    declared = replace(SETTING, completion_independent_of_noise=True)
    assert result(in_flight, setting=declared).startswith("certified")
    assert in_optuna(False, False).startswith("certified")


@pytest.mark.parametrize("kind", MODELS)
def test_every_model_tells_what_was_fitted_or_changed(kind):
    assert cmm(model(kind)).startswith("holds")
    assert "takes its constants" in cmm(model(kind, outcome_transform=Standardize(1)))
    made = after(lambda made: made.ridge.data.fill_(0.2), model(kind))
    assert "changed after" in cmm(made)
    assert "changed after" in cmm(made.condition_on_observations(X[:1], X[:1, :1]))


@pytest.mark.parametrize("name", STATES)
def test_every_state_knows_its_kernel_its_ridge_and_values_that_are_no_news(name):
    state = fed(STATES[name](MaternKernel(nu=0.5), 0.01))
    fed(state, X[:2], Y[:2])
    twin = copy.deepcopy(state)
    assert all("random seed" in on(AY, each) for each in (state, twin, state.fork()))
    assert AY.guarantee_on(fed(state, X[:1], Y[:1] + 0.01))
    for view, attribute in (
        (state, "ridge"),
        (state.fork(), "kernel"),
        (copy.deepcopy(state), "ridge"),
    ):
        with pytest.raises((kbo.KboError, AttributeError), match=attribute):
            setattr(view, attribute, 7.0)


@pytest.mark.parametrize(
    "bound",
    [
        *(
            AY,
            CMM,
            FiniteSet(X, 0.1),
            confidence.ImprovedGPUCB(**NUMBERS, eta=0.1),
            confidence.UnknownNorm(0.1, 0.1),
        ),
        *(
            confidence.BKB(**NUMBERS),
            confidence.EKUCB(*NUMBERS.values(), 0.0),
            NoiseBounds(5.0, 0.1, 1.0),
        ),
        *(confidence.Chaining(0.1, rigorous=True, points=X), adaptive().schedule),
    ],
    ids=lambda bound: type(bound).__name__,
)
def test_numbers_that_a_statement_names_are_read_only(bound):
    for twin in (bound, copy.deepcopy(bound), copy.copy(bound)):
        for attribute in ("noise_std", "norm_bound", "delta", "upper", "guarantee"):
            if hasattr(twin, attribute):
                with pytest.raises((kbo.KboError, AttributeError), match=attribute):
                    setattr(twin, attribute, 0.01)


def test_the_ridge_of_a_schedule_is_read_only():
    with pytest.raises(kbo.KboError, match="ridge"):
        adaptive().ridge = 1.0


class Subclass(MaternKernel):
    """A subclass that changes nothing."""


@pytest.mark.parametrize(
    "kernel", [Subclass(nu=0.5), RQKernel(), MaternKernel(nu=0.5) * RQKernel()]
)
def test_distances_of_all_kernels_come_from_differences(kernel):
    """Else points that almost coincide would have covariances that rounding invents."""
    near = X + 1e-9
    r = (X.unsqueeze(1) - near.unsqueeze(0)).norm(dim=-1) / 0.6931471805599453
    exact = {
        "Subclass": (-r).exp(),
        "RQKernel": 1 / (1 + r**2 / (2 * 0.6931471805599453)) ** 0.6931471805599453,
    }
    exact["ProductKernel"] = exact["Subclass"] * exact["RQKernel"]
    torch.testing.assert_close(
        freeze(kernel, X)(X, near), exact[type(kernel).__name__], rtol=1e-12, atol=1e-14
    )


# States that are whole in part


@pytest.mark.parametrize("variant", ["tight+grid", "mixture"])
def test_noise_bounds_of_other_data_than_the_state_are_no_guarantee(variant):
    bound = ADAPTIVE if variant == "tight+grid" else AdaptiveMixture("amm")
    state, other = adaptive(variant), adaptive(variant)
    assert not bound.objections(state)
    other.state.update(X[:1], Y[:1])  # beside its schedule, as an interrupt leaves it
    assert "noise bounds have seen 60 of 61" in " ".join(bound.objections(other))


@pytest.mark.parametrize("name", STATES)
def test_an_interrupted_update_leaves_no_answers_of_before(name, monkeypatch):
    state = fed(STATES[name](RBFKernel(), 0.01))
    state.predict(X[:3])
    version = state.version
    monkeypatch.setattr(kbo.regression.observations, "merge", interrupted, raising=True)
    monkeypatch.setattr(kbo.regression.sketch.rows.Rows, "extend", interrupted, raising=True)
    with pytest.raises(KeyboardInterrupt):
        state.update(X[20:25], Y[20:25], torch.full((5,), 9.0, dtype=torch.float64))
    assert state.version != version


def interrupted(*arguments):
    raise KeyboardInterrupt


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
