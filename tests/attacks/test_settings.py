"""Guarantees of the settings under attack: NaN, rounded parameters, lost trials, kernels that change."""

import math
from functools import partial

import pytest
import torch
from botorch.models import ModelListGP
from gpytorch.kernels import LinearKernel, MaternKernel, ScaleKernel
from torch import Tensor

import kbo
from experiments.bandits.elimination import StagedElimination
from experiments.problems.rkhs import stationary_kernel
from kbo import KernelRidge
from kbo.acquisition import ConstrainedKernelUCB, SafeExpander, SafeUCB
from kbo.bandit.method import Method
from kbo.bandit.pareto import pareto_set
from kbo.bandit.safe import SafeSet
from kbo.confidence import FixedWidth, Limit
from kbo.confidence.conclusions import candidate_gap
from kbo.errors import InvalidInput
from kbo.models import KernelRidgeGP
from kbo.optimize.constraints import feasibility
from kbo.optimize.run.journal import write

RBF = stationary_kernel("rbf", 0.5)


def linear():
    return LinearKernel().double().initialize(variance=1.0)


def seeded():
    return torch.Generator().manual_seed(0)


def prior(kernel, X, Z):
    return KernelRidge(kernel, 1.0).prior(X, Z)


SIDES = {"a": kbo.Int(0, 5), "b": kbo.Int(0, 5)}
ABOVE = kbo.Constraint("g", lower=0.0, noise_std=0.05, norm_bound=7.2, kernel=linear())  # g = a - b


def test_the_gap_counts_the_point_whose_prior_variance_is_0():
    """The best point is the origin, where g = 0 keeps its limit exactly."""
    kernel = stationary_kernel("rbf", 0.2)
    setting = kbo.Certified(kernel, 0.01, 1.0)
    optimizer = kbo.Optimizer(SIDES, setting=setting, maximize=True, constraints=[ABOVE])
    tried = [{"a": a, "b": b} for a in range(1, 6) for b in range(a + 1)]
    features = optimizer.space.features(optimizer.space.units(tried))
    values = prior(kernel, features, features.new_zeros(1, 2))[:, 0].tolist()
    for params, value in zip(tried, values, strict=True):
        optimizer.run.begin(params)
        optimizer.tell(params, (value, {"g": params["a"] - params["b"]}))
    gap = optimizer.gap()
    assert gap.exact
    assert gap.value >= 1.0 - max(values)


class Broken(FixedWidth):
    """Bounds that are NaN at one row of the points."""

    def __init__(self, row: int) -> None:
        super().__init__(1.0)
        self.row = row

    def interval(self, state, X: Tensor):
        lower, upper = super().interval(state, X)
        return lower.index_fill(-1, torch.tensor(self.row), math.nan), upper


class BrokenSides(Broken):
    """The same of each side alone."""

    def upper(self, state, X: Tensor):
        return self.interval(state, X)[0]

    lower = upper


POINTS = torch.linspace(0, 1, 5, dtype=torch.float64).unsqueeze(-1)


def state():
    posterior = KernelRidge(RBF, 0.1)
    posterior.update(POINTS[:1], torch.ones(1, dtype=torch.float64))
    return posterior


def explored(limit, objective):
    found = SafeSet(POINTS, torch.tensor([True] + 4 * [False]))
    found.update([Limit(state(), limit, lower=-5.0)])
    return found.widest(state(), objective)


def eliminated():
    method = Method(partial(KernelRidge, RBF, 0.1), Broken(2), StagedElimination(20))
    return method.choose(method.state(), POINTS)


DECISIONS = {
    "gap": lambda: candidate_gap(Broken(2), state(), POINTS),
    "safe set": lambda: explored(Broken(2), Broken(0)),
    "widest safe point": lambda: explored(FixedWidth(0.1), Broken(2)),
    "Pareto set": lambda: pareto_set([state(), state()], [FixedWidth(1.0), Broken(2)], POINTS, 0.1),
    "elimination": eliminated,
    "certain limit": lambda: feasibility.lower_slack(
        [Limit(state(), Broken(2), lower=0.0)], POINTS
    ),
    "possible limit": lambda: feasibility.upper_slack(
        [Limit(state(), Broken(2), upper=0.0)], POINTS
    ),
    "score": lambda: feasibility.feasible_first(torch.tensor([1.0, math.nan]), torch.ones(2)),
}


@pytest.mark.parametrize("decision", DECISIONS.values(), ids=DECISIONS)
def test_a_bound_that_is_nan_decides_nothing(decision):
    with pytest.raises(InvalidInput, match="is NaN at point"):
        decision()


@pytest.mark.parametrize("kind", [SafeUCB, SafeExpander, ConstrainedKernelUCB])
def test_a_limit_that_is_nan_is_not_kept_by_an_acquisition_function(kind):
    model = KernelRidgeGP(POINTS[:1], torch.ones(1, 1, dtype=torch.float64), RBF, 0.1)
    acqf = kind(ModelListGP(model, model), [FixedWidth(0.1), BrokenSides(0)], 0, {1: (-5.0, None)})
    assert acqf(POINTS[:1].unsqueeze(-2)).isnan().all()


LOW = 1.7e18  # where float64 stores every 256th whole number
COARSE = kbo.Float(LOW, LOW + 4096)


