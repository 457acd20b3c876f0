"""The three forms of a setting: params, unit coordinates, features."""

import json
import math

import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kbo import Choice, Fixed, Float, Int, InvalidInput, Ordinal, Space, When
from kbo.optimize.surrogates.fitting import unit_kernel

BRANCHES = [
    {"model": ["svm", "forest"], "scaled": bool, "seed": 3},
    When("degree", [3, 4, 5], {"coef": Float(-1, 1, step=0.5)}),
    When("model", "svm", {"C": Float(1e-3, 1e3, log=True), "kernel": ["rbf", "poly"]}),
    When("kernel", "poly", {"degree": (2, 5)}),
    When("model", "forest", {"depth": Int(2, 12, step=5), "leaf": Ordinal([1, 5, 20])}),
]


def test_a_unit_cube_has_all_ranges_and_choices_are_at_distance_one():
    space = Space({"n": Int(1, 4), "x": Float(2.0, 8.0, log=True), "c": ["a", "b"]})
    cube = torch.tensor([[0.0], [0.5], [1.0]], dtype=torch.float64).expand(3, 3)
    assert space.params(cube[0]) == {"n": 1, "x": 2.0, "c": "a"}
    assert space.params(cube[1])["x"] == pytest.approx(4.0)
    assert space.params(cube[2]) == {"n": 4, "x": 8.0, "c": "b"}
    F = space.features(cube[::2])
    assert float((F[0, 2:] - F[1, 2:]).norm()) == pytest.approx(1)


@given(st.integers(-(2**50), 2**50), st.integers(1, 2**50), st.booleans(), st.floats(0, 1))
def test_every_whole_number_of_a_range_has_a_coordinate_of_its_own(low, width, log, u):
    most = 2**50
    if log:
        most = 2**44
        low = low % most + 1
    low = min(low, most - 1)
    parameter = Int(low, min(low + width, most), log=log)
    for value in (parameter.low, parameter.high, parameter.high - 1, parameter.value(u)):
        unit = parameter.unit(value)
        assert 0 < unit < 1
        assert parameter.value(unit) == value


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


LAWFUL = {
    "real": Float(-1.5, 0.4),
    "real, log, huge": Float(1e-150, 1e150, log=True),
    "real, coarser than its range": Float(1e9, 1e9 + 1e-3),
    "steps": Float(-0.3, 0.9, step=0.1),
    "10^9 steps": Float(0, 1, step=1e-9),
    "whole, steps": Int(-3, 9, step=4),
    "all whole numbers": Int(-(2**50), 2**50),
    "whole, log": Int(1, 5, log=True),
    "all whole numbers, log": Int(1, 2**44, log=True),
    "the largest whole numbers, log": Int(2**44 - 1, 2**44, log=True),
    "choice": Choice(["a", None, True, 2]),
    "ordinal": Ordinal([4, 1, 16, 2]),
    "fixed": Fixed(3),
}
"""Parameters of every kind, with every option and up to the documented sizes."""


def uniform(n):
    return torch.rand(n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("parameter", LAWFUL.values(), ids=LAWFUL)
def test_the_map_to_the_unit_interval_and_its_inverse_agree(parameter):
    U = torch.cat([torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64), uniform(300)])
    values = [parameter.value(u) for u in U.tolist()]
    assert values == parameter.values(U)
    if not parameter.options:
        assert (values[0], values[2]) == parameter.ends
    again = parameter.units(values)
    assert again.tolist() == [parameter.unit(value) for value in values]
    assert [parameter.plain(value) for value in values] == values
    found = [parameter.value(u) for u in again.tolist()]
    assert found == (values if parameter.options else pytest.approx(values, rel=1e-12))
    assert torch.allclose(parameter.features(U), parameter.features(again), rtol=0, atol=1e-9)
    if all(isinstance(value, (int, float)) for value in values):
        assert parameter.numbers(U).tolist() == list(map(float, values))


