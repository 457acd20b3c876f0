"""Methods choose what their formulas say, alone, in batches, in stages; named ones take what they need, and play."""

from __future__ import annotations

import math
import pickle
from contextlib import nullcontext
from functools import partial

import pytest
import torch
from gpytorch.kernels import RBFKernel

from experiments.bandits.elimination import StagedElimination
from experiments.bandits.methods import PAPER_METHODS
from experiments.problems import RKHSBandit, ackley, branin, hartmann6
from kbo import bandit
from kbo.bandit import Facts, Method, NamedMethod, methods
from kbo.confidence import BKB, EKUCB, Chaining, FixedWidth, MartingaleMixture, SelfNormalized
from kbo.errors import InvalidInput
from kbo.regression import (
    AdaptiveRidge,
    BatchedResampling,
    BatchView,
    FixedDictionary,
    GreedyDictionary,
    KernelRidge,
    LeverageResampling,
    NystromRidge,
    OnlineRowSampling,
)
from tests import dense
from tests.dense import Dense, Hallucinated, close
from tests.laws.states import matern, seeded, unit_square
from tests.test_dictionaries import Scratch, WatchedBatches, stream

methods.register(*PAPER_METHODS)

SIGMA, NORM, DELTA, RIDGE = 0.3, 6.0, 0.1, 0.2


def method(name: str, **kwargs) -> Method:
    numbers = {"n_points": 40, "horizon": 100, "noise_upper": 1.0, **kwargs}
    return bandit.make(name, matern(1.5), SIGMA, NORM, DELTA, **numbers)


def sketch(made: Method) -> NystromRidge:
    """The sketch of a new posterior, which the bounds of a noise level may follow."""
    state = made.posterior()
    return state.state if isinstance(state, AdaptiveRidge) else state


# Batches


POINTS = unit_square(60, 4)


@pytest.mark.parametrize("tracked", [False, True])
def test_a_batch_freezes_means_and_widths_and_shrinks_variances(device, tracked):
    (X, y), Z, ridges = stream(30, 30, device), unit_square(40, 6).to(device), [0.03, 0.1, 0.5]
    played = method("dmm-ucb", ridges=ridges)
    state, chosen = played.state(Z if tracked else None), []
    state.update(X, y)
    before = [value.clone() for value in state.predict(Z)]
    batch = played.choose_batch(state, Z, 8)
    for index in batch:
        after = Hallucinated(Dense(matern(1.5), X, y), Z[chosen])
        upper = dense.mixture(after, Z, ridges, SIGMA, NORM, DELTA, 1.0)[1]
        assert float(upper[index]) >= float(upper.max()) - 1e-7
        chosen.append(index)
    assert len(set(batch)) > 3
    assert batch[0] == played.choose(state, Z)
    assert state.n == 30  # hypothetical observations do not count
    close(torch.stack(state.predict(Z)), torch.stack(before), 1e-12)


@pytest.mark.parametrize("sketched", [False, True])
def test_the_variance_within_a_batch_is_that_of_an_update(device, sketched):
    (X, y), Z = stream(30, 30, device), unit_square(25, 6).to(device)
    exact, sketch = (
        KernelRidge(matern(1.5), RIDGE),
        NystromRidge(matern(1.5), RIDGE, FixedDictionary(POINTS)),
    )
    state = sketch if sketched else exact
    state.update(X, y)
    batch, fork = BatchView(state, Z), state.fork()
    for index in (3, 7, 7, 20, 0):
        batch.observe(index)
        fork.update(Z[index : index + 1], torch.tensor([5.0]).to(Z))
        mean, variance = batch.predict(Z)
        close(mean, state.predict(Z)[0], 1e-12)
        close(variance, fork.predict(Z)[1])
        assert (batch.at().log_det(), batch.n) == (state.at().log_det(), 30)
    for ridge in (0.05, 3.0):
        mean, variance = batch.at(ridge).predict(Z)
        close(mean, state.at(ridge).predict(Z)[0])
        close(variance, fork.at(ridge).predict(Z)[1])
    for actual, expected in zip(
        batch.at(0.05).predict(Z.clone()), batch.at(0.05).predict(Z), strict=True
    ):
        close(actual, expected)
    assert not batch.needs_refresh
    state.update(*stream(9, 9, device))
    assert (
        batch.provenance.hypothetical
    )  # also when the state has more observations than the batch had


