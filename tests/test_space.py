"""The three forms of a setting: params, unit coordinates, features."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kbo import Choice, Float, Int, InvalidInput
from kbo.space import Space

MIXED = {
    "lr": Float(1e-4, 1e-1, log=True),
    "layers": Int(1, 3),
    "width": Int(8, 256, log=True),
    "act": ["relu", "tanh", None],
}


@given(st.lists(st.floats(0, 1), min_size=4, max_size=4))
def test_params_to_unit_and_back_gives_the_same_params(unit):
    space = Space(MIXED)
    params = space.params(torch.tensor(unit, dtype=torch.float64))
    again = space.params(space.unit(params))
    assert again["lr"] == pytest.approx(params["lr"], rel=1e-12)
    assert {k: again[k] for k in ("layers", "width", "act")} == {k: params[k] for k in ("layers", "width", "act")}


@given(st.lists(st.floats(0, 1), min_size=4, max_size=4), st.lists(st.floats(0, 1), min_size=4, max_size=4))
def test_features_are_equal_exactly_where_integers_and_choices_are(a, b):
    space = Space(MIXED)
    U = torch.tensor([a, b], dtype=torch.float64)
    (p, q), F = (space.params(u) for u in U), space.features(U)
    assert torch.equal(F[0, 1:2], F[1, 1:2]) == (p["layers"] == q["layers"])
    assert torch.equal(F[0, 2:3], F[1, 2:3]) == (p["width"] == q["width"])
    assert torch.equal(F[0, 3:], F[1, 3:]) == (p["act"] == q["act"])


def test_every_value_of_a_range_is_reached_and_stays_inside():
    space = Space({"n": Int(1, 4), "x": Float(2.0, 8.0, log=True), "c": Choice("ab")})
    params = [
        space.params(u) for u in torch.rand(400, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    ]
    assert {p["n"] for p in params} == {1, 2, 3, 4}
    cells = [space.params(torch.tensor([u / 8 + 1 / 16, 0.5, 0.5], dtype=torch.float64))["n"] for u in range(8)]
    assert cells == [1, 1, 2, 2, 3, 3, 4, 4]  # the ends too have a whole cell
    assert {p["c"] for p in params} == {"a", "b"}
    assert all(2.0 <= p["x"] <= 8.0 for p in params)
    assert space.params(torch.ones(3, dtype=torch.float64)) == {"n": 4, "x": 8.0, "c": "b"}


def test_scaled_features_span_the_unit_interval_and_choices_are_at_distance_one():
    space = Space({"n": Int(2, 9), "w": Int(8, 256, log=True), "c": Choice("abc")})
    F = space.features(torch.tensor([[0.0, 0.0, 0.0], [1.0, 1.0, 0.99]], dtype=torch.float64))
    assert F[:, :2].tolist() == [[0, 0], [1, 1]]
    assert float((F[0, 2:] - F[1, 2:]).norm()) == pytest.approx(1)


def test_a_list_of_pairs_gives_the_objective_a_list():
    space = Space([(0, 1), (-2, 2)])
    assert space.params(torch.tensor([0.5, 0.5], dtype=torch.float64)) == [0.5, 0.0]


@pytest.mark.parametrize(
    ("bounds", "says"),
    [
        ({}, "empty"),
        ([], "empty"),
        ({"x": (1.0, 0.0)}, "reversed"),
        ({"x": (1.0, 1.0)}, "empty"),
        ({"x": (0.0, math.inf)}, "finite"),
        ({"x": (0.0, math.nan)}, "finite"),
        ({"x": Float(0, 1, log=True)}, "low > 0"),
        ({"x": Int(0.5, 2)}, "whole"),
        ({"x": ["only"]}, "two different"),
        ({"x": ["a", "a"]}, "two different"),
        ({"x": [object(), 1]}, "options must be"),
        ({"x": 3}, "kbo.Float"),
        ({"x": [0, 10]}, "range or a choice"),
        ({"x": [1, True, 2]}, "two different"),
        ({"x": [1.0, math.inf, 2]}, "finite"),
        (3, "dict of parameters"),
        ({"x": ("a", "b")}, "numbers"),
    ],
)
def test_bad_bounds_are_named(bounds, says):
    with pytest.raises(InvalidInput, match=says):
        Space(bounds)


@pytest.mark.parametrize("params", [{"x": 2.0}, {"y": 0.5}, {}, [0.5], {"x": "a"}])
def test_params_of_another_space_are_refused(params):
    with pytest.raises(InvalidInput, match="param"):
        Space({"x": (0.0, 1.0)}).unit(params)
