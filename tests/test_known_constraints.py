"""Constraints on parameters: which points satisfy them, uniform ones among those, and runs that stay inside."""

import json

import pandas as pd
import pytest
import torch

import kbo
from kbo import Float, Int, InvalidInput, Linear, Ordinal, Space, When
from kbo.optimize.search.search import Search
from kbo.optimize.search.subspace import Subspace

SQUARE = {"a": (0.0, 1.0), "b": (0.0, 1.0)}
GRID = {"a": (0, 4), "b": (0, 4)}
TABLE = pd.DataFrame({"a": [1, 2, 3], "name": ["x", "y", "z"]})


def total(**limits):
    return Linear({"a": 1, "b": 1}, **limits)


SUM = total(upper=1)
BRANCHES = [{"kind": ["s", "t"], "a": (0.0, 1.0)}, When("kind", "s", {"b": (0.5, 1.0)})]


def inside_disk(params):
    return (params["a"] - 0.3) ** 2 + (params["b"] - 0.3) ** 2 <= 0.001


def on_the_left(params):
    return params["a"] < 0.5


def to_the_edge(params):
    """A value that is best outside of all constraints here."""
    return (params["a"] - 0.8) ** 2 + (params["b"] - 0.8) ** 2


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def uniform(space, n):
    return torch.rand(n, space.dimension, generator=rng(), dtype=torch.float64)


def test_a_sum_is_of_the_values_that_the_objective_gets_without_inactive_ones():
    whole = {"a": Int(-7, 8, step=3), "o": Ordinal([16, 32, 64]), "on": bool, "one": 3}
    steps = {"a": Float(1e-3, 10, log=True), "n": Int(1, 40, log=True), "s": Float(0, 1, step=0.1)}
    for bounds, limit in (
        (steps, Linear({"a": 1, "n": -0.2, "s": 3}, lower=-2, upper=1.5)),
        (whole, Linear({"a": 2, "o": 1, "on": 20, "one": 1}, upper=50)),
        (BRANCHES, Linear({"a": 1, "b": 1}, upper=1.2)),
    ):
        space = Space(bounds, [limit])
        U = uniform(space, 150)
        low, high = limit.ends
        for u, inside in zip(U, space.satisfies(U).tolist(), strict=True):
            params = space.params(u)
            total = sum(w * params.get(name, 0) for name, w in limit.weights.items())
            assert inside == (low <= total <= high)
        assert 0 < int(space.satisfies(U).sum()) < len(U)


def test_rounding_errors_violate_nothing():
    space = Space({name: Float(0, 1, step=0.1) for name in "ab"}, [total(upper=0.3, lower=0.3)])
    points = space.points(1000)
    assert [space.params(u)["a"] for u in points] == [0.0, 0.1, 0.2, 0.3]
    assert not space.violated({"a": 0.1, "b": 0.2})


def test_functions_are_called_where_the_sums_are_within_their_limits():
    seen = []

    def noted(params):
        seen.append(params)
        return params[0] < 0.5

    space = Space([(0, 1), (0, 1)], [Linear({0: 1, 1: 1}, upper=1), noted])
    U = uniform(space, 50)
    assert space.satisfies(U).tolist() == [a + b <= 1 and a < 0.5 for a, b in U.tolist()]
    assert seen == [[a, b] for a, b in U.tolist() if a + b <= 1]
    assert space.violated([0.9, 0.3]) == ["x0 + x1 <= 1"]
    assert space.violated([0.6, 0.3])[0].endswith("noted")


@pytest.mark.parametrize(
    ("bounds", "constraints", "says"),
    [
        (SQUARE, [total(upper=-1)], "no point satisfies 'a [+] b <= -1'"),
        (SQUARE, [Linear({"a": 1}, upper=0.9), SUM, total(lower=1.5)], "'a [+] b >= 1.5' contr"),
        (GRID, [Linear({"a": 2, "b": 2}, upper=5, lower=5)], "satisfies '2 a [+] 2 b = 5'"),
        (BRANCHES, [Linear({"b": 1}, lower=0.6), total(upper=0.5)], "contradict"),
        (SQUARE, [total(upper=1, lower=1)], "with lower = upper, leaves no room for 'b': leave"),
        (SQUARE, [SUM, total(lower=1)], "no room.*leave one of them out"),
        (SQUARE, [Linear({"c": 1}, upper=1)], "there is no parameter 'c'"),
        ({"a": ["x", "y"]}, [Linear({"a": 1}, upper=1)], "'a' has values that are no numbers"),
        (TABLE, [Linear({"a": 1}, upper=0)], "no row of the table of candidates"),
        (SQUARE, [lambda params: True], "constraints.0. must be a function with a name"),
        ({"a": (3, 9), "b": (0, 9)}, [inside_disk], "no point of the space satisfies '.*_disk'"),
    ],
)
def test_constraints_that_cannot_be_satisfied_or_used_are_refused(bounds, constraints, says):
    with pytest.raises(InvalidInput, match=says):
        Subspace(Space(bounds, constraints)).sample(rng())