def test_a_batch_ends_when_the_frozen_leverages_add_up(device):
    (X, y), Z, growth = stream(60, 50, device), unit_square(40, 6).to(device), 2.0
    dictionary = WatchedBatches(3.0, growth)
    played = method("bbkb", ridge=1.0, dictionary=dictionary)
    state = played.state()
    state.update(X, y)
    seen = state.dictionary.seen
    while seen[-1][-1] is None:  # to where a batch begins
        X, y = torch.cat([X, X[:1]]), torch.cat([y, y[:1]])
        state.update(X[-1:], y[-1:])
    frozen, spent = (
        Scratch(matern(1.5), state.anchors.clone(), X, y, 1.0).answers(Z)["variance"],
        0.0,
    )
    batch = played.choose_batch(state, Z, 100)
    over = [1 + (spent := spent + float(frozen[index])) > growth for index in batch]
    assert over == [False] * (len(batch) - 1) + [True]
    assert 1 < len(batch) < 100
    assert played.choose_batch(state, Z, 2) == batch[:2]  # and the state is unchanged
    seen.clear()
    state.update(Z[batch], torch.zeros(len(batch)).to(Z))
    assert [
        entry[-1] is not None for entry in seen
    ] == over  # observed, it ends where it was foreseen to


@pytest.mark.parametrize("name", ["cmm-ucb", "random"])
def test_batches_of_any_method_are_of_the_given_size_and_stages_have_none(device, name):
    (X, y), Z = stream(30, 30, device), unit_square(25, 6).to(device)
    state = method(name).state(Z)
    state.update(X, y)
    batch = method(name).choose_batch(state, Z, 5, seeded(1))
    assert len(batch) == 5
    assert len(set(batch)) > 1
    assert method(name).choose_batch(state, Z, 1, seeded(1)) == batch[:1]
    for size in (0, math.nan):
        with pytest.raises(InvalidInput):
            method(name).choose_batch(state, Z, size)
    staged = method("supk-ucb")
    with pytest.raises(InvalidInput, match="one point at a time"):
        staged.choose_batch(staged.state(), Z, 3)


# SupK-UCB


def supk_ucb(
    arms: list[float], rewards: list[list[float]], ridge: float, width: float, horizon: int
):
    """Algorithm 2 of Valko et al. (2013), word by word, for ``k(x, x') = exp(-(x - x')^2 / 2)``."""
    psi = {s: [] for s in range(1, math.ceil(math.log2(horizon)) + 1)}
    pulls, history = [0] * len(arms), []

    def k(a: float, b: float) -> float:
        return math.exp(-((a - b) ** 2) / 2)

    def bounds(data: list[tuple[float, float]], x: float) -> tuple[float, float]:
        if not data:
            return 0.0, width
        K = torch.tensor([[k(a, b) for b, _ in data] for a, _ in data], dtype=torch.float64)
        kx = torch.tensor([k(a, x) for a, _ in data], dtype=torch.float64)
        inverse = torch.linalg.inv(K + ridge * torch.eye(len(data), dtype=torch.float64))
        variance = float(1 - kx @ inverse @ kx)
        return float(
            kx @ inverse @ torch.tensor([r for _, r in data], dtype=torch.float64)
        ), width * variance**0.5

    for _ in range(horizon):
        s, left, learner, chosen = 1, list(range(len(arms))), None, None
        while chosen is None:
            found = {a: bounds(psi[s], arms[a]) for a in left}
            if all(w <= 1 / math.sqrt(horizon) for _, w in found.values()):
                chosen = max(left, key=lambda a: sum(found[a]))
            elif all(w <= 2**-s for _, w in found.values()):
                best = max(mean + w for mean, w in found.values())
                left = [a for a in left if sum(found[a]) >= best - 2 ** (1 - s)]
                s += 1
            else:
                chosen, learner = next(a for a in left if found[a][1] > 2**-s), s
        reward = rewards[chosen][pulls[chosen]]
        pulls[chosen] += 1
        if learner:
            psi[learner].append((arms[chosen], reward))
        history.append((chosen, learner, len(left)))
    return history


