"""Views of views, and views across processes."""

from __future__ import annotations

import pickle

import pytest
import torch

from kbo.confidence import Chaining
from kbo.confidence.chaining import PosteriorMetric, covers
from kbo.regression import (
    BatchView,
    FixedPoints,
    Hypothetical,
    KernelRidge,
    LeverageResampling,
    NystromRidge,
    PosteriorAt,
    PriorMean,
    View,
)
from kbo.regression.views.view import ViewAt
from tests.conftest import DEVICE
from tests.dense import close
from tests.laws.states import rbf, unit_square
from tests.laws.test_states import Work

pytestmark = pytest.mark.usefixtures("device")
Z = unit_square(40, 2).to(DEVICE)


def fed() -> KernelRidge:
    state = KernelRidge(rbf(), 0.1)
    X = unit_square(60, 1).to(DEVICE)
    state.update(X, torch.sin(4 * X).sum(-1))
    return state


def test_versions_of_another_process_are_never_met_again():
    """A tracked sketch that was unpickled sees every later change of its dictionary."""
    X = unit_square(60, 1).to(DEVICE)
    tracked = FixedPoints(NystromRidge(rbf(), 0.1, LeverageResampling(0.7, seed=1)), Z)
    tracked.update(X[:20], X[:20].sum(-1))
    tracked.predict(Z)
    saved = pickle.dumps(tracked)
    other = pickle.loads(saved)
    for x in X[20:].split(1):
        other.update(x, x.sum(-1))
        close(other.predict(Z)[0], other.state.predict(Z)[0])


def test_a_chain_under_hypothetical_points_is_no_chain_of_the_observed_data():
    state, chaining = fed(), Chaining(0.1, rigorous=True, points=Z)
    chaining.interval(FixedPoints(Hypothetical(state, Z[:30]), Z), Z)
    chain = chaining.chain(state)
    metric = PosteriorMetric(state, Z)
    levels = range(1, len(chain) + 1)
    assert all(covers(metric, chain.centres(level), chain.reach(level)) for level in levels)


def test_a_batch_keeps_earlier_hypothetical_points():
    state = fed()
    batch = BatchView(state, Z)
    batch.observe(3)
    for earlier in (Hypothetical(state, Z[:5]), batch):
        close(BatchView(earlier, Z).predict(Z)[1], earlier.predict(Z)[1])


def test_predictions_at_several_ridges_are_linear_in_the_hypothetical_points():
    work = []
    ridges = [0.01, 0.1, 1.0]
    for p in (80, 160):
        P = unit_square(p, 5).to(DEVICE)
        path = Hypothetical(fed(), P, P.sum(-1)).across(Z[:9].unsqueeze(-2))
        path.grid(ridges)
        with Work() as inside:
            moments = path.grid(ridges)
        work.append(inside.elements)
        for i, ridge in enumerate(ridges):
            each = path.at(Z.new_full((9,), ridge))
            close(moments.mean[i], each.mean)
            close(moments.covariance[i], each.covariance)
    assert work[1] < 3 * work[0]  # four times if it grew as the square


class Doubled(View):
    """A view that doubles the mean, and overrides nothing else."""

    def at(self, ridge: float | None = None) -> PosteriorAt:
        return DoubledAt(self, self.state.at(ridge))


class DoubledAt(ViewAt):
    def predict(self, X: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, variance = self.inner.predict(X)
        return 2 * mean, variance


@pytest.mark.parametrize("view", [Doubled, lambda state: PriorMean(state, lambda X: X[..., 0])])
def test_what_a_view_changes_is_changed_in_all_that_is_derived_from_it(view):
    state = fed()
    expected = view(state).predict(Z)[0]
    close(view(Hypothetical(state, Z[:5])).observed.predict(Z)[0], expected)
    close(view(state).fork_frozen().predict(Z)[0], expected)
    close(view(state).across(Z.unsqueeze(-2)).grid([0.1]).mean.flatten(), expected)


def test_the_observed_data_of_a_view_have_one_version():
    view = Doubled(Hypothetical(fed(), Z[:5]))
    assert view.observed.version == view.observed.version != view.version
