"""The local search of the practical setting: its box, the search in it, and when it takes place."""

import pytest
import torch

import kbo
from kbo.optimize.context import Restriction
from kbo.optimize.proposal import Search
from kbo.optimize.region import GROWTH, LEAST, SHRINKAGE, START, Region
from kbo.space import Space


def largest_mean(confidence, posterior, search):
    return search.argmax(lambda features: posterior.predict(features)[0])


def test_the_box_grows_after_a_better_observation_in_it_and_shrinks_after_a_worse_one():
    def observe(x, y):
        region.observe(torch.tensor([[x, 0.5]]).double(), y)
        return region.radius

    region = Region()
    assert observe(0.5, 0.0) == START
    assert observe(0.6, 1.0) == pytest.approx(GROWTH * START)
    assert observe(0.5, 0.5) == pytest.approx(GROWTH * SHRINKAGE * START)
    assert observe(0.0, 0.9) == pytest.approx(GROWTH * SHRINKAGE * START), "outside and worse: unchanged"
    for _ in range(3):
        observe(0.6, 0.0)
    assert observe(0.0, 2.0) == START, "outside and better: the first size again"
    while region.radius > LEAST / SHRINKAGE:
        observe(0.0, 0.0)
    assert observe(0.0, 0.0) == START


def test_the_local_search_follows_a_narrow_oblique_valley_inside_the_box():
    space, centre = Space([(0.0, 1.0)] * 4), torch.full((1, 4), 0.4).double()
    turn = torch.linalg.qr(torch.randn(4, 4, generator=torch.Generator().manual_seed(1)).double())[0]
    peak, curvature = torch.tensor([0.45, 0.3, 0.42, 0.7]).double(), torch.tensor([1.0, 10.0, 1e2, 1e3]).double()

    def found(radius):
        search = Search(space, Restriction(space), centre, 1, torch.Generator().manual_seed(0))
        return search.argmax_near(lambda U: -(((U - peak) @ turn).square() * curvature).sum(-1), radius)

    torch.testing.assert_close(found(0.35), peak, rtol=0, atol=1e-4)
    assert bool(((found(0.1) - centre).abs() <= 0.1 + 1e-12).all())


@pytest.mark.parametrize("noise_std", [0.0, 1.0])
def test_every_second_trial_is_near_the_best_one_if_there_is_no_noise(noise_std):
    space = Space([(0.0, 1.0)] * 3)
    optimizer, region, near = kbo.Optimizer(space, setting=kbo.Practical(noise_std=noise_std), seed=1), Region(), []
    for number in range(31):
        x = space.unit(optimizer.ask())
        if number > 6 and number % 2:
            best = space.unit(optimizer.recommended().params)
            near.append(float((x - best).abs().max()) <= region.radius)
        y = float((x - 0.3).square().sum() + (20 * x).sin().sum())
        optimizer.tell(space.params(x), y)
        region.observe(x.unsqueeze(0), -y)
    assert all(near) == (noise_std == 0)


@pytest.mark.parametrize("search", [None, largest_mean])
def test_a_small_finite_space_is_visited_without_repetitions_if_there_is_no_noise(search):
    setting = kbo.Practical(noise_std=0.0, search=search)
    bounds = {"n": kbo.Int(1, 5), "kind": ["a", "b"]}
    result = kbo.minimize(lambda p: (p["n"] - 2) ** 2 + (p["kind"] == "a"), bounds, n_trials=12, setting=setting)
    assert len({repr(trial.params) for trial in result.trials}) == 10, "one of the first points is drawn twice"
    assert result.params == {"n": 2, "kind": "b"}