@pytest.mark.parametrize("name", [name for name, p in LAWFUL.items() if p.options])
def test_the_cells_of_options_cover_the_unit_interval_and_do_not_overlap(name):
    parameter = LAWFUL[name]
    n = len(parameter.options)
    edges = torch.arange(min(n, 100))
    positions = torch.cat([edges, n - 1 - edges, (n * uniform(500)).long()]).unique()
    middles = parameter.middles(positions)
    assert torch.equal(parameter.index(middles), positions)
    assert torch.equal(parameter.units([parameter.options[i] for i in positions.tolist()]), middles)
    lower = parameter.coordinate(positions.double())
    upper = parameter.coordinate(positions.double() + 1)
    assert bool(((lower < middles) & (middles < upper)).all())
    ends = parameter.coordinate(torch.tensor([0.0, n], dtype=torch.float64))
    assert ends.tolist() == pytest.approx([0.0, 1.0], abs=1e-15)
    # every coordinate is in the cell of its option, up to rounding, and none is before one of a smaller position
    U = torch.cat([uniform(2000), lower, upper]).clamp(0, 1).sort().values
    index = parameter.index(U)
    rounding = 1e-15
    if parameter.log:
        rounding += 8e-15 / math.log((parameter.high + 0.5) / (parameter.low - 0.5))
    assert bool((index.diff() >= 0).all())
    assert parameter.index(torch.tensor([0.0, 1.0]).double()).tolist() == [0, n - 1]
    assert bool((parameter.coordinate(index.double()) <= U + rounding).all())
    assert bool((parameter.coordinate(index.double() + 1) + rounding >= U).all())
    if n < 2**45:  # of more the cells are a few roundings wide
        inside = parameter.features((lower + middles) / 2)
        assert torch.equal(inside, parameter.features(middles))


def test_entries_of_a_dict_mean_one_kind_each():
    meant = {(2, 12): Int(2, 12), (0.0, 1): Float(0, 1), bool: Choice([False, True])}
    meant |= {7: Fixed(7), None: Fixed(None)}
    ordinal = Ordinal([16, 128])
    space = Space({str(entry): entry for entry in meant} | {"size": ordinal})
    assert list(space.parameters.values()) == [*meant.values(), ordinal]


@pytest.mark.parametrize(
    ("parameter", "values", "columns"),
    [
        (Float(0, 1, step=0.1), [i / 10 for i in range(11)], [i / 10 for i in range(11)]),
        (Ordinal(["low", "middle", "high"]), ["low", "middle", "high"], [0, 0.5, 1]),
        (Int(1, 4, log=True), [1, 2, 3, 4], [0, 0.5, math.log(3) / math.log(4), 1]),
    ],
)
def test_values_with_an_order_have_equal_cells_and_one_column(parameter, values, columns):
    units = parameter.units(values)
    assert list(parameter.options) == values == parameter.values(units)
    assert parameter.features(units).squeeze(-1).tolist() == pytest.approx(columns)
    if not parameter.log:
        n = len(values)
        assert units.tolist() == pytest.approx([(i + 0.5) / n for i in range(n)])


def test_params_hold_the_active_parameters_alone():
    space, ones = Space(BRANCHES), torch.ones(9, dtype=torch.float64)
    forest = {"model": "forest", "scaled": True, "seed": 3, "depth": 12, "leaf": 20}
    assert space.params(ones) == space.canonical(forest) == forest
    rbf = {"model": "svm", "scaled": True, "seed": 3, "C": 1e3, "kernel": "rbf"}
    poly = rbf | {"kernel": "poly", "degree": 5, "coef": 1.0}
    assert [space.params(u) for u in space.units([rbf, poly])] == [rbf, poly]
    for params in (
        forest | {"C": 1.0},
        {k: v for k, v in poly.items() if k != "coef"},
        poly | {"degree": 2},
    ):
        with pytest.raises(InvalidInput, match="params must have the parameters"):
            space.canonical(params)


@given(st.lists(st.integers(0, 16), min_size=18, max_size=18))
def test_params_are_equal_exactly_where_features_are_and_kernels_are_positive_definite(coordinates):
    space, U = Space(BRANCHES), torch.tensor(coordinates, dtype=torch.float64).reshape(2, 9) / 16
    p, q = (space.params(u) for u in U)
    again = space.units([p, q])
    assert torch.allclose(space.features(U), space.features(again), atol=1e-14)
    F = space.features(again)
    assert (p == q) == torch.equal(*F)
    K = unit_kernel(space.columns)(F).to_dense()
    assert float(torch.linalg.eigvalsh(K).min()) >= (0 if p == q else 1e-9) - 1e-12


