"""The certified Pareto set: its rules point by point, and what it says of the true values."""

import pytest
import torch

from experiments.problems import RKHSBandit
from kbo import KernelRidge
from kbo.bandit.pareto import pareto_set
from kbo.confidence import FixedWidth, MartingaleMixture
from kbo.errors import InvalidInput
from kbo.optimize.surrogates.fitting import unit_kernel

NOISE, NORM = 0.05, 2.0


class Given(FixedWidth):
    """Intervals that are given."""

    def __init__(self, lower, upper):
        super().__init__(1.0)
        self.bounds = lower, upper

    def interval(self, state, X):
        return self.bounds


def better(a, b, by=0.0):
    """Whether a is at least b and a margin in every objective."""
    return bool((a >= b + by).all())


def classified(lower, upper, epsilon):
    points = torch.arange(len(lower)).to(lower).unsqueeze(-1)
    bounds = [Given(*sides) for sides in zip(lower.T, upper.T, strict=True)]
    return pareto_set([KernelRidge(unit_kernel(1), 1.0)] * len(bounds), bounds, points, epsilon)


@pytest.mark.parametrize("seed", range(2))
def test_points_are_classified_by_their_intervals(device, seed):
    rng, n = torch.Generator().manual_seed(seed), 2 + seed
    lower = torch.rand(40, n, generator=rng, dtype=torch.float64).to(device).mul(8).round() / 8
    upper = lower + 0.3 * torch.rand(lower.shape, generator=rng, dtype=torch.float64).to(device)
    epsilon = lower.new_tensor([0.05, 0.15, 0.1])[:n]
    found, every = classified(lower, upper, epsilon), range(len(lower))
    for x in every:
        in_front = not any(
            better(lower[z], lower[x]) and not torch.equal(lower[z], lower[x]) for z in every
        )
        out = not in_front and any(better(lower[z] + epsilon, upper[x]) for z in every)
        blocked = any(better(upper[z], lower[x], epsilon) for z in every if z != x)
        assert bool(found.discarded[x]) == out
        assert bool(found.accepted[x]) == (not out and not blocked)
    assert not found.discarded[found.widest]
    kept = ~found.discarded
    relative_width = ((upper - lower) / epsilon).amax(-1)
    assert relative_width[found.widest] == relative_width[kept].amax()
    assert found.guarantee is None
    assert classified(lower, lower + 0.09, 0.1).widest is None


def test_the_accepted_points_are_the_pareto_set_up_to_epsilon_by_the_true_values():
    options = {"lengthscale": 0.3, "dim": 1, "norm": NORM, "n_arms": 40, "fixed": True}
    bandits = [RKHSBandit(seed=i, **options) for i in range(2)]
    points = bandits[0].fixed_arms
    truth = torch.stack([bandit.mean(points) for bandit in bandits], -1)
    states = [KernelRidge(bandit.kernel, NOISE**2) for bandit in bandits]
    bounds = [MartingaleMixture(NOISE, NORM, 0.05, "dmm") for _ in bandits]
    noise, epsilon = torch.Generator().manual_seed(0), torch.tensor([0.3, 0.4], dtype=torch.float64)
    for _ in range(300):
        found = pareto_set(states, bounds, points, epsilon)
        assert not (found.accepted & found.discarded).any()
        if found.widest is None:
            break
        x = points[found.widest : found.widest + 1]
        values = truth[found.widest] + NOISE * torch.randn(2, generator=noise, dtype=torch.float64)
        for state, value in zip(states, values, strict=True):
            state.update(x, value.reshape(1))
    assert found.widest is None
    assert states[0].n < 100
    accepted = truth[found.accepted]
    assert all(any(better(a + epsilon, f) for a in accepted) for f in truth)
    assert not any(better(f, a, epsilon) for f in truth for a in accepted)
    assert found.guarantee is not None
    assert found.guarantee.endswith("all hold together with probability at least 1 - 0.1")


def test_arguments_that_cannot_be_are_named():
    given = {
        "states": [KernelRidge(unit_kernel(1), 1.0)],
        "confidences": [FixedWidth(1.0)],
        "points": torch.zeros(3, 1).double(),
        "epsilon": 0.1,
    }
    for name, value, words in (
        ("confidences", [], "must be lists"),
        ("points", torch.empty(0, 1).double(), "empty"),
        ("epsilon", 0.0, "above 0"),
    ):
        with pytest.raises(InvalidInput, match=words):
            pareto_set(**{**given, name: value})