def test_a_sum_without_weights_or_limits_is_refused():
    with pytest.raises(InvalidInput, match=r"weights of \['a'\] are 0"):
        Linear({"a": 0.0, "b": 1}, upper=1)
    with pytest.raises(InvalidInput, match="has no limit"):
        Linear({"a": 1})
    with pytest.raises(InvalidInput, match="lower = 2 is above upper = 1"):
        Linear({"a": 1}, upper=1, lower=2)


def test_functions_that_raise_or_do_not_decide_are_named_with_the_parameters():
    def raises(params):
        return 1 / 0

    def undecided(params):
        return "yes"

    for rule, says in ((raises, "raises raised ZeroDivisionError.*'a'"), (undecided, "got 'yes'")):
        with pytest.raises(InvalidInput, match=says):
            kbo.minimize(to_the_edge, SQUARE, 2, constraints=[rule])


def test_points_are_uniform_also_in_a_millionth_of_the_cube():
    """The simplex in 9 dimensions, of volume 1/9!: its coordinates have mean 1/10 and variance 9/1100."""
    names = [f"x{i}" for i in range(9)]
    space = Space(dict.fromkeys(names, (0.0, 1.0)), [Linear(dict.fromkeys(names, 1), upper=1)])
    restriction = Subspace(space)
    X = torch.cat([restriction.draw(1024, rng(seed)) for seed in range(2)])
    assert bool(space.satisfies(X).all())
    assert (10 * X.mean(0) - 1).abs().max() < 0.2
    assert (X.var(0) * 1100 / 9 - 1).abs().max() < 0.3
    assert float(X.sum(-1).mean()) == pytest.approx(0.9, abs=0.01)


MANY = [f"n{i}" for i in range(6)]
CUBE = dict.fromkeys("abc", (0.0, 1.0))
NARROW = {
    "slab": (CUBE, [Linear(dict.fromkeys(CUBE, 1), upper=1, lower=1 - 2e-6)]),
    "whole numbers": (
        dict.fromkeys(MANY, (0, 50)),
        [Linear(dict.fromkeys(MANY, 1), upper=60, lower=60)],
    ),
    "disk": (SQUARE, [inside_disk]),
}


@pytest.mark.parametrize("name", NARROW)
def test_searches_and_designs_stay_inside_narrow_sets(name):
    space = Space(*NARROW[name])
    restriction = Subspace(space)
    drawn = restriction.draw(100, rng())
    assert bool(space.satisfies(drawn).all())
    assert len({str(space.params(u)) for u in drawn}) > 75

    def score(features):
        return -(features - 0.4).square().sum(-1)

    search = Search(space, restriction, drawn[:3], 0, rng(), 0.2)
    found = torch.stack([search.argmax_point(score), search.argmax_point_near(score, 0.2)])
    assert bool(space.satisfies(found).all())
    assert score(space.features(found))[0] >= score(space.features(drawn)).max()


def test_every_point_of_a_run_satisfies_the_constraints():
    limits = [SUM, Linear({"a": 1}, lower=0.2)]
    for method in ("random", "ucb"):
        result = kbo.minimize(to_the_edge, SQUARE, 12, method=method, constraints=limits)
        assert not any(result.optimizer.space.violated(trial.params) for trial in result.trials)
    assert result.params == {"a": pytest.approx(0.5, abs=0.03), "b": pytest.approx(0.5, abs=0.03)}
    assert result.optimizer.best({"a": 0.7})["b"] <= 0.3 + 1e-9


def test_contexts_choices_and_first_points_must_leave_something_that_satisfies_the_constraints():
    optimizer = kbo.Optimizer(SQUARE, constraints=[SUM])
    assert optimizer.ask(context={"a": 0.9})["b"] <= 0.1
    choices = [{"a": 0.9, "b": 0.9}, {"a": 0.1, "b": 0.1}]
    assert optimizer.ask(choices=choices) == choices[1]
    with pytest.raises(InvalidInput, match=r"violates the constraints 'a [+] b <= 1'"):
        optimizer.ask(choices=choices[:1])
    with pytest.raises(InvalidInput, match=r"no point with 'a' as given satisfies"):
        kbo.Optimizer(SQUARE, constraints=[total(upper=0.5)]).ask(context={"a": 0.9})
    with pytest.raises(InvalidInput, match=r"try_first\[0\]: .* violates the constraints"):
        kbo.minimize(to_the_edge, SQUARE, 2, constraints=[SUM], try_first=choices)