def test_a_conditional_number_is_the_farther_from_another_the_farther_outside_of_a_changed_range():
    def conditional(low, high):
        return Space([{"model": ["svm", "forest"]}, When("model", "svm", {"C": Float(low, high)})])

    space = conditional(1.0, 2.0).replacing(conditional(-100.0, 100.0))
    absent = space.place({"model": "forest"})
    numbers = [-88.0, -6.0, 0.0, 1.0, 1.5, 2.0, 2.5, 6.0, 92.0]
    places = torch.stack([space.place({"model": "svm", "C": number}) for number in numbers])
    distances = torch.cdist(places, places)
    for i in range(len(numbers)):
        assert bool((distances[i, i:].diff() > 0).all())
        assert bool((distances[i, : i + 1].diff() < 0).all())
    assert bool(((places - absent)[:, 2:].norm(dim=-1) > 0.7).all())
    # Inside of the range all values are equally far from the absence.
    inside = space.features(space.units([{"model": "svm", "C": x} for x in (1.0, 1.5, 2.0)]))
    assert torch.allclose(inside, places[3:6])
    away = (inside - absent).norm(dim=-1)
    assert torch.allclose(away, away[:1].expand(3))


def test_the_points_of_a_finite_space_are_its_params_once():
    svm = When("model", "svm", {"kernel": ["rbf", "poly"]})
    space = Space([BRANCHES[0], svm, BRANCHES[3], BRANCHES[1], BRANCHES[4]])
    points = space.points(100)
    params = [space.params(point) for point in points]
    assert len(params) == 2 * (1 + 1 + 3 * 5 + 3 * 3) == len({repr(found) for found in params})
    assert torch.equal(space.units(params), points)
    assert space.points(51) is None


@pytest.mark.parametrize(
    ("bounds", "says"),
    [
        ({}, "empty"),
        ({"x": (1.0, 0.0)}, "reversed"),
        ({"x": (-1e308, 1e308)}, "parameter 'x': .* float64"),
        (lambda: Float(0, 1, step=0.3), "write 0.9 or 1.2"),
        (lambda: Int(10**17, 10**17 + 3), "float64 cannot all tell apart"),
        ({"x": [1, True, 2]}, "two different"),
        ({"x": "20-90"}, "looks like a range"),
        ({"x": ("relu", "tanh")}, "of two numbers, a list of options"),
        ({"n": (0.0, 1.0), "c": Choice(range(20000))}, "parameter 'c': .* 20001 columns"),
        ([{"x": bool}, When("y", 1, {"z": bool})], "parent must be one of 'x', 'z', got 'y'"),
        (
            [{"x": bool}, When("y", True, {"z": bool}), When("z", True, {"y": bool})],
            "'z', 'y'.* depend on each other",
        ),
        (lambda: Space({"x": (0.0, 1.0)}).unit({"x": 2.0}), "parameter 'x'"),
    ],
)
def test_bad_bounds_conditions_steps_and_params_are_named(bounds, says):
    with pytest.raises(InvalidInput, match=says):
        Space(bounds() if callable(bounds) else bounds)


def test_a_space_is_the_same_after_a_file(tmp_path):
    space = Space(BRANCHES)
    (tmp_path / "space.json").write_text(json.dumps(space.to_dict()))
    (tmp_path / "space.yaml").write_text(yaml.safe_dump(space.to_dict(), sort_keys=False))
    for name in ("space.json", "space.yaml"):
        assert Space.load(tmp_path / name).describe() == space.describe()
    text = "lr: {kind: Float, low: 1e-4, high: 1E-1}\nepochs: 10\nstir: [yes, no]\nfast: [true, false]\n"
    (tmp_path / "space.yml").write_text(text)
    meant = {"lr": Float(1e-4, 1e-1), "epochs": 10, "stir": ["yes", "no"], "fast": [True, False]}
    assert Space.load(str(tmp_path / "space.yml")).describe() == Space(meant).describe()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x: {kind: Float, low: 0\n", "space.yaml is not .*line 2"),
        ("x: {low: 0, high: 1}", "parameter 'x': kind must be one of 'Float', 'Int'"),
        (
            "x: [2, 12]",
            "{kind: Float, low: 2, high: 12}, .* or {kind: Choice, options: \\[2, 12\\]}",
        ),
    ],
)
def test_files_are_refused_with_the_line_or_the_entry(tmp_path, text, says):
    (tmp_path / "space.yaml").write_text(text)
    with pytest.raises(InvalidInput, match=says):
        Space.load(tmp_path / "space.yaml")


def test_an_entry_that_a_json_file_has_twice_is_refused(tmp_path):
    (tmp_path / "space.json").write_text('{"x": ["a", "b"], "x": ["a", "c"]}')
    with pytest.raises(InvalidInput, match="the entry 'x' is there twice"):
        Space.load(tmp_path / "space.json")
