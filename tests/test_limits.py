import pytest
import torch

from kbo import InvalidInput, KernelRidge
from kbo.confidence import Limit, MartingaleMixture
from kbo.optimize.surrogates.fitting import unit_kernel


def test_certain_and_possible_are_the_slacks_of_the_two_bounds(device):
    state, bound = KernelRidge(unit_kernel(1), 0.01), MartingaleMixture(0.1, 1.0, 0.1)
    X = torch.linspace(0, 1, 9, dtype=torch.float64, device=device).unsqueeze(-1)
    state.update(X[::4], torch.tensor([0.3, -0.2, 0.5], dtype=torch.float64, device=device))
    lower, upper = bound.interval(state, X)
    above, below = Limit(state, bound, upper=0.4), Limit(state, bound, lower=-0.1)
    assert torch.equal(above.certain(X), 0.4 - upper)
    assert torch.equal(above.possible(X), 0.4 - lower)
    assert torch.equal(below.certain(X), lower + 0.1)
    assert torch.equal(below.possible(X), upper + 0.1)


def test_a_limit_is_one_finite_number():
    bound = MartingaleMixture(0.1, 1.0, 0.1)
    for limits in ({}, {"upper": 1.0, "lower": 0.0}, {"upper": float("nan")}):
        with pytest.raises(InvalidInput):
            Limit(KernelRidge(unit_kernel(1), 0.01), bound, **limits)
