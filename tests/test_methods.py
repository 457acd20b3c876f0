"""Methods choose what their formulas say: alone, in batches and in stages; recipes take the numbers they need."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from gpytorch.kernels import RBFKernel
from torch import Tensor

from kbo import bandit, recipes
from kbo.confidence import BKB, EKUCB, Chaining, FixedWidth, SelfNormalized, widths
from kbo.errors import InvalidInput
from kbo.problems import BANDITS, RKHSBandit
from kbo.recipes.elimination import StagedElimination, Stages
from kbo.recipes.method import Method
from kbo.regression import (
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
from tests.dense import Dense, Hallucinated, Sketched, close
from tests.laws.states import matern, seeded, unit_square
from tests.test_dictionaries import Scratch, WatchedBatches, stream

SIGMA, NORM, DELTA, RIDGE = 0.3, 6.0, 0.1, 0.2


def method(name: str, **kwargs) -> Method:
    numbers = {"n_points": 40, "horizon": 100, "noise_upper": 1.0, **kwargs}
    return recipes.make(name, matern(1.5), SIGMA, NORM, DELTA, **numbers)


# Batches


class Frozen(Sketched):
    """A sketch whose variance knows of the points P as of observations; mean and data do not."""

    def __init__(self, kernel, X: Tensor, y: Tensor, points: Tensor, P: Tensor) -> None:
        super().__init__(kernel, X, y, points)
        self.after = Sketched(kernel, torch.cat([X, P]), torch.cat([y, y.new_zeros(len(P))]), points)

    def covariance(self, Z1: Tensor, Z2: Tensor, ridge) -> Tensor:
        return self.after.covariance(Z1, Z2, ridge)


POINTS = unit_square(60, 4)

BATCHES = {  # a method, its posterior with hypothetical points, and its bound
    "ay-gp-ucb": (
        lambda: method("ay-gp-ucb", ridge=RIDGE),
        lambda X, y, P: Hallucinated(Dense(matern(1.5), X, y), P),
        lambda d, Z: dense.ay(d, Z, RIDGE, SIGMA, NORM, DELTA),
    ),
    "dmm-ucb": (
        lambda: method("dmm-ucb", ridges=[0.03, 0.1, 0.5]),
        lambda X, y, P: Hallucinated(Dense(matern(1.5), X, y), P),
        lambda d, Z: dense.mixture(d, Z, [0.03, 0.1, 0.5], SIGMA, NORM, DELTA, 1.0),
    ),
    "bkb": (
        lambda: method("bkb", ridge=RIDGE, dictionary=FixedDictionary(POINTS)),
        lambda X, y, P: Frozen(matern(1.5), X, y, POINTS.to(X), P),
        lambda d, Z: dense.bkb(d, Z, RIDGE, SIGMA, NORM, DELTA, 0.5),
    ),
}


@pytest.mark.parametrize("name", BATCHES)
@pytest.mark.parametrize("tracked", [False, True])
def test_a_batch_freezes_means_and_widths_and_shrinks_variances(device, name, tracked):
    make, after, bound = BATCHES[name]
    (X, y), Z = stream(30, 30, device), unit_square(40, 6).to(device)
    played = make()
    state, chosen = played.state(Z if tracked else None), []
    state.update(X, y)
    before = [value.clone() for value in state.predict(Z)]
    batch = played.choose_batch(state, Z, 8)
    for index in batch:
        upper = bound(after(X, y, Z[chosen]), Z)[1]
        assert float(upper[index]) >= float(upper.max()) - 1e-7
        chosen.append(index)
    assert len(batch) == 8
    assert len(set(batch)) > 3
    assert batch[0] == played.choose(state, Z)
    assert state.n == 30  # hypothetical observations do not count
    close(torch.stack(state.predict(Z)), torch.stack(before), 1e-12)


@pytest.mark.parametrize("kind", ["exact", "sketched"])
def test_the_variance_within_a_batch_is_that_of_an_update(device, kind):
    (X, y), Z = stream(30, 30, device), unit_square(25, 6).to(device)
    exact, sketch = KernelRidge(matern(1.5), RIDGE), NystromRidge(matern(1.5), RIDGE, FixedDictionary(POINTS))
    state = exact if kind == "exact" else sketch
    state.update(X, y)
    batch, fork = BatchView(state, Z), state.fork()
    for index in (3, 7, 7, 20, 0):
        batch.observe(index)
        fork.update(Z[index : index + 1], torch.tensor([5.0]).to(Z))
        mean, variance = batch.predict(Z)
        close(mean, state.predict(Z)[0], 1e-12)
        close(variance, fork.predict(Z)[1])
        assert batch.log_det() == state.log_det()
        assert batch.n == 30
    mean, variance = batch.predict(Z, [0.05, 3.0])
    close(mean, state.predict(Z, [0.05, 3.0])[0])
    close(variance, fork.predict(Z, [0.05, 3.0])[1])
    for actual, expected in zip(batch.predict(Z.clone(), 0.05), batch.predict(Z, 0.05), strict=True):
        close(actual, expected)
    assert not batch.needs_refresh
    state.update(*stream(9, 9, device))
    assert batch.hypothetical  # also when the state has more observations than the batch had


@pytest.mark.parametrize("growth", [2.0, 4.0])
def test_a_batch_ends_when_the_frozen_leverages_add_up(device, growth):
    (X, y), Z = stream(60, 50, device), unit_square(40, 6).to(device)
    dictionary = WatchedBatches(3.0, growth)
    played = method("bbkb", ridge=1.0, dictionary=dictionary)
    state = played.state()
    state.update(X, y)
    while dictionary.seen[-1][-1] is None:  # to where a batch begins
        X, y = torch.cat([X, X[:1]]), torch.cat([y, y[:1]])
        state.update(X[-1:], y[-1:])
    frozen, spent = Scratch(matern(1.5), state.anchors.clone(), X, y, 1.0).answers(Z)["variance"], 0.0
    batch = played.choose_batch(state, Z, 100)
    over = [1 + (spent := spent + float(frozen[index])) > growth for index in batch]
    assert over == [False] * (len(batch) - 1) + [True]
    assert 1 < len(batch) < 100
    assert played.choose_batch(state, Z, 2) == batch[:2]  # and the state is unchanged
    dictionary.seen.clear()
    state.update(Z[batch], torch.zeros(len(batch)).to(Z))
    assert [entry[-1] is not None for entry in dictionary.seen] == over  # observed, it ends where it was foreseen to


@pytest.mark.parametrize("name", ["sketched-cmm", "bkb", "ek-ucb", "cmm-ucb", "random"])
def test_batches_of_any_method_are_of_the_given_size(device, name):
    (X, y), Z = stream(30, 30, device), unit_square(25, 6).to(device)
    state = method(name).state(Z)
    state.update(X, y)
    batch = method(name).choose_batch(state, Z, 5, seeded(1))
    assert len(batch) == 5
    assert len(set(batch)) > 1
    assert method(name).choose_batch(state, Z, 1, seeded(1)) == batch[:1]
    for size in (0, -1, math.nan):
        with pytest.raises(InvalidInput):
            method(name).choose_batch(state, Z, size)


def test_stages_have_no_batches(device):
    Z, played = unit_square(10, 6).to(device), method("supk-ucb")
    with pytest.raises(InvalidInput, match="one point at a time"):
        played.choose_batch(played.state(), Z, 3)


# SupK-UCB


def supk_ucb(arms: list[float], rewards: list[list[float]], ridge: float, width: float, horizon: int):
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
        return float(kx @ inverse @ torch.tensor([r for _, r in data], dtype=torch.float64)), width * variance**0.5

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
    played = Method("supk-ucb", kernel, 0.1, FixedWidth(0.6), rule=StagedElimination(horizon))
    Z, state, pulls = torch.tensor(arms, dtype=torch.float64, device=device)[:, None], played.state(), [0] * 5
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
    assert {1, 2, 3, None} <= set(learners)  # it learned in several stages, and took the best without learning
    assert {left for _, _, left in expected} > {2, 5}  # and eliminated


def test_an_update_without_a_choice_is_learned_by_no_stage(device):
    X, y = stream(3, 3, device)
    state = method("supk-ucb").state()
    assert isinstance(state, Stages)
    state.update(X, y)
    assert state.n == 3
    assert [stage.n for stage in state.stages] == [0] * 7


def test_staged_elimination_has_far_less_regret_than_random_choice():
    regret = {}
    for name in ("supk-ucb", "random"):
        regret[name] = 0.0
        for seed in range(2):
            problem = RKHSBandit("rbf", 0.5, dim=2, norm=3.0, noise_std=0.05, n_arms=15, fixed=True, seed=seed)
            played = recipes.make(name, problem.kernel, 0.05, 3.0, 0.1, horizon=300, n_points=15)
            if name == "supk-ucb":
                played = played.with_multiplier(0.05)
            regret[name] += list(bandit.play(played, problem, 300, seed))[-1]["cumulative"]
    assert regret["supk-ucb"] < 0.3 * regret["random"]


# Recipes

OWN_RIDGE = ["random", "gp-ucb", "igp-ucb", "amm-ucb", "dmm-ucb", "cmm-ucb", "cmm-ucb-doubling", "cmm-ucb-practical"]
OWN_RIDGE += [
    "chaining-ucb",
    "chaining-ucb-rigorous",
    "kernel-ucb-oracle",
    "kernel-ucb-fixed",
    "kernel-ts-oracle",
    "kernel-ts-fixed",
]
ADAPTIVE = ["kernel-ucb-adaptive", "kernel-ts-adaptive", "dmm-ucb-adaptive", "cmm-ucb-adaptive"]
SKETCHED = ["bkb", "bbkb", "c-bkb", "c-bbkb", "ek-ucb", "sketched-cmm"]


def test_recipes_state_their_noise_level_norm_bound_and_rule():
    upper = {"kernel-ucb-fixed", "kernel-ts-fixed"}
    unused = {"random", "ucb", "gp-ucb", "chaining-ucb", "chaining-ucb-rigorous", "kernel-ts"}
    sampled = {"kernel-ts-oracle", "kernel-ts-fixed", "kernel-ts-adaptive", "kernel-ts"}
    for name in recipes.names():
        recipe, made = recipes.get(name), method(name)
        assert recipe.noise == ("online" if name in ADAPTIVE else "upper bound" if name in upper else "given")
        assert recipe.norm == (
            "estimated"
            if name in ("cmm-ucb-doubling", "cmm-ucb-practical")
            else "unused"
            if name in unused
            else "given"
        )
        assert recipe.draws == made.rule.draws == (name in sampled)
        assert recipe.has_bounds == made.has_bounds == (name != "random")
        assert recipe.fixed_kernel == isinstance(made.confidence, Chaining)
        assert recipe.needs_horizon == (name in ("igp-ucb", "supk-ucb"))
        assert recipe.needs_finite_set == (name in ("gp-ucb", "supk-ucb"))


@pytest.mark.parametrize("name", recipes.names())
def test_a_recipe_does_without_what_it_does_not_use_and_names_what_is_missing(name):
    recipe = recipes.get(name)
    given = {"noise_std": SIGMA, "norm_bound": NORM, "horizon": 100, "n_points": 40, "noise_upper": 1.0}
    needed = {*recipe.needs} | ({"norm_bound"} if recipe.norm == "given" else set())
    needed |= {"given": {"noise_std"}, "upper bound": {"noise_upper"}, "online": set()}[recipe.noise]
    for what in given:
        numbers = {"kernel": matern(1.5), "delta": DELTA, **given, what: None}
        if what in needed:
            with pytest.raises(InvalidInput, match=f"{name}.* needs {what}: pass {what}="):
                recipes.make(name, **numbers)
        else:
            recipes.make(name, **numbers)


def test_unknown_and_unused_options_are_refused():
    with pytest.raises(InvalidInput, match="no option 'horizont': did you mean 'horizon'"):
        method("igp-ucb", horizont=3)
    with pytest.raises(InvalidInput, match="'cmm-ucb' has no grid of ridges: do not pass ridges"):
        method("cmm-ucb", ridges=[0.1])
    with pytest.raises(InvalidInput, match="rests on noise bounds of variant 'mixture' or 'mix"):
        method("dmm-ucb-adaptive", noise_variant="paper")
    with pytest.raises(InvalidInput, match="'cmm-ucb' does not bound the noise level"):
        method("cmm-ucb", noise_variant="mixture")
    with pytest.raises(InvalidInput, match="'ay-gp-ucb' averages over no scales"):
        method("ay-gp-ucb", scale=[1.0, 4.0])
    assert method("kernel-ts-adaptive", noise_variant="paper").noise.variant == "paper"
    assert method("cmm-ucb", scale=[1, 4, 16]).ridge == pytest.approx(SIGMA**2 / 4)


def test_an_entry_is_all_that_a_new_recipe_needs(monkeypatch, device):
    class OtherPosterior(KernelRidge):
        pass

    entry = replace(recipes.get("amm-ucb"), name="other-ucb", posterior=OtherPosterior)
    monkeypatch.setitem(recipes.RECIPES, "other-ucb", entry)
    assert "other-ucb" in recipes.names()
    played = method("other-ucb")
    assert isinstance(played.state(), OtherPosterior)
    rewards = []
    for name in ("other-ucb", "amm-ucb"):
        problem = RKHSBandit(n_arms=15, seed=1)
        made = recipes.make(name, problem.kernel, 0.1, 10.0, 0.1)
        rewards.append([row["regret"] for row in bandit.play(made, problem, 15)])
    assert rewards[0] == rewards[1]
    X, y = stream(3, 3, device)
    assert isinstance(played.model(X, y.unsqueeze(-1)).state, OtherPosterior)


def test_rules_without_a_model_or_an_acquisition_function_refuse_it(device):
    X, y = stream(5, 3, device)
    with pytest.raises(InvalidInput, match="no model"):
        method("supk-ucb").model(X, y.unsqueeze(-1))
    model = method("random").model(X, y.unsqueeze(-1))
    with pytest.raises(InvalidInput, match="no acquisition function"):
        method("random").acquisition(model)
    assert method("amm-ucb").acquisition(model).confidence.kind == "amm"
    with pytest.raises(InvalidInput, match="UpperBound needs"):
        Method("none", matern(1.5), RIDGE, None)


def test_every_recipe_is_of_a_known_kind():
    free = {"ucb", "ay-gp-ucb", "k-ucb", "supk-ucb", "kernel-ts", *SKETCHED} - {"sketched-cmm"}
    assert set(recipes.names()) == free | {*OWN_RIDGE, *ADAPTIVE, "sketched-cmm"}
    for name in recipes.names():
        assert (method(name).dictionary is not None) == (name in SKETCHED)
        assert (method(name).noise is not None) == (name in ADAPTIVE)
        if name in free:
            assert method(name, ridge=0.37).ridge == 0.37
            assert method(name, scale=2.0).ridge == pytest.approx(SIGMA**2 / 2)
        else:
            with pytest.raises(InvalidInput, match="ridge of its own"):
                method(name, ridge=0.37)


@pytest.mark.parametrize("ridge", [0.0, -1.0, math.nan, "small"])
def test_impossible_ridges_are_refused(ridge):
    with pytest.raises(InvalidInput):
        method("bkb", ridge=ridge)


def test_a_sketched_recipe_takes_a_dictionary_and_an_exact_one_refuses_it():
    dictionary = GreedyDictionary(0.1)
    for name in recipes.names():
        if name in (*SKETCHED, *ADAPTIVE, "kernel-ts", "ucb"):
            assert method(name, dictionary=dictionary).dictionary is dictionary
        else:
            with pytest.raises(InvalidInput, match="exact posterior"):
                method(name, dictionary=dictionary)
    assert isinstance(method("bkb").dictionary, LeverageResampling)
    assert not isinstance(method("bkb").dictionary, BatchedResampling)
    assert isinstance(method("bbkb").dictionary, BatchedResampling)
    assert isinstance(method("ek-ucb", ridge=0.4).dictionary, OnlineRowSampling)
    assert method("ek-ucb", ridge=0.4).dictionary.mu == method("ek-ucb", ridge=0.4).confidence.projection == 0.4
    assert method("ek-ucb", ridge=0.4, dictionary=OnlineRowSampling(0.7)).confidence.projection == 0.7
    assert method("ek-ucb", ridge=0.4, dictionary=dictionary).confidence.projection == 0.4


def test_recipes_have_the_bound_of_their_paper():
    kinds = {"k-ucb": SelfNormalized, "bkb": BKB, "c-bbkb": BKB, "ek-ucb": EKUCB}
    assert {name: type(method(name).confidence) for name in kinds} == kinds
    width = widths.valko(40, 100, RIDGE, SIGMA, NORM, DELTA)
    expected = SIGMA * math.sqrt(2 * math.log(2 * 100 * 40 * 7 / DELTA)) / math.sqrt(RIDGE) + NORM
    assert width == pytest.approx(expected)
    assert method("supk-ucb", ridge=RIDGE).confidence.multiplier == pytest.approx(expected)


def test_a_multiplier_replaces_the_bound_by_standard_deviations_of_the_leverage(device):
    (X, y), Z = stream(30, 30, device), unit_square(10, 6).to(device)
    for name in recipes.names():
        if name in ("random", *ADAPTIVE):
            with pytest.raises(InvalidInput, match="multiplier"):
                method(name, multiplier=0.1)
            continue
        played = method(name, multiplier=0.1)
        state = played.state()
        state.update(X, y)
        assert played.rule == method(name).rule
        mean, variance = state.predict(Z)
        close(played.confidence.upper(state, Z), mean + 0.1 * (variance / played.ridge).sqrt(), 1e-10)
        assert played.confidence.guarantee is None
        with pytest.raises(InvalidInput):
            method(name, multiplier=-0.1)


@pytest.mark.parametrize(
    ("name", "environment"),
    [(name, "bump") for name in recipes.names()] + [("dmm-ucb", "chessboard"), ("dmm-ucb", "step-diagonal")],
)
def test_every_recipe_plays_with_contexts(name, environment):
    problem = BANDITS[environment](seed=1)
    played = recipes.make(name, problem.kernel, 0.1, 30.0, 0.1, horizon=12, n_points=problem.n_arms, noise_upper=0.5)
    rows = list(bandit.play(played, problem, 12, 1))
    assert len(rows) == 12
    assert all(math.isfinite(row["regret"]) and row["regret"] >= 0 for row in rows)


@pytest.mark.parametrize("name", ["k-ucb", "ek-ucb", "c-bkb", "c-bbkb"])
def test_contextual_methods_learn(name):
    regret = {}
    for one in (name, "random"):
        problem = BANDITS["chessboard"](seed=2)
        ridge = {} if one == "random" else {"ridge": 1.0, "multiplier": 0.1}
        played = recipes.make(one, problem.kernel, 0.1, 30.0, 0.1, **ridge)
        regret[one] = list(bandit.play(played, problem, 250, 2))[-1]["cumulative"]
    assert regret[name] < 0.6 * regret["random"]
