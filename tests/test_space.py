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
    space = Space({"n": Int(1, 4), "x": Float(2.0, 8.0, log=True), "c": Choice(["a", "b"])})
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
    space = Space({"n": Int(2, 9), "w": Int(8, 256, log=True), "c": Choice(["a", "b", "c"])})
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
        (lambda: {"x": Float(0, 1, log=True)}, "low > 0"),
        (lambda: {"x": Int(0.5, 2)}, "whole"),
        ({"x": ["only"]}, "two different"),
        ({"x": ["a", "a"]}, "two different"),
        ({"x": [object(), 1]}, "options must be"),
        ({"x": 3}, "kbo.Float"),
        ({"x": [0, 10]}, "range or a choice"),
        ({"x": [1, True, 2]}, "two different"),
        ({"x": [1.0, math.inf, 2]}, "finite"),
        (3, "dict of parameters"),
        ({"x": ("a", "b")}, "parameter 'x': low must be a finite number"),
        ({1: (0, 1), "1": (0, 1)}, "parameter 1: the name must be text"),
        ({"\ud800": (0, 1)}, "the name must be text"),
        ({"x": ["a", "\ud800"]}, "an option must be text"),
        ({"x": [1, 10**400, 2]}, "parameter 'x': an option must be a finite number"),
        ({"x": (-1e308, 1e308)}, "parameter 'x': .* float64"),
        (lambda: Float(1e-300, 1e300, log=True), "float64"),
        (lambda: Float(False, True), "low"),
        (lambda: Float(0, 10**400), "high"),
        (lambda: Float(1, 2, log="no"), "log must be True or False"),
        (lambda: Int(0, 2**63), "float64 cannot all tell apart"),
        (lambda: Int(10**17, 10**17 + 3), "float64 cannot all tell apart"),
        (lambda: Int("1", 3), "low"),
        (lambda: Choice("relu"), "must be a list"),
        (lambda: Choice({"a", "b"}), "must be a list"),
        (lambda: Choice(3), "must be a list"),
        ({"n": (0, 1), "c": Choice(range(20000))}, "parameter 'c': .* 20001 columns"),
        ([(0, 1)] * 30000, "30000 columns"),
    ],
)
def test_bad_bounds_are_named(bounds, says):
    with pytest.raises(InvalidInput, match=says):
        Space(bounds() if callable(bounds) else bounds)


@given(st.integers(-(2**50), 2**50), st.integers(1, 2**50), st.booleans(), st.floats(0, 1))
def test_every_whole_number_of_a_range_has_a_coordinate_of_its_own(low, width, log, u):
    most = 2**44 if log else 2**50
    low = min(low % most + 1 if log else low, most - 1)
    parameter = Int(low, min(low + width, most), log=log)
    for value in (parameter.low, parameter.high, parameter.high - 1, parameter.value(u)):
        unit = parameter.unit(value)
        assert 0 < unit < 1
        assert parameter.value(unit) == value
        assert 0 <= float(parameter.features(torch.tensor([unit], dtype=torch.float64))) <= 1


@given(st.floats(allow_nan=False), st.floats(allow_nan=False), st.booleans(), st.floats(0, 1))
def test_every_real_range_is_refused_or_works_to_its_ends(low, high, log, u):
    try:
        parameter = Float(low, high, log=log)
    except InvalidInput:
        return
    for value in (parameter.value(0.0), parameter.value(1.0), parameter.value(u)):
        assert low <= value <= high
        assert parameter.plain(value) == value
        assert 0 <= parameter.unit(value) <= 1


@pytest.mark.parametrize("value", [True, "0.5", b"0.5", 1j, math.nan, 10**400, torch.zeros(2), None, [], object()])
@pytest.mark.parametrize("bounds", [[(0, 1)], {"x": Int(0, 1)}, {"x": Choice([0.25, 0.75])}])
def test_values_that_are_no_numbers_are_refused(bounds, value):
    space = Space(bounds)
    with pytest.raises(InvalidInput, match="parameter 'x"):
        space.canonical({"x": value} if space.named else [value])


@pytest.mark.parametrize("params", [{"x": 2.0}, {"y": 0.5}, {}, [0.5], {"x": "a"}, 3, None, "x", {"x": "0.5"}])
def test_params_of_another_space_are_refused(params):
    with pytest.raises(InvalidInput, match="param"):
        Space({"x": (0.0, 1.0)}).unit(params)
