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
from experiments.problems import RKHSBandit, branin
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
from tests.conftest import DEVICE
from tests.dense import Dense, Hallucinated, close
from tests.laws.states import matern, seeded, unit_square
from tests.test_dictionaries import Scratch, WatchedBatches, stream

methods.register(*PAPER_METHODS)

SIGMA, NORM, DELTA, RIDGE = 0.3, 6.0, 0.1, 0.2
NUMBERS = {"n_points": 40, "horizon": 100, "noise_upper": 1.0}
pytestmark = pytest.mark.usefixtures("device")


def method(name: str, **kwargs) -> Method:
    return bandit.make(name, matern(1.5), SIGMA, NORM, DELTA, **{**NUMBERS, **kwargs})


def sketch(made: Method) -> NystromRidge:
    """The sketch of a new posterior, which the bounds of a noise level may follow."""
    state = made.posterior()
    return state.state if isinstance(state, AdaptiveRidge) else state


# Batches


Z = unit_square(40, 6).to(DEVICE)


@pytest.mark.parametrize("tracked", [False, True])
def test_a_batch_freezes_means_and_widths_and_shrinks_variances(tracked):
    X, y = stream(30, 30, DEVICE)
    ridges = [0.03, 0.1, 0.5]
    played = method("dmm-ucb", ridges=ridges)
    state = played.state(Z if tracked else None)
    state.update(X, y)
    before = torch.stack(state.predict(Z)).clone()
    batch = played.choose_batch(state, Z, 8)
    for number, index in enumerate(batch):
        after = Hallucinated(Dense(matern(1.5), X, y), Z[batch[:number]])
        upper = dense.mixture(after, Z, ridges, SIGMA, NORM, DELTA, 1.0)[1]
        assert float(upper[index]) >= float(upper.max()) - 1e-7
    assert len(set(batch)) > 3
    assert batch[0] == played.choose(state, Z)
    assert state.n == 30  # hypothetical observations do not count
    close(torch.stack(state.predict(Z)), before, 1e-12)


@pytest.mark.parametrize(
    "state",
    [
        KernelRidge(matern(1.5), RIDGE),
        NystromRidge(matern(1.5), RIDGE, FixedDictionary(unit_square(60, 4))),
    ],
    ids=["exact", "sketched"],
)
def test_the_variance_within_a_batch_is_that_of_an_update(state):
    state.update(*stream(30, 30, DEVICE))
    batch = BatchView(state, Z)
    fork = state.fork()
    for index in (3, 7, 7, 20, 0):
        batch.observe(index)
        fork.update(Z[index : index + 1], torch.tensor([5.0]).to(Z))
        mean, variance = batch.predict(Z)
        close(mean, state.predict(Z)[0], 1e-12)
        close(variance, fork.predict(Z)[1])
        assert (batch.at().log_det(), batch.n) == (state.at().log_det(), 30)
    for points in (Z, Z.clone()):
        mean, variance = batch.at(3.0).predict(points)
        close(mean, state.at(3.0).predict(Z)[0])
        close(variance, fork.at(3.0).predict(Z)[1])
    assert batch.provenance.hypothetical


def test_a_batch_ends_when_the_frozen_leverages_add_up():
    X, y = stream(60, 50, DEVICE)
    growth = 2.0
    played = method("bbkb", ridge=1.0, dictionary=WatchedBatches(3.0, growth))
    state = played.state()
    state.update(X, y)
    seen = state.dictionary.seen
    while seen[-1][-1] is None:  # to where a batch begins
        X, y = torch.cat([X, X[:1]]), torch.cat([y, y[:1]])
        state.update(X[-1:], y[-1:])
    frozen = Scratch(matern(1.5), state.anchors.clone(), X, y, 1.0).answers(Z)["variance"]
    batch = played.choose_batch(state, Z, 100)
    over = (1 + frozen[batch].cumsum(0) > growth).tolist()
    assert over == [False] * (len(batch) - 1) + [True]
    assert 1 < len(batch) < 100
    assert played.choose_batch(state, Z, 2) == batch[:2]  # and the state is unchanged
    seen.clear()
    state.update(Z[batch], torch.zeros(len(batch)).to(Z))
    assert [entry[-1] is not None for entry in seen] == over  # observed, it ends there too


@pytest.mark.parametrize("name", ["cmm-ucb", "random"])
def test_batches_of_any_method_are_of_the_given_size_and_stages_have_none(name):
    played = method(name)
    state = played.state(Z)
    state.update(*stream(30, 30, DEVICE))
    batch = played.choose_batch(state, Z, 5, seeded(1))
    assert len(batch) == 5
    assert played.choose_batch(state, Z, 1, seeded(1)) == batch[:1]
    with pytest.raises(InvalidInput):
        played.choose_batch(state, Z, 0)
    staged = method("supk-ucb")
    with pytest.raises(InvalidInput, match="one point at a time"):
        staged.choose_batch(staged.state(), Z, 3)