def test_values_outside_are_data_but_never_recommended():
    known = pd.DataFrame({"a": [0.8, 0.1], "b": [0.8, 0.2], "value": [0.0, 1.0]})
    result = kbo.minimize(to_the_edge, SQUARE, 8, constraints=[SUM], evaluated=known)
    assert len(result.trials) == 10
    assert result.best_observed > 0.1
    assert not result.optimizer.space.violated(result.params)
    optimizer = kbo.Optimizer(SQUARE, constraints=[SUM])
    optimizer.tell({"a": 0.8, "b": 0.8}, 0.0)
    assert optimizer.recommended() is None


def test_a_rare_set_that_only_a_function_knows_is_searched_from_a_first_point():
    def tiny(params):
        return (params["a"] - 0.3) ** 2 + (params["b"] - 0.3) ** 2 < 1e-6

    with pytest.raises(InvalidInput, match=r"among thousands of random ones .*tiny'.*try_first"):
        kbo.Optimizer(SQUARE, constraints=[tiny]).ask()
    optimizer = kbo.Optimizer(SQUARE, constraints=[tiny])
    optimizer.tell({"a": 0.3, "b": 0.3}, 0.5)
    found = optimizer.ask()
    assert tiny(found)
    assert found != {"a": 0.3, "b": 0.3}


def test_small_finite_spaces_and_tables_have_the_points_inside():
    space = Space(GRID, [total(upper=2)])
    result = kbo.minimize(lambda p: p["a"] - p["b"], space, 20, setting=kbo.Practical(noise_std=0))
    assert len({str(trial.params) for trial in result.trials}) == 6
    assert result.stopped.startswith("every point has been evaluated")
    assert result.params == {"a": 0, "b": 2}
    optimizer = kbo.Optimizer(Space(TABLE, [Linear({"a": 1}, upper=2)]))
    optimizer.tell({"a": 3, "name": "z"}, 0.0)  # a value is data
    assert {optimizer.ask()["name"], optimizer.ask()["name"]} == {"x", "y"}


def test_rows_of_a_table_satisfy_constraints_up_to_rounding_to_float32():
    space = Space(pd.DataFrame({"a": [0.2, 0.30000001, 0.31]}), [Linear({"a": 1}, upper=0.3)])
    assert space.satisfies(space.table).tolist() == [True, True]
    assert not space.violated({"a": 0.30000001})
    assert space.violated({"a": 0.31})


def test_sums_are_kept_in_files_and_functions_by_name_in_journals(tmp_path):
    space = Space(BRANCHES, [Linear({"a": 1 / 3, "b": -1}, upper=1), on_the_left])
    entries = json.loads(json.dumps(space.to_dict()))
    assert "0.3333333333333333 a - b <= 1" in entries
    with pytest.raises(InvalidInput, match=r"on_the_left'.*is given in Python"):
        Space.from_dict(entries)
    del entries[f"{__name__}.on_the_left"]
    assert Space(Space.from_dict(entries), [on_the_left]).describe() == space.describe()
    path, both = tmp_path / "run.jsonl", [SUM, on_the_left]
    kbo.minimize(to_the_edge, SQUARE, 3, constraints=both, journal=path)
    with pytest.raises(kbo.JournalError, match="on_the_left: only in the journal"):
        kbo.minimize(to_the_edge, SQUARE, 4, constraints=[SUM], journal=path)
    again = kbo.minimize(to_the_edge, SQUARE, 4, constraints=both, journal=path)
    straight = kbo.minimize(to_the_edge, SQUARE, 4, constraints=both)
    assert [trial.params for trial in again.trials] == [trial.params for trial in straight.trials]


def test_a_box_without_allowed_points_is_recognised_and_none_with_one():
    parameters = {
        "a": (0.0, 2.0),
        "b": Float(0.1, 10.0, log=True),
        "n": Int(1, 9),
        "o": Ordinal([3.0, 1.0, 2.0, 9.0, 4.0]),
    }
    limits = [
        Linear({"a": 1.0, "b": -0.5}, lower=0.2),
        Linear({"n": 1.0, "o": 2.0}, upper=14.0, lower=9.0),
    ]
    space = kbo.Space(parameters, limits)
    points = torch.rand(3000, 4, generator=rng()).double()
    allowed = space.satisfies(points)
    corners = torch.rand(400, 2, 4, generator=rng(1)).double()
    low, high = corners.amin(1), corners.amax(1)
    inside = ((low.unsqueeze(1) <= points) & (points <= high.unsqueeze(1))).all(-1)
    found = space.may_satisfy(low, high)
    assert bool(found[(inside & allowed).any(1)].all())
    assert 20 < int((~found).sum()) < 380
    assert torch.equal(space.may_satisfy(points, points), allowed)
