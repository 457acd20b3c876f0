"""Contexts and action sets in the ask-tell optimiser: what is given stays, the rest is chosen for it."""

import json

import pytest
import torch
from gpytorch.kernels import MaternKernel

import kbo
from kbo.optimize.context import Restriction
from kbo.optimize.proposal import Search
from kbo.space import Space

PLANE = {"x": (0.0, 1.0), "c": (0.0, 1.0)}
MIXED = {
    "rate": kbo.Float(1e-4, 1e-1, log=True),
    "n": kbo.Int(1, 40, log=True),
    "kind": ["a", "b", "c"],
    "x": (0.0, 1.0),
}


def certified(noise_std=0.1, norm_bound=3.0):
    kernel = MaternKernel(nu=2.5).double()
    kernel.lengthscale = 0.5
    return kbo.Certified(kernel, noise_std=noise_std, norm_bound=norm_bound)


def learn(optimizer, rounds, seed=0, noise_std=0.02, target=lambda c: c):
    """Minimise (x - target(c))^2 in random contexts c."""
    chance = torch.Generator().manual_seed(seed)
    for _ in range(rounds):
        c = float(torch.rand((), generator=chance))
        params = optimizer.ask(context={"c": c})
        assert params["c"] == c
        noise = noise_std * float(torch.randn((), generator=chance))
        optimizer.tell(params, (params["x"] - target(c)) ** 2 + noise)
    return optimizer


def test_the_optimum_of_every_context_is_learnt():
    contexts, errors = (0.1, 0.3, 0.5, 0.7, 0.9), []
    for seed in range(3):
        optimizer = learn(kbo.Optimizer(PLANE, seed=seed), 40, seed)
        best = [optimizer.best({"c": c}) for c in contexts]
        assert [b["c"] for b in best] == list(contexts)
        errors += [(b["x"] - c) ** 2 for b, c in zip(best, contexts, strict=True)]
        lower, value, upper = optimizer.interval(best[1])
        assert lower <= value <= upper
    assert sum(errors) / len(errors) < 0.025  # 0.08 for the best x that is the same in all contexts


def test_maximising_in_contexts_mirrors_minimising():
    low, high = kbo.Optimizer(PLANE), kbo.Optimizer(PLANE, maximize=True)
    for i in range(12):
        context = {"c": (i % 4) / 3}
        x = low.ask(context=context)
        assert high.ask(context=context) == x
        low.tell(x, (x["x"] - x["c"]) ** 2)
        high.tell(x, -((x["x"] - x["c"]) ** 2))
    assert low.best({"c": 0.5}) == high.best({"c": 0.5})


@pytest.mark.parametrize("method", ["dmm-ucb", "cmm-ucb", "random"])
@pytest.mark.parametrize(
    "context",
    [
        {"rate": 0.0123456789},
        {"n": 7},
        {"kind": "b"},
        {"rate": 3e-3, "n": 40},
        {"n": 1, "kind": "c", "x": 0.1},
        {},
    ],
)
def test_contexts_of_every_kind_stay_exactly_as_given(method, context):
    optimizer = kbo.Optimizer(MIXED, setting=kbo.Practical(n_initial=4), method=method)
    seen = []
    for i in range(7):
        params = optimizer.ask(context=context)
        assert set(params) == set(MIXED)
        assert {name: params[name] for name in context} == context
        optimizer.space.canonical(params)
        seen.append(tuple(params.values()))
        optimizer.tell(params, params["x"] + 0.1 * i)
    assert len(set(seen)) > 3
    best = optimizer.best(context)
    if method == "random":
        assert best is None
    else:
        assert {name: best[name] for name in context} == context


def test_a_list_space_has_contexts_by_index():
    optimizer = kbo.Optimizer([(0, 1), (-2, 2)], setting=certified())
    for value in (0.3, 0.1, 1.7):
        params = optimizer.ask(context={1: value})
        assert isinstance(params, list)
        assert params[1] == value
        optimizer.tell(params, params[0])
    assert optimizer.best({0: 0.25})[0] == 0.25
    assert optimizer.ask(choices=[[0.5, 1.0], (0.25, -1.0)]) in ([0.5, 1.0], [0.25, -1.0])
    assert optimizer.ask(context={1: 0.5}, choices=[{0: 0.5}]) == [0.5, 0.5]


def test_the_best_of_a_context_has_the_largest_lower_bound_there():
    optimizer = learn(kbo.Optimizer(PLANE, setting=certified(), seed=2), 25)
    for c in (0.2, 0.8):
        _, _, least = optimizer.interval(optimizer.best({"c": c}))  # of a minimum, the pessimistic end is the upper one
        everywhere = [optimizer.interval({"x": i / 200, "c": c})[2] for i in range(201)]
        assert least <= min(everywhere) + 1e-3
        among = [{"x": i / 10} for i in range(11)]
        chosen = optimizer.best({"c": c}, choices=among)
        assert optimizer.interval(chosen)[2] == min(optimizer.interval({**x, "c": c})[2] for x in among)


