"""Whoever refills a tensor in place gets answers for its new values, and changes nothing that was made of the old ones.

Each entry makes something of a state and tensors of points and targets, and answers at points: once with tensors of its
own, once with tensors that are overwritten after every use. Both must agree bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from kbo.acquisition import KernelUCB
from kbo.acquisition.thompson import InflatedThompsonSampling
from kbo.acquisition.ucb import ChainingUCB
from kbo.confidence import FixedWidth, MartingaleMixture
from kbo.models import NystromGP
from kbo.regression import BatchView, FixedDictionary, FixedPoints, Hypothetical, Posterior
from tests.laws.confidences import BOUNDS, Bound, Setting
from tests.laws.states import STATES, State, matern, seeded, unit_square

RIDGES = [1e-3, 10.0]


class Buffers:
    """Tensors as a caller hands them over: one buffer a size, which the next of that size overwrites, or copies."""

    def __init__(self, refilled: bool) -> None:
        self.refilled = refilled
        self.kept = {}

    def __call__(self, values: Tensor, name: str = "points") -> Tensor:
        if not self.refilled:
            return values.clone()
        buffer = self.kept.setdefault((name, values.shape), values.clone())
        return buffer.copy_(values)

    def spoil(self) -> None:
        """Overwrite everything that was handed over."""
        for buffer in self.kept.values():
            buffer.copy_(torch.rand(buffer.shape, generator=seeded(99), dtype=buffer.dtype))


def agree(run: Callable[[Buffers], list[Tensor]]) -> None:
    torch.testing.assert_close(run(Buffers(True)), run(Buffers(False)), rtol=0, atol=0)


def values(state: Posterior, Z: Tensor) -> list[Tensor]:
    posterior = state.at()
    found = [*posterior.predict(Z), *state.at(RIDGES[0]).predict(Z)]
    return [*found, posterior.log_det(), posterior.quad(), posterior.covariance(Z, Z)]


@pytest.fixture(scope="session", params=STATES, ids=lambda case: case.name)
def case(request) -> State:
    return request.param


def learn(state: Posterior, case: State, use: Buffers, n: int = 12, seed: int = 0) -> None:
    """Observations in pieces of one size, all through the same two buffers."""
    X, y = case.data(n, "cpu", seed)
    for rows, targets in zip(X.split(6), y.split(6), strict=True):
        state.update(use(rows, "X"), use(targets, "y"))
        use.spoil()


def learned(case: State, use: Buffers) -> Posterior:
    state = case.make(case.kernel(), 0.1)
    learn(state, case, use)
    return state


def hypothetical(state: Posterior, points: Tensor, use: Buffers) -> Hypothetical:
    values = points[:3].sum(-1).sin()
    data = use(points[:3], "P"), use(values, "targets"), use(values.exp(), "weights")
    return Hypothetical(state, *data)


def tracked(state: Posterior, points: Tensor, use: Buffers) -> FixedPoints:
    return FixedPoints(state, use(points))


VIEWS = {
    "itself": lambda state, points, use: state,
    "tracked": tracked,
    "hypothetical": hypothetical,
    "batch-of-tracked": lambda state, points, use: BatchView(
        tracked(state, points, use), use(points)
    ),
}


@pytest.mark.parametrize("view", VIEWS)
def test_states_and_views(case, view):
    def run(use: Buffers) -> list[Tensor]:
        asked = [case.points(12, seed) for seed in (10, 11, 12)]  # the points of the view first
        seen = VIEWS[view](learned(case, use), asked[0], use)
        use.spoil()
        found = [value for Z in asked for value in values(seen, use(Z))]
        if "batch" in view:
            seen.observe(4)
        if view in ("itself", "tracked"):
            for Z in asked:
                path = seen.across(use(Z.unsqueeze(-2), "groups"))
                use.spoil()
                found += path.grid(RIDGES)
            drawn = seen.at().draw_function(use(asked[0]), seeded(3))
            use.spoil()
            found += [drawn(use(Z)) for Z in asked]
            learn(seen, case, use, seed=1)
        found += [value for Z in asked for value in values(seen, use(Z))]
        return [*found, *seen.predict(seen.points)] if view == "tracked" else found

    agree(run)


def test_points_that_are_tracked_are_recognised_by_their_values(case):
    """The very tensor that was given, refilled, is another set of points."""
    state = case.fed(*case.data(20, "cpu"))
    Z = case.points(12, 10)
    moved = case.points(12, 11)
    view = FixedPoints(state, Z)
    before = view.predict(Z)
    Z.copy_(moved)
    torch.testing.assert_close(view.predict(Z), state.predict(moved), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(view.predict(view.points), before, rtol=0, atol=0)


# Confidences


@pytest.mark.parametrize(
    "bound", [b for b in BOUNDS if not b.other_numbers], ids=lambda bound: bound.name
)
def test_confidences(bound: Bound):
    def run(use: Buffers) -> list[Tensor]:
        state = learned(STATES[0], use)
        confidence = bound.make(Setting())
        found = []
        for seen in (state, FixedPoints(state, use(unit_square(12, 10)))):
            use.spoil()
            for seed in (10, 11, 12):
                found += [*confidence.interval(seen, use(unit_square(12, seed)))]
                largest = confidence.argmax_upper(seen, use(unit_square(12, seed)))
                found.append(torch.tensor(largest))
        return found

    agree(run)


# Models and acquisition functions


def model(use: Buffers):
    X = unit_square(20, 1)
    anchors = FixedDictionary(use(unit_square(9, 30), "anchors"))
    Y = X.sum(-1, keepdim=True).sin()
    return NystromGP(use(X, "X"), use(Y, "Y"), matern(1.5), 0.1, anchors)


def test_models():
    def run(use: Buffers) -> list[Tensor]:
        first = model(use)
        use.spoil()
        Z = unit_square(5, 3)
        first.posterior(Z)
        use.spoil()
        new = unit_square(8, 4)
        larger = first.condition_on_observations(use(new[:4], "new"), use(new[:4, :1], "newY"))
        batches = use(new.reshape(2, 4, 2), "batch"), use(new[:, :1].reshape(2, 4, 1), "batchY")
        fantasy = first.condition_on_observations(*batches)
        use.spoil()
        found = []
        for one in (first, larger, fantasy):
            posterior = one.posterior(use(unit_square(5, 4)))
            found += [posterior.mean, posterior.variance]
        other = unit_square(20, 2)
        first.set_train_data(use(other, "X"), use(other[:, 0], "y"), strict=False)
        use.spoil()
        return [*found, first.posterior(Z).mean, *first.train_inputs, first.train_targets]

    agree(run)


ACQUISITIONS = {
    "bound": lambda model, use: KernelUCB(model, MartingaleMixture(0.3, 8.0, 0.1)),
    "pending": lambda model, use: KernelUCB(
        model, FixedWidth(2.0), X_pending=use(unit_square(3, 8), "pending")
    ),
    "chaining": lambda model, use: ChainingUCB(model, use(unit_square(40, 6), "set"), 0.1),
    "thompson": lambda model, use: InflatedThompsonSampling(model, FixedWidth(2.0), seed=1),
}


@pytest.mark.parametrize("name", ACQUISITIONS)
def test_acquisition_functions(name):
    def run(use: Buffers) -> list[Tensor]:
        acquisition = ACQUISITIONS[name](model(use), use)
        use.spoil()
        return [acquisition(use(unit_square(7, seed).unsqueeze(1))).detach() for seed in (1, 2, 3)]

    agree(run)