def test_staged_elimination_is_the_algorithm_of_the_paper(device):
    horizon, arms = 200, [0.0, 0.7, 1.5, 2.6, 4.0]
    noise = 0.1 * torch.randn(5, horizon, generator=seeded(1), dtype=torch.float64)
    rewards = torch.tensor([0.0, 0.3, 0.6, -0.4, 0.5])[:, None] + noise
    expected = supk_ucb(arms, rewards.tolist(), 0.1, 0.6, horizon)
    kernel = RBFKernel().double()
    kernel.lengthscale = 1.0
    played = Method(partial(KernelRidge, kernel, 0.1), FixedWidth(0.6), StagedElimination(horizon))
    Z, state, pulls = (
        torch.tensor(arms, dtype=torch.float64, device=device)[:, None],
        played.state(),
        [0] * 5,
    )
    assert len(state.stages) == 8
    for chosen, learner, _ in expected:
        index = played.choose(state, Z)
        assert index == chosen
        assert state.learner == (None if learner is None else learner - 1)
        state.update(Z[index : index + 1], rewards[index, pulls[index]].reshape(1).to(Z))
        pulls[index] += 1
    assert state.n == horizon
    learners = [learner for _, learner, _ in expected]
    assert [stage.n for stage in state.stages] == [learners.count(s) for s in range(1, 9)]
    assert {1, 2, 3, None} <= set(
        learners
    )  # it learned in several stages, and took the best without learning
    assert {left for _, _, left in expected} > {2, 5}  # and eliminated


def test_staged_elimination_chooses_no_point_after_its_horizon_also_copied(device):
    """Values that came without a choice are no rounds."""
    method, Z = (
        Method(
            partial(KernelRidge, RBFKernel().double(), 0.1), FixedWidth(0.6), StagedElimination(5)
        ),
        Z5(device),
    )
    state = method.state()
    state.update(Z[:3], Z[:3, 0])
    for _ in range(5):
        index = method.choose(state, Z)
        state.update(Z[index : index + 1], Z[index])
    restored = pickle.loads(pickle.dumps(state))
    assert [stage.n for stage in restored.stages] == [stage.n for stage in state.stages]
    for over in (state, state.fork(), restored):
        with pytest.raises(InvalidInput, match="horizon=5 rounds, and they are over"):
            method.choose(over, Z)


def Z5(device) -> torch.Tensor:
    return torch.linspace(0, 4, 5, dtype=torch.float64, device=device).unsqueeze(-1)


def test_the_bound_of_igp_ucb_holds_after_its_horizon(device):
    """Its width has the term ``n eta`` of the proof, for every n: no more than a larger horizon would give is lost."""
    X, y = stream(40, 40, device)
    method = bandit.make("igp-ucb", RBFKernel().double(), 0.1, 2.0, 0.1, horizon=10)
    state = method.state()
    state.update(X, y)
    bound = method.bound
    expected = 0.1 * math.sqrt(float(state.at().log_det()) + 40 * 2 / 10 + 2 * math.log(10)) + 2.0
    assert float(bound.width(state)) == pytest.approx(expected, rel=1e-6)
    assert bound.guarantee_on(state) is not None


def test_an_update_without_a_choice_is_learned_by_no_stage(device):
    X, y = stream(3, 3, device)
    state = method("supk-ucb").state()
    state.update(X, y)
    assert (state.n, sum(stage.n for stage in state.stages)) == (3, 0)