# SupK-UCB


def supk_ucb(arms, rewards, ridge, width, horizon):
    """Algorithm 2 of Valko et al. (2013), word by word, for ``k(x, x') = exp(-(x - x')^2 / 2)``."""
    k = torch.exp(-((arms - arms.T) ** 2) / 2)
    psi = [([], []) for _ in range(math.ceil(math.log2(horizon)))]  # arms and rewards of a stage
    pulls = [0] * len(arms)
    history = []

    def bounds(stage):
        """Upper bounds and widths of all arms."""
        pulled, values = psi[stage]
        K = k[pulled][:, pulled] + ridge * torch.eye(len(pulled)).double()
        weights = torch.linalg.solve(K, k[pulled]).T
        variance = 1 - (weights * k[:, pulled]).sum(-1)
        widths = width * variance.sqrt()
        return weights @ torch.tensor(values).double() + widths, widths

    for _ in range(horizon):
        s, left, learner, chosen = 1, list(range(len(arms))), None, None
        while chosen is None:
            upper, widths = bounds(s - 1)
            if all(widths[a] <= 1 / math.sqrt(horizon) for a in left):
                chosen = max(left, key=lambda a: upper[a])
            elif all(widths[a] <= 2**-s for a in left):
                best = max(upper[a] for a in left)
                left = [a for a in left if upper[a] >= best - 2 ** (1 - s)]
                s += 1
            else:
                chosen = next(a for a in left if widths[a] > 2**-s)
                learner = s - 1
        if learner is not None:
            psi[learner][0].append(chosen)
            psi[learner][1].append(rewards[chosen, pulls[chosen]])
        pulls[chosen] += 1
        history.append((chosen, learner, len(left)))
    return history


def test_staged_elimination_is_the_algorithm_of_the_paper():
    horizon = 200
    arms = torch.tensor([0.0, 0.7, 1.5, 2.6, 4.0]).double().unsqueeze(-1)
    noise = 0.1 * torch.randn(5, horizon, generator=seeded(1), dtype=torch.float64)
    rewards = torch.tensor([0.0, 0.3, 0.6, -0.4, 0.5])[:, None] + noise
    expected = supk_ucb(arms, rewards, 0.1, 0.6, horizon)
    kernel = RBFKernel().double()
    kernel.lengthscale = 1.0
    played = Method(partial(KernelRidge, kernel, 0.1), FixedWidth(0.6), StagedElimination(horizon))
    state = played.state()
    pulls = [0] * 5
    for chosen, learner, _ in expected:
        index = played.choose(state, arms.to(DEVICE))
        assert (index, state.learner) == (chosen, learner)
        state.update(arms[[index]].to(DEVICE), rewards[index, pulls[index]].reshape(1).to(DEVICE))
        pulls[index] += 1
    assert state.n == horizon
    learners = [learner for _, learner, _ in expected]
    assert [stage.n for stage in state.stages] == [learners.count(s) for s in range(8)]
    assert {0, 1, 2, None} <= set(learners)  # also chose the best without learning
    assert {left for _, _, left in expected} > {2, 5}  # and eliminated


def test_staged_elimination_chooses_no_point_after_its_horizon_also_copied():
    """Values that came without a choice are no rounds, and no stage learns them."""
    base = partial(KernelRidge, RBFKernel().double(), 0.1)
    method = Method(base, FixedWidth(0.6), StagedElimination(2))
    arms = torch.linspace(0, 4, 5).double().unsqueeze(-1).to(DEVICE)
    state = method.state()
    state.update(arms[:3], arms[:3, 0])
    assert (state.n, sum(stage.n for stage in state.stages)) == (3, 0)
    for _ in range(2):
        index = method.choose(state, arms)
        state.update(arms[index : index + 1], arms[index])
    for over in (state, state.fork(), pickle.loads(pickle.dumps(state))):
        with pytest.raises(InvalidInput, match="horizon=2 rounds, and they are over"):
            method.choose(over, arms)


# The table of names

ADAPTIVE = ["kernel-ucb-adaptive", "kernel-ts-adaptive", "dmm-ucb-adaptive", "cmm-ucb-adaptive"]
SKETCHED = ["bkb", "bbkb", "c-bkb", "c-bbkb", "ek-ucb", "sketched-cmm"]
FREE = {"ucb", "ay-gp-ucb", "k-ucb", "supk-ucb", "kernel-ts", *SKETCHED} - {"sketched-cmm"}
"""Methods whose ridge may be given."""