def test_the_search_reaches_the_best_of_the_free_coordinates_and_leaves_the_others_alone():
    peak = torch.tensor([0.3, 0.9, 0.6, 0.2], dtype=torch.float64)
    scored = []

    def score(U):
        scored.append(U)
        return -(U - peak).square().sum(-1)

    space, starts = Space([(0.0, 1.0)] * 4), torch.rand(3, 4).double()
    search = Search(space, Restriction(space, {1: 0.5}), starts, 0, torch.Generator().manual_seed(0))
    expected = torch.where(search.restriction.fixed.isnan(), peak, search.restriction.fixed)
    torch.testing.assert_close(search.argmax(score), expected, rtol=0, atol=5e-3)
    assert bool((torch.cat(scored)[:, 1] == 0.5).all())
    assert float(search.argmax(score, lambda U: 0)[1]) == 0.5


@pytest.mark.parametrize("score", [lambda U: U, lambda U: U.sum(-1) * torch.nan, lambda U: 0.0])
def test_a_score_that_does_not_rank_the_points_is_refused(score):
    space = Space([(0.0, 1.0)] * 2)
    for options in ({}, {"choices": [[0.1, 0.2], [0.3, 0.4]]}):
        search = Search(space, Restriction(space, **options), torch.rand(3, 2).double(), 0, torch.Generator())
        with pytest.raises(kbo.InvalidInput, match=r"a score must be a tensor \[n\]"):
            search.argmax(score)


def test_choices_that_change_are_chosen_from_exactly():
    optimizer = learn(kbo.Optimizer(PLANE, setting=certified(), seed=1), 15)
    chance = torch.Generator().manual_seed(5)
    for _ in range(4):
        choices = [{"x": x, "c": c} for x, c in torch.rand(6, 2, generator=chance, dtype=torch.float64).tolist()]
        belief = optimizer.belief()
        state, confidence = belief.posterior, belief.confidence()
        features = torch.tensor([[p["x"], p["c"]] for p in choices], dtype=torch.float64)
        params = optimizer.ask(choices=choices)
        assert params == choices[confidence.argmax_upper(state, features)[0]]
        optimizer.tell(params, 0.0)


def test_choices_may_leave_out_what_the_context_gives():
    optimizer = learn(kbo.Optimizer(PLANE, setting=certified()), 20)
    near, far = {"x": 0.31}, {"x": 0.97}
    assert optimizer.best({"c": 0.3}, choices=[far, near]) == {"x": 0.31, "c": 0.3}
    assert optimizer.ask(context={"c": 0.3}, choices=[{"c": 0.3, "x": 0.5}]) == {"x": 0.5, "c": 0.3}


@pytest.mark.parametrize("method", ["random", "dmm-ucb"])
def test_choices_are_uniform_and_reproducible_while_there_is_no_bound(method):
    choices = [{"n": n, "c": "a"} for n in range(1, 6)]
    bounds = {"n": kbo.Int(1, 9), "c": ["a", "b"]}

    def asked(seed):
        optimizer = kbo.Optimizer(bounds, method=method, seed=seed)
        return [optimizer.ask(choices=choices)["n"] for _ in range(150)]

    first = asked(0)
    assert first == asked(0)
    assert first != asked(1)
    assert all(first.count(n) > 15 for n in range(1, 6))


def test_several_points_of_one_context_differ():
    optimizer = learn(kbo.Optimizer(PLANE, setting=certified()), 8)
    batch = optimizer.ask(4, context={"c": 0.5})
    assert {p["c"] for p in batch} == {0.5}
    assert len({p["x"] for p in batch}) == 4


def test_same_seed_and_events_give_the_same_points_also_across_a_reopening(tmp_path):
    whole = learn(kbo.Optimizer(PLANE, seed=3), 14)
    first = learn(kbo.Optimizer(PLANE, seed=3, journal=tmp_path / "j"), 14)
    assert [t.params for t in first.trials] == [t.params for t in whole.trials]
    first.close()
    again = kbo.Optimizer(PLANE, seed=3, journal=tmp_path / "j")
    for context in ({"c": 0.25}, {"x": 0.1}, None):
        assert again.ask(context=context) == whole.ask(context=context)
    choices = [{"x": 0.1, "c": 0.2}, {"x": 0.7, "c": 0.2}]
    assert again.ask(choices=choices) == whole.ask(choices=choices)
    assert again.best({"c": 0.4}) == whole.best({"c": 0.4})
    events = [json.loads(line) for line in (tmp_path / "j").read_text().splitlines()[1:]]
    assert {key for event in events for key in event} == {"event", "number", "params", "value", "time", "sum"}