# The table of names

ADAPTIVE = ["kernel-ucb-adaptive", "kernel-ts-adaptive", "dmm-ucb-adaptive", "cmm-ucb-adaptive"]
SKETCHED = ["bkb", "bbkb", "c-bkb", "c-bbkb", "ek-ucb", "sketched-cmm"]
FREE = {"ucb", "ay-gp-ucb", "k-ucb", "supk-ucb", "kernel-ts", *SKETCHED} - {"sketched-cmm"}
"""Methods whose ridge may be given."""


@pytest.mark.parametrize("name", methods.names())
def test_a_row_states_what_it_rests_on_and_takes_what_it_uses_and_nothing_else(name):
    row, made = methods.get(name), method(name)
    upper = name in ("kernel-ucb-fixed", "kernel-ts-fixed")
    estimated, chaining = (
        name in ("cmm-ucb-doubling", "cmm-ucb-practical"),
        name.startswith("chaining-ucb"),
    )
    unused = chaining or name in ("random", "ucb", "gp-ucb", "kernel-ts")
    assert row.noise == ("online" if name in ADAPTIVE else "upper bound" if upper else "given")
    assert row.norm == ("estimated" if estimated else "unused" if unused else "given")
    assert row.draws == made.rule.draws == ("-ts" in name)
    assert row.has_bounds == (made.confidence is not None) == (name != "random")
    assert row.fixed_kernel == isinstance(made.confidence, Chaining) == chaining
    assert row.needs_horizon == (name in ("igp-ucb", "supk-ucb"))
    assert row.needs_finite_set == (name in ("gp-ucb", "supk-ucb"))
    assert isinstance(made.posterior(), NystromRidge) == (name in SKETCHED)
    assert (made.posterior().schedule is not None) == (name in ADAPTIVE)

    given = {
        "noise_std": SIGMA,
        "norm_bound": NORM,
        "horizon": 100,
        "n_points": 40,
        "noise_upper": 1.0,
    }
    level = {"given": {"noise_std"}, "upper bound": {"noise_upper"}, "online": set()}[row.noise]
    needed = {"horizon", "n_points", "norm_bound"} & {*row.needs} | level
    assert ("norm_bound" in needed) == (row.norm == "given")
    for what in given:
        says = f"{name}.* needs {what}: pass {what}="
        with pytest.raises(InvalidInput, match=says) if what in needed else nullcontext():
            bandit.make(name, **{"kernel": matern(1.5), "delta": DELTA, **given, what: None})
    if name in FREE:
        assert method(name, ridge=0.37).posterior().ridge == 0.37
        assert method(name, scale=2.0).posterior().ridge == pytest.approx(SIGMA**2 / 2)
    with (
        nullcontext()
        if name in FREE
        else pytest.raises(InvalidInput, match="no use for ridge: do not pass it")
    ):
        method(name, ridge=0.37)
    dictionary, sketches = GreedyDictionary(0.1), name in (*SKETCHED, *ADAPTIVE, "kernel-ts", "ucb")
    with (
        nullcontext()
        if sketches
        else pytest.raises(InvalidInput, match="no use for dictionary: do not pass it")
    ):
        assert sketch(method(name, dictionary=dictionary)).description is dictionary

    (X, y), Z = stream(20, 20, None), unit_square(10, 6)
    if name in ("random", *ADAPTIVE):
        with pytest.raises(InvalidInput, match="multiplier"):
            method(name, multiplier=0.1)
        return
    played = method(name, multiplier=0.1)  # standard deviations of the leverage replace the bound
    state = played.state()
    state.update(X, y)
    mean, variance = state.predict(Z)
    close(played.confidence.upper(state, Z), mean + 0.1 * (variance / state.ridge).sqrt(), 1e-10)
    assert played.rule == made.rule
    assert played.confidence.guarantee is None


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("amm_ucb", {}, "did you mean 'amm-ucb'"),
        ("igp-ucb", {"horizont": 3}, "no option 'horizont': did you mean 'horizon'"),
        (
            "cmm-ucb",
            {"ridges": [0.1]},
            "'cmm-ucb' has no use for ridges: .* takes multiplier; ridges is for dmm-ucb",
        ),
        ("random", {"dictionary": GreedyDictionary(0.1)}, "takes no options"),
        ("kernel-ts-adaptive", {"strict_noise": True}, "no use for strict_noise"),
        ("ay-gp-ucb", {"scale": [1.0, 4.0]}, "'ay-gp-ucb' averages over no scales"),
        ("bkb", {"ridge": 0.0}, "ridge"),
        ("bkb", {"multiplier": -0.1}, "multiplier"),
    ],
)
def test_unknown_unused_and_impossible_options_are_refused(name, options, message):
    with pytest.raises(InvalidInput, match=message):
        method(name, **options)