def refused(condition: bool, message: str):
    """A block that fails with the message under a condition."""
    return pytest.raises(InvalidInput, match=message) if condition else nullcontext()


@pytest.mark.parametrize("name", methods.names())
def test_a_named_method_states_what_the_method_is(name):
    named_method = methods.get(name)
    made = method(name)
    noise = dict.fromkeys(ADAPTIVE, "online")
    noise |= dict.fromkeys(("kernel-ucb-fixed", "kernel-ts-fixed"), "upper bound")
    assert named_method.noise == noise.get(name, "given")
    assert named_method.draws == made.rule.draws == ("-ts" in name)
    assert named_method.has_bounds == (made.confidence is not None) == (name != "random")
    assert named_method.fixed_kernel == isinstance(made.confidence, Chaining)
    assert isinstance(made.posterior(), NystromRidge) == (name in SKETCHED)
    assert (made.posterior().schedule is not None) == (name in ADAPTIVE)


@pytest.mark.parametrize("name", methods.names())
def test_a_method_takes_what_it_uses_and_nothing_else(name):
    named_method = methods.get(name)
    given = {**NUMBERS, "noise_std": SIGMA, "norm_bound": NORM}
    level = {"given": {"noise_std"}, "upper bound": {"noise_upper"}, "online": set()}[
        named_method.noise
    ]
    needed = {"horizon", "n_points", "norm_bound"} & {*named_method.needs} | level
    assert ("norm_bound" in needed) == (named_method.norm == "given")
    for number in given:
        with refused(
            number in needed, f"{name}.* needs {number}: pass {number}=... to kbo.bandit.make"
        ):
            bandit.make(name, kernel=matern(1.5), delta=DELTA, **{**given, number: None})
    with refused(name not in FREE, "no use for ridge: do not pass it"):
        assert method(name, ridge=0.37).posterior().ridge == 0.37
        assert method(name, scale=2.0).posterior().ridge == pytest.approx(SIGMA**2 / 2)
    dictionary = GreedyDictionary(0.1)
    sketches = name in (*SKETCHED, *ADAPTIVE, "kernel-ts", "ucb")
    with refused(not sketches, "no use for dictionary: do not pass it"):
        assert sketch(method(name, dictionary=dictionary)).description is dictionary
    with refused(name in ("random", *ADAPTIVE), "multiplier"):
        played = method(name, multiplier=0.1)  # standard deviations replace the bound
        state = played.state()
        state.update(*stream(20, 20, DEVICE))
        mean, variance = state.predict(Z)
        expected = mean + 0.1 * (variance / state.ridge).sqrt()
        close(played.confidence.upper(state, Z), expected, 1e-10)
        assert played.confidence.guarantee is None


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("amm_ucb", {}, "did you mean 'amm-ucb'"),
        (
            "igp-ucb",
            {"horizont": 3},
            "kbo.bandit.make has no option 'horizont': did you mean 'horizon'",
        ),
        ("cmm-ucb", {"ridges": [0.1]}, "no use for ridges: .* ridges is for dmm-ucb"),
        ("random", {"dictionary": GreedyDictionary(0.1)}, "takes no options"),
        ("ay-gp-ucb", {"scale": [1.0, 4.0]}, "'ay-gp-ucb' averages over no scales"),
        ("bkb", {"ridge": 0.0}, "ridge"),
    ],
)
def test_unknown_unused_and_impossible_options_are_refused(name, options, message):
    with pytest.raises(InvalidInput, match=message):
        method(name, **options)


def test_a_named_method_is_all_that_a_new_method_needs(monkeypatch):
    def bound(facts: Facts) -> MartingaleMixture:
        noise_std = facts.options.get("factor", 1.0) * facts.noise_std
        return MartingaleMixture(noise_std, facts.norm_bound, facts.delta, "amm")

    monkeypatch.setattr("kbo.bandit.methods.METHODS", dict(methods.METHODS))
    methods.register(NamedMethod("other-ucb", methods.exact, bound, options=("factor",)))
    assert "other-ucb" in methods.names()
    assert method("other-ucb", factor=2.0).bound.noise_std == 2 * SIGMA
    with pytest.raises(InvalidInput, match="factor is for other-ucb"):
        method("amm-ucb", factor=2.0)
    chosen, expected = ([row["arm"] for row in play(name, 8)] for name in ("other-ucb", "amm-ucb"))
    assert chosen == expected
    with pytest.raises(InvalidInput, match=r"a named method must be a kbo\.bandit.*NamedMethod"):
        methods.register("my-ucb")


