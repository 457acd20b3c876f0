"""Targets of any size: a bound is finite, or refutes its assumptions, or the target is refused where it enters."""

from __future__ import annotations

import math
from contextlib import suppress

import pytest
import torch
from torch import Tensor

from kbo import AdaptiveRidge, Certified, Int, KernelRidge, minimize
from kbo.confidence import (
    AdaptiveMixture,
    AdaptiveSelfNormalized,
    Confidence,
    MixtureNoiseBounds,
    UnknownNorm,
    norm_lower_bound,
)
from kbo.errors import InvalidInput, RefutedAssumptions
from kbo.regression import Posterior
from tests.laws.confidences import BOUNDS, Setting
from tests.laws.states import STATES, matern


def finite_or_refuted(bound: Confidence, state: Posterior, Z: Tensor) -> None:
    with suppress(RefutedAssumptions):
        lower, upper = bound.interval(state, Z)
        if bound.finite_on(state):
            assert torch.isfinite(torch.stack([lower, upper])).all(), bound
            assert (lower <= upper).all(), bound


@pytest.mark.parametrize("case", STATES, ids=lambda case: case.name)
@pytest.mark.parametrize("size", [1e-308, 1e100])
@pytest.mark.filterwarnings("ignore::kbo.errors.IllConditionedWarning")
def test_no_bound_is_nan_or_infinite_whatever_the_targets(case, size, device):
    X, y = case.data(12, device)
    Z, y[9] = torch.cat([case.points(4, 1).to(device), X[:2]]), size
    state = case.fed(X, y)
    bounds = [bound.make(Setting()) for bound in BOUNDS if not bound.other_numbers]
    bounds += [UnknownNorm(0.3, 0.1, kind) for kind in ("amm", "dmm", "cmm")]
    bounds += [AdaptiveSelfNormalized()] if state.schedule is not None else []
    for bound in bounds:
        finite_or_refuted(bound, state, Z)
    assert math.isfinite(norm_lower_bound(state, 0.3, 0.1))
    unknown = AdaptiveRidge(
        KernelRidge(case.kernel(), 0.1), MixtureNoiseBounds(8.0, 0.1, upper=1.0)
    )
    unknown.update(X, y)
    finite_or_refuted(AdaptiveMixture("dmm"), unknown, Z)
    for larger in (1e124, 1e308):
        with pytest.raises(InvalidInput, match=r"y has a value of size 1e\+"):
            state.update(X, y.new_full((12,), larger))
    assert state.n == 12


def are_finite(result) -> bool:
    return all(map(math.isfinite, (result.lower, result.value, result.upper, result.gap.value)))


@pytest.mark.parametrize(
    ("method", "size"),
    [("cmm-ucb", 1e100), ("dmm-ucb-adaptive", 1e308), ("chaining-ucb-rigorous", 1e308)],
)
def test_a_certified_run_refutes_a_value_that_its_assumptions_exclude(method, size):
    values = iter([0.1, -0.2, size, 0.3, 0.2, -0.1])
    space = {"a": Int(0, 3), "b": Int(0, 4)}
    noise_std = None if "adaptive" in method else 0.3
    norm_bound = None if "chaining" in method else 5.0
    setting = Certified(matern(2.5), noise_std, norm_bound)
    with pytest.raises(RefutedAssumptions) as refuted:
        minimize(lambda x: next(values), space, 6, setting=setting, method=method)
    told = [trial.value for trial in refuted.value.trials if trial.value is not None]
    assert told[2] == size


@pytest.mark.parametrize("values", [[1e300] * 9, [1.7e308, -1.7e308], [1e-300, 2e-300, 1e-310]])
def test_a_practical_run_has_finite_bounds_at_any_size(values):
    told = [0.1, -0.2, 0.3, 0.2, -0.1, 0.4, 0.1, *values]
    later = iter(told)
    assert are_finite(minimize(lambda x: next(later), [(0, 1)], len(told), method="ucb"))
