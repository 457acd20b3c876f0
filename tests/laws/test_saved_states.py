"""Saved states: what is loaded is what was saved, and a state of another kind is refused by name."""

from __future__ import annotations

import copy

import pytest
import torch
from botorch.models.transforms import Standardize

from kbo import AdaptiveRidge, KernelRidge, NoiseBounds, NystromRidge
from kbo.errors import InvalidInput
from kbo.models import KernelRidgeGP
from kbo.regression import FixedDictionary, GreedyDictionary, track
from tests.laws.states import DICTIONARIES, STATES, matern, rbf, unit_square
from tests.laws.test_states import answers, identical


def test_the_wrong_class_is_named(device):
    X, y = STATES[0].data(9, device)
    exact, greedy, fixed = (
        KernelRidge(rbf(), 0.1),
        NystromRidge(rbf(), 0.1, GreedyDictionary()),
        NystromRidge(rbf(), 0.1, FixedDictionary(unit_square(5, 0).to(device))),
    )
    adaptive = AdaptiveRidge(KernelRidge(rbf(), 0.1), NoiseBounds(4.0, 0.1, upper=1.0))
    for saved, into, names in (
        (exact, greedy, ("KernelRidge", "NystromRidge")),
        (greedy, fixed, ("GreedyDictionary", "FixedDictionary")),
        (adaptive, exact, ("AdaptiveRidge", "KernelRidge")),
    ):
        saved.update(X, y)
        with pytest.raises(InvalidInput) as error:
            into.load_state_dict(saved.state_dict())
        assert all(name in str(error.value) for name in names)


def test_a_state_of_points_with_other_columns_is_refused(device):
    """Kernels with a lengthscale for each column cannot read the points."""
    state, other = KernelRidge(matern(2.5), 0.1), KernelRidge(rbf(), 0.1)
    other.update(
        torch.rand(4, 3, dtype=torch.float64, device=device), torch.rand(4, dtype=torch.float64, device=device)
    )
    with pytest.raises(InvalidInput, match="2 lengthscales for 3 columns"):
        state.load_state_dict(other.state_dict())
    assert state.n == 0
    assert state.dimension is None


def test_a_view_that_loads_leaves_the_underlying_state_in_place(device):
    (X, y), Z = STATES[0].data(9, device), unit_square(4, 1).to(device)
    state = KernelRidge(rbf(), 0.1)
    view, other = track(state, Z), KernelRidge(rbf(), 0.1)
    other.update(X, y)
    view.load_state_dict(track(other, Z).state_dict())
    identical(answers(state, Z), answers(other, Z))


def test_values_that_are_loaded_into_a_model_are_checked(device):
    X, Z = unit_square(12, 0).to(device), unit_square(4, 1).to(device)
    model = KernelRidgeGP(X, X[:, :1], matern(2.5), 0.1, outcome_transform=Standardize(1))
    saved, before = copy.deepcopy(model.state_dict()), model.posterior(Z).mean
    for value in (torch.tensor(torch.nan), torch.ones(2), torch.tensor(1), torch.tensor(0.5).to("meta"), 0.5, None):
        with pytest.raises(InvalidInput, match="ridge of the state dict must be a finite tensor"):
            model.load_state_dict({"ridge": value}, strict=False)
    model.load_state_dict({"ridge": torch.tensor(0.3)}, strict=False)
    assert float(model.ridge) == pytest.approx(0.3)
    model.load_state_dict(saved)
    assert torch.equal(model.posterior(Z).mean, before)


def test_a_model_inside_another_module_is_saved_and_loaded(device):
    X = unit_square(12, 0).to(device)
    one, other = (torch.nn.ModuleList([KernelRidgeGP(X, X[:, :1], rbf(), ridge)]) for ridge in (0.1, 0.2))
    other.load_state_dict(one.state_dict())
    assert float(other[0].ridge) == pytest.approx(0.1)


@pytest.mark.parametrize("case", [*STATES, *DICTIONARIES], ids=lambda case: case.name)
@pytest.mark.parametrize("early", [True, False])
def test_a_state_whose_ridge_was_moved_continues_exactly(case, early, device):
    (X, y), Z = case.data(30, device), case.points(5, 1).to(device)
    state, loaded = case.make(case.kernel(), 0.1), case.make(case.kernel(), 0.1)
    if state.schedule is not None:
        pytest.skip("its schedule alone moves the ridge")
    if early:
        state.move_ridge(0.5)
    state.update(X[:20], y[:20])
    if not early:
        state.move_ridge(0.5)
    loaded.load_state_dict(state.state_dict())
    for one in (state, loaded):
        one.update(X[20:], y[20:])
    assert (loaded.ridge, loaded.ridge_moved) == (0.5, not early)
    identical(answers(loaded, Z), answers(state, Z))