def test_methods_have_the_bound_and_the_dictionary_of_their_paper():
    kinds = {"ay-gp-ucb": SelfNormalized, "bkb": BKB, "c-bbkb": BKB, "ek-ucb": EKUCB}
    assert {name: type(method(name).confidence) for name in kinds} == kinds
    expected = SIGMA * math.sqrt(2 * math.log(2 * 100 * 40 * 7 / DELTA)) / math.sqrt(RIDGE) + NORM
    assert method("supk-ucb", ridge=RIDGE).confidence.multiplier == pytest.approx(expected)
    kinds = {"bkb": LeverageResampling, "bbkb": BatchedResampling, "ek-ucb": OnlineRowSampling}
    assert {name: type(sketch(method(name)).description) for name in kinds} == kinds
    made = method("ek-ucb", ridge=0.4)
    assert sketch(made).description.mu == made.confidence.projection == 0.4
    played = method("igp-ucb", horizon=10)
    assert played.confidence.eta == 2 / 10
    assert played.posterior().ridge == 1 + 2 / 10
    assert method("kernel-ts", scale=4.0).confidence.multiplier == pytest.approx(2.0)
    threshold = sketch(method("sketched-cmm")).description.threshold
    assert threshold == pytest.approx(0.01 * SIGMA**2 / NORM**2)
    assert method("dmm-ucb-adaptive", strict_noise=True).posterior().schedule.strict
    assert method("cmm-ucb", scale=[1, 4, 16]).posterior().ridge == pytest.approx(SIGMA**2 / 4)


def test_k_ucb_has_the_width_of_lemma_4_1_without_projection():
    X, y = stream(30, 30, DEVICE)
    played = method("k-ucb", ridge=RIDGE)
    state = played.posterior()
    state.update(X, y)
    formulas = Dense(matern(1.5), X, y)
    expected = dense.ekucb(formulas, Z, RIDGE, SIGMA, NORM, DELTA)
    close(torch.stack(played.confidence.interval(state, Z)), torch.stack(expected))
    assert played.confidence.guarantee_on(state) is not None


@pytest.mark.parametrize(
    ("name", "parts"), [("kernel-ucb-adaptive", 3), ("kernel-ts-adaptive", 12)]
)
def test_the_events_of_the_noise_bounds_have_the_shares_of_delta_of_the_paper(name, parts):
    """Thompson sampling at delta / 12: Durand et al. (2018), Sec. 6.4."""
    assert method(name).posterior().schedule.event_delta == pytest.approx(DELTA / parts)


def test_a_method_that_uses_a_fact_without_needing_it_says_so():
    with pytest.raises(InvalidInput, match=r"uses noise_std, .* list noise_std in needs"):
        methods.exact_at_noise_variance(Facts(matern(1.5)))


# Bandits


def play(name, rounds, problem=None, **options):
    problem = problem or RKHSBandit(fixed=True)
    numbers = {"horizon": rounds, "n_points": problem.n_arms, "noise_upper": 1.0}
    made = bandit.make(name, problem.kernel, 0.1, 10.0, 0.01, **numbers)
    return list(bandit.play(made, problem, rounds, **options))


def test_the_function_has_the_norm_it_promises():
    problem = RKHSBandit("matern32", 0.3, dim=2, norm=7.0, seed=1)
    gram = problem.kernel(problem.centres).to_dense()
    assert float(problem.weights @ gram @ problem.weights) == pytest.approx(49.0)


def test_synthetic_problems_have_their_optimum():
    problem = branin(noise_std=0.2, seed=0)
    params = problem.function.optimizers[0].tolist()
    assert problem.noiseless(params) == pytest.approx(problem.optimum, abs=1e-4)
    assert branin(noise_std=0.2, seed=0)(params) == problem(params) != problem(params)


@pytest.mark.parametrize("name", methods.names())
def test_every_method_plays(name):
    gaps = {"gap_every": 4} if methods.get(name).has_bounds else {}
    rows = play(name, 8, initial=3, **gaps)
    assert [row["round"] for row in rows] == list(range(1, 9))
    assert all(row["regret"] >= 0 for row in rows)
    assert rows[-1]["cumulative"] == pytest.approx(sum(row["regret"] for row in rows))
    assert not gaps or rows[3]["gap"] >= 0


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ({"arms": lambda: torch.zeros(0, 2)}, r"arms\(\) must return arms .* at least one"),
        ({"mean": lambda X: torch.tensor(1.0)}, r"mean must return \[100\] mean rewards"),
        ({"mean": lambda X: torch.full((len(X),), math.nan)}, "finite"),
    ],
)
def test_mistakes_in_a_problem_are_named(broken, says):
    problem = RKHSBandit()
    vars(problem).update(broken)
    with pytest.raises(InvalidInput, match=says):
        play("random", 3, problem)
