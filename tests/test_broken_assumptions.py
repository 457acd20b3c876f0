"""What kbo says when an assumption of a theorem is broken: no row keeps its guarantee silently.

``python -m tests.test_broken_assumptions`` prints the table of docs/validity.md.
"""

from __future__ import annotations

import dataclasses
import math
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import optuna
import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import ChainedOutcomeTransform, Log, Normalize, Standardize, Warp
from gpytorch.kernels import MaternKernel, RBFKernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

import kbo
from kbo.acquisition import CMMUCB, InflatedThompsonSampling, KernelUCB
from kbo.confidence import (
    BKB,
    KUCB,
    AdaptiveMixture,
    Chaining,
    Confidence,
    FiniteSet,
    FixedWidth,
    MartingaleMixture,
    NoiseBounds,
    SelfNormalized,
    UnknownNorm,
)
from kbo.integrations.optuna import KBOSampler
from kbo.models import KernelRidgeGP, NystromGP, PosteriorGP
from kbo.optimize.result import result_of
from kbo.regression import AdaptiveRidge, BatchView, FixedDictionary, Hypothetical, Posterior

NUMBERS = {"noise_std": 0.1, "norm_bound": 5.0, "delta": 0.1}
CMM, AY = MartingaleMixture(**NUMBERS), SelfNormalized(**NUMBERS)
SETTING = kbo.Certified(RBFKernel().double(), **NUMBERS)
BOX = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
FITTED = "takes its constants from the data"
CHANGED = "changed after the model had data"


