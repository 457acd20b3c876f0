"""A few of the random sequences of ``tests.attacks.sequences``, and whether they notice what is wrong."""

from __future__ import annotations

import random

import pytest
import torch

import kbo
from kbo import recipes
from kbo.confidence import Confidence, SelfNormalized
from kbo.problems.rkhs import stationary_kernel
from tests.attacks.functions import radial
from tests.attacks.play import Play
from tests.attacks.posteriors import posteriors
from tests.attacks.sequences import GROUPS, Report, play

SEQUENCES = {"posteriors": 40, "rounding": 10, "models": 12, "settings": 4, "optuna": 3, "ax": 1}


@pytest.mark.parametrize("group", GROUPS)
def test_no_guarantee_is_wrong_more_often_than_it_says(group):
    if group in ("optuna", "ax"):
        pytest.importorskip(group)
    report = Report()
    for number in range(SEQUENCES[group]):
        play(group, 1, number, report)
    assert not report.violations(), str(report)
    assert not report.errors, str(report)
    assert sum(row.guaranteed for row in report.rows.values()) > 0


def test_guarantees_without_objections_are_noticed(monkeypatch):
    monkeypatch.setattr(Confidence, "guarantee_on", lambda self, state: "holds")
    wrong = []
    for number in range(50):
        sequence = Play(random.Random(f"posteriors 1 {number}"))
        posteriors(sequence)
        wrong += [verdict for verdict in sequence.verdicts if verdict[2]]
    assert len(wrong) > 3


@pytest.mark.parametrize("method", [name for name in recipes.names() if recipes.get(name).noise == "online"])
def test_methods_that_bound_the_noise_need_no_level_in_the_certified_setting(method):
    setting = kbo.Certified(stationary_kernel("rbf", 0.5), None, 1.0)
    optimizer = kbo.Optimizer({"x": (0.0, 1.0)}, setting=setting, method=method)
    optimizer.tell(optimizer.ask(), 0.1)
    assert optimizer.belief() is not None


@pytest.mark.parametrize("shift", [0.0, 1e4, 1e6, 1e8])
def test_a_kernel_of_unknown_formula_has_no_guarantee_far_from_zero(shift):
    kernel, _ = radial("expanded", 0.1)
    X = torch.rand(6, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.1 * shift
    state = kbo.KernelRidge(kernel, 0.09)
    state.update(X, X[:, 0].sin())
    assert (SelfNormalized(0.3, 1.0, 0.1).guarantee_on(state) is None) == (shift > 0)