def test_a_row_is_all_that_a_new_method_needs(monkeypatch):
    class OtherPosterior(KernelRidge):
        pass

    def posterior(facts: Facts) -> OtherPosterior:
        return OtherPosterior(facts.kernel, facts.noise_std**2)

    def bound(facts: Facts) -> MartingaleMixture:
        noise_std = facts.options.get("factor", 1.0) * facts.noise_std
        return MartingaleMixture(noise_std, facts.norm_bound, facts.delta, "amm")

    monkeypatch.setattr("kbo.bandit.methods.METHODS", dict(methods.METHODS))
    methods.register(NamedMethod("other-ucb", posterior, bound, options=("factor",)))
    assert "other-ucb" in methods.names()
    assert method("other-ucb", factor=2.0).bound.noise_std == 2 * SIGMA
    with pytest.raises(InvalidInput, match="factor is for other-ucb"):
        method("amm-ucb", factor=2.0)
    played = method("other-ucb")
    assert isinstance(played.state(), OtherPosterior)
    chosen = [[row["arm"] for row in play(name, 8)] for name in ("other-ucb", "amm-ucb")]
    assert chosen[0] == chosen[1]


def test_a_row_of_another_kind_is_refused():
    with pytest.raises(InvalidInput, match=r"a row must be a kbo\.bandit.*NamedMethod"):
        methods.register("my-ucb")


def test_a_rule_that_needs_a_confidence_is_refused_without_one():
    with pytest.raises(InvalidInput, match="UpperBound needs"):
        Method(partial(KernelRidge, matern(1.5), RIDGE), None)


def test_a_sketched_method_has_the_dictionary_of_its_paper():
    assert type(sketch(method("bkb")).description) is LeverageResampling
    assert type(sketch(method("bbkb")).description) is BatchedResampling
    made = method("ek-ucb", ridge=0.4)
    dictionary = sketch(made).description
    assert isinstance(dictionary, OnlineRowSampling)
    assert dictionary.mu == made.confidence.projection == 0.4
    assert (
        method("ek-ucb", ridge=0.4, dictionary=OnlineRowSampling(0.7)).confidence.projection == 0.7
    )
    assert method("dmm-ucb-adaptive", strict_noise=True).posterior().schedule.strict
    assert method("cmm-ucb", scale=[1, 4, 16]).posterior().ridge == pytest.approx(SIGMA**2 / 4)


def test_methods_have_the_bound_of_their_paper():
    kinds = {"k-ucb": SelfNormalized, "bkb": BKB, "c-bbkb": BKB, "ek-ucb": EKUCB}
    assert {name: type(method(name).confidence) for name in kinds} == kinds
    expected = SIGMA * math.sqrt(2 * math.log(2 * 100 * 40 * 7 / DELTA)) / math.sqrt(RIDGE) + NORM
    assert method("supk-ucb", ridge=RIDGE).confidence.multiplier == pytest.approx(expected)


# Bandits