def test_a_pending_point_comes_first_only_where_it_fits(tmp_path):
    first = kbo.Optimizer(PLANE, journal=tmp_path / "j")
    morning, evening = (first.ask(context={"c": c}) for c in (0.1, 0.9))
    first.close()
    second = kbo.Optimizer(PLANE, journal=tmp_path / "j")
    fresh = second.ask(context={"c": 0.5})
    assert fresh["c"] == 0.5
    assert second.ask(choices=[{"x": 0.5, "c": 0.5}, {"x": 0.25, "c": 0.5}])["c"] == 0.5
    assert second.ask(choices=[{"x": 0.5, "c": 0.5}, evening]) == evening
    assert [t.status for t in second.trials] == ["pending"] * 4
    assert second.ask(context={"c": 0.9}) != evening  # handed out once
    assert second.ask() == morning
    second.tell(evening, 1.0)
    second.close()
    third = kbo.Optimizer(PLANE, journal=tmp_path / "j")
    assert third.ask(context={"c": 0.9}) != evening
    assert third.ask(context={"c": 0.1}) != morning  # lost twice
    assert third.trials[0].status == "failed"
    assert third.ask() == fresh


def test_failures_in_contexts_are_as_bad_as_the_worst_value_seen():
    for setting, bad in ((certified(norm_bound=20.0), 2.0), (kbo.Practical(), 1e3)):
        optimizer = kbo.Optimizer(PLANE, setting=setting)
        for i in range(24):
            x = optimizer.ask(context={"c": (i % 3) / 2})
            if i % 7 == 5:
                optimizer.fail(x, "no reason")
            else:
                optimizer.tell(x, bad if i % 8 == 0 else x["x"])
        belief = optimizer.belief()
        worst = min(-t.value for t in optimizer.completed())
        assert belief.target(worst) == pytest.approx(float(belief.posterior.data.y.min()), rel=1e-12)
        assert optimizer.ask(context={"c": 0.5})["c"] == 0.5


def test_recommended_and_best_of_nothing():
    optimizer = kbo.Optimizer(PLANE)
    assert optimizer.best({"c": 0.5}) is None
    optimizer.tell({"x": 0.5, "c": 0.5}, 1.0)
    assert optimizer.best({"c": 0.5}) is None
    assert optimizer.recommended().params == {"x": 0.5, "c": 0.5}
    learn(optimizer, 10)
    assert set(optimizer.best()) == {"x", "c"}


@pytest.mark.parametrize(
    ("bounds", "given", "says"),
    [
        (PLANE, {"context": {"d": 1.0}}, r"no parameter 'd'; the parameters are \['x', 'c'\]"),
        (PLANE, {"context": {"c": 1.5}}, r"parameter 'c': expected a number in \[0, 1\], got 1.5"),
        (PLANE, {"context": {"c": float("nan")}}, "parameter 'c'"),
        (PLANE, {"context": {"c": None}}, "parameter 'c'"),
        (PLANE, {"context": {"c": 0.5, "x": 0.5}}, "fixes all parameters.*tell"),
        (PLANE, {"context": 0.5}, "context must be a dict from name to value"),
        (PLANE, {"choices": []}, "at least one dict"),
        (PLANE, {"choices": {"x": 0.5, "c": 0.5}}, "choices must be a list"),
        (PLANE, {"choices": [0.5]}, "must be values of"),
        (PLANE, {"choices": [[0.5, 0.5]]}, "must be values of"),
        (PLANE, {"choices": [{"x": 0.5}]}, r"lacks \['c'\]"),
        (PLANE, {"choices": [{"x": 0.5, "c": 2.0}]}, "choices: parameter 'c'"),
        (PLANE, {"choices": [{"x": 0.5, "c": 0.5, "d": 1}]}, "no parameter 'd'"),
        (PLANE, {"context": {"c": 0.5}, "choices": [{"x": 0.5, "c": 0.6}]}, r"contradicts the context at \['c'\]"),
        (MIXED, {"context": {"kind": "d"}}, "not one of"),
        (MIXED, {"context": {"n": 2.5}}, "expected a whole number"),
        ([(0, 1), (0, 1)], {"context": {2: 0.5}}, r"no parameter 2; the parameters are \[0, 1\]"),
        ([(0, 1), (0, 1)], {"context": {"x0": 0.5}}, "no parameter 'x0'"),
        ([(0, 1), (0, 1)], {"context": [0.5]}, "from index to value"),
        ([(0, 1), (0, 1)], {"choices": [[0.5]]}, "must be values of"),
    ],
)
def test_restrictions_that_do_not_fit_the_space_are_refused_and_leave_no_trace(bounds, given, says):
    optimizer = kbo.Optimizer(bounds)
    for ask in (optimizer.ask, lambda context=None, **more: optimizer.best(context, **more)):
        with pytest.raises(kbo.InvalidInput, match=says):
            ask(**given)
    assert optimizer.trials == []


def test_numpy_values_are_plain_in_contexts_and_choices():
    import numpy as np

    space = Space(MIXED)
    restriction = Restriction(
        space, {"n": np.int64(3), "kind": np.str_("b")}, [{"rate": np.float64(0.01), "x": np.float32(0.5)}]
    )
    params = restriction.params(restriction.choices[0])
    assert params == {"rate": 0.01, "n": 3, "kind": "b", "x": 0.5}
    assert [type(value) for value in params.values()] == [float, int, str, float]
    assert Restriction(Space([(0, 1)] * 2), {np.int64(1): 0.5}).fixed[1] == 0.5