def data(n: int = 20, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(n, 2, generator=generator, dtype=torch.float64)
    return X, scale * torch.sin(3 * X).sum(-1) + 0.1 * torch.randn(n, generator=generator, dtype=torch.float64)


def exact(dtype=torch.float64) -> kbo.KernelRidge:
    state = kbo.KernelRidge(RBFKernel(), 0.01)
    X, y = data()
    state.update(X.to(dtype), y.to(dtype))
    return state


def sketch(m: int = 3, dtype=torch.float64) -> kbo.NystromRidge:
    X, y = data()
    state = kbo.NystromRidge(MaternKernel(nu=0.5), 0.01, FixedDictionary(X[:m].to(dtype)))
    state.update(X.to(dtype), y.to(dtype))
    return state


def said_of(confidence: Confidence, state: Posterior) -> str:
    """What is said of a confidence on a state: the guarantee, or the reasons why there is none."""
    return confidence.guarantee_on(state) or "; ".join(confidence.objections(state))


def said_by(acquisition) -> str:
    return acquisition.guarantee or "; ".join(acquisition.objections)


def model(**options) -> KernelRidgeGP:
    X, y = data()
    return KernelRidgeGP(X, (1 + y / 4).unsqueeze(-1), RBFKernel(), 0.01, **options)


def cmm(made) -> str:
    return said_by(CMMUCB(made, **NUMBERS))


def changed(change: Callable, made: KernelRidgeGP | None = None) -> str:
    made = made or model()
    change(made)
    return cmm(made)


def raised(call: Callable) -> str:
    with pytest.raises(kbo.KboError) as error:
        call()
    return f"{type(error.value).__name__}: {error.value}"


def optimizer(method: str = "cmm-ucb", setting: kbo.Certified = SETTING, **options) -> kbo.Optimizer:
    return kbo.Optimizer([(0.0, 1.0)] * 2, setting=setting, method=method, **options)


def run_of(objective: Callable, n: int = 4, **options) -> str:
    return kbo.minimize(objective, [(0.0, 1.0)] * 2, n, setting=SETTING, max_failures=n, **options).guarantee


def lost_and_repeated() -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.jsonl"
        first = optimizer(journal=path)
        first.ask()
        first.close()
        second = optimizer(journal=path)
        second.tell(second.ask(), 0.1)
        second.close()
        return result_of(second, "", None).guarantee


def resumed_with(**other) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.jsonl"
        optimizer(journal=path).close()
        arguments = {"bounds": [(0.0, 1.0)] * 2, "setting": SETTING, "method": "cmm-ucb"} | other
        return raised(lambda: kbo.Optimizer(**arguments, journal=path))


def in_flight(setting: kbo.Certified = SETTING, method: str = "cmm-ucb", told: tuple[int, ...] = (0, 2)) -> str:
    run, points = optimizer(method, setting), [[0.1, 0.1], [0.5, 0.5], [0.9, 0.9]]
    for x in points:
        run.expect(x)
    for i in told:
        run.tell(points[i], 0.1)
    return result_of(run, "", None).guarantee


def at_one_point() -> str:
    run = optimizer("dmm-ucb-adaptive", dataclasses.replace(SETTING, noise_std=None, noise_upper=1.0))
    for _ in range(2):
        run.expect([0.5, 0.5])
    for value in (0.2, 0.1):
        run.tell([0.5, 0.5], value)
    return result_of(run, "", None).guarantee


def stopped_early() -> str:
    run = optimizer()
    run.prune(run.begin())
    run.tell(run.ask(), 0.1)
    return result_of(run, "", None).guarantee


def told_unasked() -> str:
    run = optimizer()
    run.tell([0.5, 0.5], 0.1)
    return result_of(run, "", None).guarantee


def in_optuna(overtaken: bool, pruned: bool) -> str:
    study = optuna.create_study(sampler=KBOSampler(setting=SETTING))
    space = {name: optuna.distributions.FloatDistribution(0, 1) for name in "xy"}
    trials = [study.ask(space) for _ in range(2)]
    if overtaken:
        trials.reverse()
    study.tell(trials[0], 0.1)
    study.tell(trials[1], None if pruned else 0.2, optuna.trial.TrialState.PRUNED if pruned else None)
    return study.sampler.guarantee(study)


def refuted(confidence: Confidence, y: Callable[[Tensor], Tensor], kernel=None, n: int = 60) -> str:
    X = torch.rand(n, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    state = kbo.KernelRidge(kernel or RBFKernel(), 0.01)
    state.update(X, y(X[:, 0]))
    return raised(lambda: confidence.interval(state, X))


def adaptive() -> AdaptiveRidge:
    bounds = NoiseBounds(5.0, 0.1, upper=1.0)
    state = AdaptiveRidge(kbo.KernelRidge(RBFKernel(), bounds.ridge), bounds)
    state.update(*data(60))
    return state


def contradicting() -> str:
    state = adaptive_mixture()
    state.schedule._lower = 10.0
    return said_of(AdaptiveMixture(), state)


def adaptive_mixture() -> AdaptiveRidge:
    bounds = NoiseBounds(5.0, 0.1, variant="mixture")
    state = AdaptiveRidge(kbo.KernelRidge(RBFKernel(), bounds.ridge), bounds)
    state.update(*data(60))
    return state


def moved(state: kbo.KernelRidge) -> kbo.KernelRidge:
    state.move_ridge(0.02)
    return state


def chosen() -> BatchView:
    view = BatchView(exact(), data()[0])
    view.observe(0)
    return view


def fantasies() -> str:
    made, X = model(), torch.rand(3, 1, 2, dtype=torch.float64)
    return cmm(made.condition_on_observations(X, torch.zeros(3, 1, 1, dtype=torch.float64)))


def restored(saved: kbo.KernelRidge, kernel=None) -> kbo.KernelRidge:
    state = kbo.KernelRidge(kernel or RBFKernel(), 0.01)
    state.load_state_dict(saved.state_dict())
    return state


def pending(rule) -> str:
    acquisition = rule(model(), AY)
    acquisition.set_X_pending(torch.rand(1, 2, dtype=torch.float64))
    return said_by(acquisition)


def steep() -> KernelRidgeGP:
    X, y = data()
    return KernelRidgeGP(X, 100 * y.unsqueeze(-1), RBFKernel(), 0.01)


def reused(transform) -> KernelRidgeGP:
    model(outcome_transform=transform)
    return model(outcome_transform=transform)


def fitted_elsewhere() -> KernelRidgeGP:
    X, y = data()
    return model(
        outcome_transform=SingleTaskGP(X, (1 + y / 4).unsqueeze(-1), outcome_transform=Standardize(1))
        .eval()
        .outcome_transform
    )


def warped() -> str:
    made = model(input_transform=Warp(d=2, indices=[0, 1], bounds=BOX))
    assert CMMUCB(made, **NUMBERS).guarantee
    made.input_transform.concentration0.data.fill_(3.0)
    return cmm(made)


def ridge_of(value: float) -> Callable:
    return lambda made: made.ridge.data.fill_(value)


def lengthscale_of(made: KernelRidgeGP) -> None:
    made.covar_module.lengthscale = 0.3


def loaded(made: KernelRidgeGP) -> None:
    X, y = data()
    made.load_state_dict(KernelRidgeGP(X, y.unsqueeze(-1), RBFKernel(), 0.5).state_dict())


def fitted(made: KernelRidgeGP) -> None:
    fit_gpytorch_mll(ExactMarginalLogLikelihood(made.likelihood, made))


def taken_over() -> str:
    X, y = data()
    return cmm(KernelRidgeGP.from_gp(SingleTaskGP(X, y.unsqueeze(-1), outcome_transform=None)))


def normalised(made: KernelRidgeGP) -> None:
    made.input_transform._coefficient = 2 * made.input_transform._coefficient


ROWS: list[tuple[str, Callable[[], str], str]] = [
    ("the data are in float32", lambda: said_of(CMM, exact(torch.float32)), "float32"),
    ("the same on a sketch", lambda: said_of(CMM, sketch(dtype=torch.float32)), "float32"),
    ("a model was moved to float32", lambda: changed(lambda made: made.float()), "float32"),
    ("targets standardised by their own mean", lambda: cmm(model(outcome_transform=Standardize(1))), FITTED),
    (
        "the same after a fixed transform",
        lambda: cmm(model(outcome_transform=ChainedOutcomeTransform(a=Log(), b=Standardize(1)))),
        FITTED,
    ),
    ("the same with a transform that another model had", lambda: cmm(reused(Standardize(1))), FITTED),
    ("the same, fitted by a `SingleTaskGP`", lambda: cmm(fitted_elsewhere()), FITTED),
    ("inputs scaled by their own range", lambda: cmm(model(input_transform=Normalize(2))), FITTED),
    ("`model.ridge` changed after data", lambda: changed(ridge_of(0.1)), CHANGED),
    ("the kernel's lengthscale changed after data", lambda: changed(lengthscale_of), CHANGED),
    ("the same by `load_state_dict`", lambda: changed(loaded), CHANGED),
    (
        "an input transform changed after data",
        lambda: changed(normalised, model(input_transform=Normalize(2, bounds=BOX))),
        CHANGED,
    ),
    ("a warp of the inputs changed after data", warped, CHANGED),
    ("a kernel fitted by `fit_gpytorch_mll`", lambda: changed(fitted), CHANGED),
    ("a fitted `SingleTaskGP` taken over", taken_over, "come from a model that was fitted to data"),
    (
        "`state.move_ridge` after data, fixed-ridge theorem",
        lambda: said_of(AY, moved(exact())),
        "chosen after the first observation",
    ),
    (
        "the same, saved and loaded",
        lambda: said_of(AY, restored(moved(exact()))),
        "chosen after the first observation",
    ),
    (
        "a saved state loaded under another kernel",
        lambda: said_of(CMM, restored(exact(), RBFKernel(lengthscale_prior=None).initialize(lengthscale=0.2))),
        "another kernel",
    ),
    ("a ridge that follows the data, the same", lambda: said_of(AY, adaptive()), "chosen after the first observation"),
    (
        "the same, Gaussian theorem",
        lambda: said_of(FiniteSet(20, 0.1), moved(exact())),
        "chosen after the first observation",
    ),
    ("hypothetical observations", lambda: said_of(CMM, Hypothetical(exact(), data(2)[0])), "hypothetical"),
    ("a batch with points chosen", lambda: said_of(CMM, chosen()), "hypothetical"),
    ("fantasies of BoTorch", fantasies, "hypothetical"),
    ("pending points in an acquisition function", lambda: pending(KernelUCB), "X_pending is set"),
    ("the same in Thompson sampling", lambda: pending(InflatedThompsonSampling), "X_pending is set"),
    (
        "a sketch under a theorem about exact posteriors",
        lambda: said_of(FiniteSet(20, 0.1), sketch()),
        "error of the dictionary",
    ),
    ("a dictionary that misses too much for BKB", lambda: said_of(BKB(**NUMBERS), sketch()), "error of the dictionary"),
    ("the same for K-UCB", lambda: said_of(KUCB(**NUMBERS), sketch()), "error of the dictionary"),
    ("a width chosen by hand", lambda: said_of(FixedWidth(2.0), exact()), "no theorem covers FixedWidth"),
    (
        "a norm bound that follows the data",
        lambda: said_of(UnknownNorm(0.1, 0.1), exact()),
        "no theorem covers UnknownNorm",
    ),
    (
        "Algorithm 1 of chaining as a bound",
        lambda: said_of(Chaining(0.1, points=data()[0]), exact()),
        "no theorem covers Chaining",
    ),
    ("a norm bound that is too small", lambda: refuted(CMM, lambda x: 50 * torch.sin(9 * x)), "RefutedAssumptions"),
    ("the same, the guarantee of an acquisition function", lambda: said_by(CMMUCB(steep(), **NUMBERS)), "data refute"),
    ("noise bounds that contradict each other", contradicting, "contradict each other"),
    ("a value overtaken by a later trial", in_flight, "has not reported: 1"),
    ("a trial failed with an exception", lambda: run_of(lambda x: 1 / 0 if x[0] > 0.5 else 0.0, 6), "trials failed: "),
    ("a trial returned NaN", lambda: run_of(lambda x: math.nan if x[0] > 0.5 else 0.0, 6), "trials failed: "),
    ("a trial ran out of time", lambda: run_of(slow(), timeout=0.1), "trials failed: "),
    ("a trial was killed and repeated", lost_and_repeated, "lost and started again: 1"),
    ("a trial was stopped early", stopped_early, "stopped early: 1"),
    ("a value at parameters that `ask` did not return", told_unasked, "ask did not return: 1"),
    ("trials at one point at once, noise level bounded online", at_one_point, "ran at once"),
    ("Optuna: overtaken by a later trial", lambda: in_optuna(True, False), "overtaken by later ones: 1"),
    ("Optuna: a pruned trial", lambda: in_optuna(False, True), "failed or pruned: 1"),
    ("resumed with other bounds of the space", lambda: resumed_with(bounds=[(0.0, 2.0)] * 2), "JournalError"),
    (
        "resumed with another kernel",
        lambda: resumed_with(setting=dataclasses.replace(SETTING, kernel=MaternKernel().double())),
        "JournalError",
    ),
    (
        "resumed with another norm bound",
        lambda: resumed_with(setting=dataclasses.replace(SETTING, norm_bound=9.0)),
        "JournalError",
    ),
]
"""Assumption that is broken, what is done, and a part of what kbo says."""

NAMED: list[tuple[str, str]] = [
    ("a kernel that is too smooth, not refuted by the data", "if the function has norm at most 5"),
    ("a noise level that is too small", "the noise is 0.1-sub-Gaussian"),
    ("noise that depends on earlier noise", "the noise is 0.1-sub-Gaussian given the past"),
    ("a kernel that was fitted to the same data by other software", "kernel and numbers were fixed beforehand"),
]
"""Assumptions that no data can refute, and the words in which every guarantee names them."""


def slow() -> Callable:
    waits = iter([0.0, 1.0, 0.0, 0.0])

    def objective(x):
        time.sleep(next(waits))
        return 0.0

    return objective


@pytest.mark.parametrize(("call", "words"), [pytest.param(*row[1:], id=row[0]) for row in ROWS])
@pytest.mark.filterwarnings("ignore")
def test_no_guarantee_is_kept_silently(call, words):
    said = call()
    assert words in said
    certified = "with probability at least" in said
    assert not certified or "has not reported: 1" in said  # that bound does not use what waits


@pytest.mark.parametrize(("_", "words"), NAMED)
def test_what_cannot_be_detected_is_named(_, words):
    assert words in CMM.guarantee_on(exact())
    assert words in AY.guarantee_on(exact())


def test_what_breaks_no_assumption_keeps_the_guarantee():
    X, y = data()
    state = exact()
    state.update(X[:5], y[:5] + 0.01)  # repeats
    assert CMM.guarantee_on(state)
    assert AY.guarantee_on(state)
    assert AY.guarantee_on(restored(exact()))
    assert CMM.guarantee_on(moved(exact()))  # a theorem about its own ridges
    assert CMM.guarantee_on(sketch())  # widened by what the dictionary misses
    fixed = ChainedOutcomeTransform(log=Log())
    for made in (model(), model(outcome_transform=fixed), model(input_transform=Normalize(2, bounds=BOX))):
        assert CMMUCB(made, **NUMBERS).guarantee
        again = made.condition_on_observations(X[:1], y[:1].exp().unsqueeze(-1))
        assert CMMUCB(again, **NUMBERS).guarantee
    same = model()
    same.load_state_dict(model().state_dict())
    assert CMMUCB(same, **NUMBERS).guarantee
    empty = KernelRidgeGP(X[:0], y[:0].unsqueeze(-1), RBFKernel(), 0.01)
    empty.covar_module.lengthscale = 0.3  # there are no data yet
    assert empty.state.n == 0
    assert CMMUCB(empty.condition_on_observations(X, y.unsqueeze(-1)), **NUMBERS).guarantee
    declared = dataclasses.replace(SETTING, completion_independent_of_noise=True)
    assert in_flight(declared).startswith("certified")
    assert in_optuna(False, False).startswith("certified")


MODELS = {
    "exact": lambda X, Y, **options: KernelRidgeGP(X, Y, RBFKernel(), 0.01, **options),
    "sketched": lambda X, Y, **options: NystromGP(X, Y, RBFKernel(), 0.01, **options),
    "any": lambda X, Y, **options: PosteriorGP(X, Y, kbo.KernelRidge(RBFKernel(), 0.01), **options),
}


@pytest.mark.parametrize("kind", MODELS)
def test_every_model_tells_what_was_fitted_or_changed(kind):
    X, y = data()
    make, Y = MODELS[kind], y.unsqueeze(-1)
    assert cmm(make(X, Y)).startswith("holds")
    assert FITTED in cmm(make(X, Y, outcome_transform=Standardize(1)))
    made = make(X, Y)
    made.ridge.data.fill_(0.2)
    assert CHANGED in cmm(made)
    assert CHANGED in cmm(made.condition_on_observations(X[:1], Y[:1]))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for name, call, _ in ROWS:
        print(f"| {name} | {call().splitlines()[0][:260]} |")
    for name, words in NAMED:
        print(f"| {name} | the guarantee says: ... {words} ... |")