def play(name, rounds, seed=0, problem=None, **options):
    problem = problem or RKHSBandit(seed=seed)
    numbers = {"horizon": rounds, "n_points": problem.n_arms, "noise_upper": 1.0}
    return list(
        bandit.play(
            bandit.make(name, problem.kernel, 0.1, 10.0, 0.01, **numbers),
            problem,
            rounds,
            **options,
        )
    )


class OnDevice(RKHSBandit):
    """A problem whose arms and rewards are on a device; the function and the noise stay on the CPU."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(fixed=True)
        self.fixed_arms = self.fixed_arms.to(device)

    def mean(self, X: torch.Tensor) -> torch.Tensor:
        return super().mean(X.cpu()).to(X.device)

    def observe(self, X: torch.Tensor) -> torch.Tensor:
        return super().observe(X.cpu()).to(X.device)


@pytest.mark.parametrize("name", methods.names())
def test_every_method_plays_and_chooses_alike_on_every_device(device, name):
    gaps = {"gap_every": 4} if methods.get(name).has_bounds else {}
    rows, again = (
        play(name, 8, 0, OnDevice(at), initial=3, **gaps) for at in (device, torch.device("cpu"))
    )
    assert [row["round"] for row in rows] == list(range(1, 9))
    assert all(row["regret"] >= 0 for row in rows)
    assert rows[-1]["cumulative"] == pytest.approx(sum(row["regret"] for row in rows))
    for row, other in zip(rows, again, strict=True):
        assert row["arm"] == other["arm"]
        assert row.get("gap", 0.0) == pytest.approx(other.get("gap", 0.0))


def test_tighter_bounds_have_less_regret_in_the_papers_order():
    order = ["dmm-ucb", "amm-ucb", "ay-gp-ucb", "igp-ucb", "random"]
    end = [play(name, 120)[-1]["cumulative"] for name in order]
    assert end == sorted(end)


def test_tracked_arms_choose_as_untracked_ones():
    rows, problem = (
        play("amm-ucb", 40, 2, RKHSBandit(fixed=True, seed=2)),
        RKHSBandit(fixed=True, seed=2),
    )
    arms = problem.fixed_arms
    problem.fixed_arms, problem.arms = None, lambda: arms
    assert [row["regret"] for row in play("amm-ucb", 40, 2, problem)] == [
        row["regret"] for row in rows
    ]


def test_the_function_has_the_norm_it_promises_and_noise_of_the_right_size():
    problem = RKHSBandit("matern32", 0.3, dim=2, norm=7.0, seed=1)
    gram = problem.kernel(problem.centres).to_dense()
    assert float(problem.weights @ gram @ problem.weights) == pytest.approx(49.0)
    X = problem.arms()[:1].expand(20_000, 2)
    assert float((problem.observe(X) - problem.mean(X)).std()) == pytest.approx(0.1, rel=0.03)


@pytest.mark.parametrize("make", [branin, hartmann6, ackley])
def test_synthetic_problems_have_their_optimum_and_their_noise(make):
    problem = make(noise_std=0.2, seed=0)
    params = problem.function.optimizers[0].tolist()
    assert problem.noiseless(params) == pytest.approx(problem.optimum, abs=1e-4)
    values = torch.tensor([problem(params) for _ in range(400)])
    assert float(values.std()) == pytest.approx(0.2, rel=0.2)
    assert make(noise_std=0.2, seed=0)(params) == pytest.approx(float(values[0]))


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (
            {"arms": lambda: torch.zeros(0, 2)},
            r"arms\(\) must return arms \[A d\], at least one, got \(0, 2\)",
        ),
        ({"mean": lambda X: torch.tensor(1.0)}, r"mean must return \[100\] mean rewards"),
        ({"mean": lambda X: torch.full((len(X),), math.nan)}, "finite"),
    ],
)
def test_mistakes_in_a_problem_are_named(broken, says):
    problem = RKHSBandit()
    vars(problem).update(broken)
    with pytest.raises(InvalidInput, match=says):
        play("random", 3, 0, problem)
