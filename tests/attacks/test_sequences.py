"""A few of the random sequences of ``experiments.guarantees.sequences``, and whether they notice what is wrong."""

from __future__ import annotations

import pytest
import torch

import kbo
from experiments.guarantees.attacks.functions import radial
from experiments.guarantees.sequences import GROUPS, Report, main, play
from experiments.problems.rkhs import stationary_kernel
from kbo.confidence import Confidence, MixtureNoiseBounds, SelfNormalized

SEQUENCES = {"posteriors": 6, "rounding": 6, "models": 3, "settings": 1}


def played(group, numbers):
    report = Report()
    for number in numbers:
        play(group, 1, number, report)
    assert not report.errors, str(report)
    return report


@pytest.mark.parametrize("times", [1, pytest.param(5, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("group", GROUPS)
def test_no_guarantee_is_wrong_more_often_than_it_says(group, times):
    report = played(group, range(times * SEQUENCES[group]))
    assert not report.violations(), str(report)
    assert report.guaranteed() > 0


def test_guarantees_without_objections_are_noticed(monkeypatch):
    monkeypatch.setattr(Confidence, "guarantee_on", lambda self, state: "holds")
    assert played("posteriors", range(25)).violations()


def test_a_replay_needs_the_group_of_its_sequence(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["sequences", "--only", "3"])
    with pytest.raises(SystemExit):
        main()
    assert "name it with --group" in capsys.readouterr().err


@pytest.mark.parametrize("shift", [0.0, 1e4, 1e8])
def test_a_kernel_of_unknown_formula_has_no_guarantee_far_from_zero(shift):
    kernel, _ = radial("expanded", 0.1)
    X = (
        torch.rand(6, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        + 0.1 * shift
    )
    state = kbo.KernelRidge(kernel, 0.09)
    state.update(X, X[:, 0].sin())
    assert (SelfNormalized(0.3, 1.0, 0.1).guarantee_on(state) is None) == (shift > 0)


def test_a_noise_level_is_not_learned_where_rounding_is_large_at_every_ridge():
    state = kbo.KernelRidge(stationary_kernel("rbf", 0.5), 1.0)
    X = torch.rand(40, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    state.update(X, X[:, 0].sin())
    for floor, is_learned in ((0.0, True), (2.0, False)):
        bounds = MixtureNoiseBounds(1.0, 0.1, upper=0.9)
        bounds._floor = floor
        bounds.update(state)
        assert (bounds.lower > 0) == is_learned