@pytest.mark.parametrize("parameter", [COARSE, kbo.Float(1e-4, 1e-1, log=True)])
def test_features_are_those_of_the_number_that_is_evaluated(parameter):
    space = kbo.Space({"x": parameter})
    points = torch.rand(100, 1, generator=seeded()).double()
    evaluated = space.units([space.params(point) for point in points])
    assert (space.features(points) - space.features(evaluated)).abs().max() <= 1e-14


def test_a_safe_run_certifies_the_rounded_numbers_that_it_evaluates():
    """The limit is kept below a number between two that float64 can store, and broken by the next one."""
    kernel = stationary_kernel("rbf", 0.3)
    centre = torch.tensor([[0.4]], dtype=torch.float64)
    least = float(prior(kernel, torch.tensor([[0.53]], dtype=torch.float64), centre))
    noise = seeded()
    values = []

    def objective(params):
        x = torch.tensor([[(params["x"] - LOW) / 4096]], dtype=torch.float64)
        values.append(float(prior(kernel, x, centre)))
        return float(x), {"heat": values[-1] + 1e-3 * float(torch.randn((), generator=noise))}

    setting = kbo.Safe(kernel, 0.01, 3.0, start=[{"x": LOW + 256 * 6}])
    limit = kbo.Constraint("heat", lower=least, noise_std=1e-3, norm_bound=1.0)
    kbo.maximize(objective, {"x": COARSE}, 8, setting=setting, constraints=[limit])
    assert min(values) >= least
    with pytest.raises(InvalidInput, match="leave out log"):  # whose scale rounding would distort
        kbo.Float(LOW, LOW + 4096, log=True)


def again(optimizer, tmp_path):
    optimizer.ask()
    optimizer.save(tmp_path / "run.jsonl")
    optimizer.run.load(tmp_path / "run.jsonl")
    optimizer.tell(optimizer.ask(), 0.1)


LOSSES = {
    "failed": lambda optimizer, _: optimizer.fail(optimizer.ask(), "it diverged"),
    "nan": lambda optimizer, _: optimizer.tell(optimizer.ask(), math.nan),
    "pruned": lambda optimizer, _: optimizer.prune(optimizer.begin()),
    "brought": lambda optimizer, _: optimizer.tell({"x": 0.123}, 0.1),
    "started again": again,
}


@pytest.mark.parametrize("lose", LOSSES.values(), ids=LOSSES)
def test_the_belief_itself_knows_how_trials_were_lost(lose, tmp_path):
    optimizer = kbo.Optimizer({"x": (0.0, 1.0)}, setting=kbo.Certified(RBF, 0.1, 2.0))
    optimizer.tell(optimizer.ask(), 0.1)
    assert optimizer.insight.surrogate().guarantee()
    lose(optimizer, tmp_path)
    optimizer.save(tmp_path / "saved.jsonl")
    loaded = kbo.Optimizer(optimizer.space, setting=optimizer.setting)
    loaded.run.load(tmp_path / "saved.jsonl")
    for run in (optimizer, loaded):
        run.tell(run.ask(), 0.1)
        assert not run.insight.surrogate().guarantee()
        assert run.insight.surrogate().guarantee().text.startswith("not certified: trials ")


@pytest.mark.parametrize(
    "make", [kbo.Certified, partial(kbo.Safe, start=[{"x": 0.1}]), kbo.Constraint]
)
def test_a_kernel_that_changes_afterwards_changes_no_setting(make):
    kernel = stationary_kernel("rbf", 0.5)
    limit = {"name": "g", "upper": 0.0} if make is kbo.Constraint else {}
    setting = make(kernel=kernel, noise_std=0.1, norm_bound=2.0, **limit)
    for outside in (kernel, setting.kernel):
        outside.lengthscale = 9.0
    assert float(setting.kernel.lengthscale) == pytest.approx(0.5)


def matern(lengthscale=2e-4, **options):
    kernel = MaternKernel(nu=2.5, **options).initialize(lengthscale=lengthscale)
    return ScaleKernel(kernel).double()


SHORT = {"x" + str(i): (0.0, 1.0) for i in range(6)}
OTHERS = {"lengthscale": matern(lengthscale=4e-4), "active dimensions": matern(active_dims=(0, 1))}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_a_journal_of_a_kernel_that_differs_only_at_short_distances_is_refused(other, tmp_path):
    def opened(kernel):
        numbers = {"kernel": kernel, "noise_std": 0.1, "norm_bound": 2.0}
        limit = kbo.Constraint("g", upper=1.0, **numbers)
        setting = kbo.Certified(**numbers)
        path = tmp_path / "run.jsonl"
        return kbo.Optimizer(SHORT, setting=setting, constraints=[limit], journal=path)

    opened(matern()).close()
    opened(matern().float().double()).close()
    with pytest.raises(
        kbo.JournalError, match=r"(?s)problem:\n  kernel: .*\n  constraints g kernel"
    ):
        opened(other)


def test_a_journal_with_the_values_of_a_kernel_alone_continues(tmp_path):
    """As versions up to 0.14 wrote them."""
    path = tmp_path / "run.jsonl"
    setting = kbo.Certified(matern(0.5), 0.1, 2.0)
    optimizer = kbo.Optimizer(SHORT, setting=setting)
    header = {**optimizer.run.header, "kernel": optimizer.run.header["kernel"].rsplit(" ", 1)[0]}
    write(path, header, optimizer.run.events)
    assert kbo.Optimizer(SHORT, setting=setting, journal=path).trials == []
    with pytest.raises(kbo.JournalError, match="kernel"):
        kbo.Optimizer(SHORT, setting=kbo.Certified(matern(0.6), 0.1, 2.0)).load(path)
