"""Targets of the practical model: the map from values, its inverse, and the choice of its power."""

import math

import pytest
import torch
from scipy import stats

from kbo.optimize.targets import Targets, least_skewed, linear
from tests.dense import close

VALUES = torch.linspace(-6, 9, 41, dtype=torch.float64)


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 1.75, 2.0])
def test_the_transformation_is_that_of_yeo_and_johnson_and_has_an_inverse(power):
    targets = Targets(power=power)
    close(targets(VALUES), torch.from_numpy(stats.yeojohnson(VALUES.numpy(), power)), 1e-12)
    moved = Targets(centre=2.0, spread=3.0, power=power, location=0.4, unit=1.7)
    close(moved.values(moved(VALUES)), VALUES, 1e-12)
    step = 1e-6 * torch.tensor([-1.0, 1.0], dtype=torch.float64)
    below, above = moved.values(step).tolist()
    assert moved.scale == pytest.approx((above - below) / 2e-6, rel=1e-6)


def test_values_below_the_floor_count_as_the_floor_and_equal_values_are_no_error():
    y = torch.tensor([1.0, 2.0, 3.0, 4.0, -1e6], dtype=torch.float64)
    plain = linear(y)
    assert plain.floor == pytest.approx(1 - 1.5 * 2)
    assert float(plain(y)[-1]) == pytest.approx((plain.floor - plain.centre) / plain.spread)
    assert abs(float(plain(y).mean())) < 1e-12
    equal = least_skewed(torch.full((5,), 7.0, dtype=torch.float64))
    assert equal == Targets(7.0, 1.0)


def test_the_power_is_the_most_likely_one():
    normal = torch.from_numpy(stats.norm.ppf((torch.arange(200).numpy() + 0.5) / 200))
    assert least_skewed(normal) == linear(normal)
    skewed = -normal.exp()  # a long tail of bad values
    found = least_skewed(skewed)
    assert found.power > 1.5
    assert abs(stats.skew(found(skewed).numpy())) < 0.3 < abs(stats.skew(linear(skewed)(skewed).numpy()))
    plain = linear(skewed)
    z = ((skewed.clamp_min(plain.floor) - plain.centre) / plain.spread).numpy()
    likelihoods = [stats.yeojohnson_llf(i / 8, z) for i in range(17)]
    assert found.power == max(range(17), key=likelihoods.__getitem__) / 8


def test_densities_of_the_same_values_can_be_compared():
    y = torch.tensor([0.3, -1.2, 2.5, 0.9], dtype=torch.float64)
    one, other = Targets(power=1.5, location=0.2, unit=1.3), Targets()
    h = 1e-6
    for targets in (one, other):
        slopes = (targets(y + h) - targets(y - h)) / (2 * h)
        assert targets.log_slope(y) == pytest.approx(float(slopes.log().mean()), abs=1e-8)
    assert math.isclose(other.log_slope(y), 0.0, abs_tol=1e-12)
