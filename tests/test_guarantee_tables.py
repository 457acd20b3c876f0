"""Scripts that print the tables of pages about guarantees, each on its smallest problem.

Proofs, fronts, races and safe runs are looked at in tests of what they are about.
"""

import functools

import numpy as np
import pytest

from experiments.guarantees import (
    confirmation,
    draws,
    noise_classes,
    parallel_trials,
    recommendation_limit,
    safe,
    sketches,
    widths,
)
from experiments.problems import curves, training_curves

TABLES = {
    "confirmation": (functools.partial(confirmation.main, 1, 20), "| better by 2 |"),
    "draws": (functools.partial(draws.widths, [100], [5]), "prior-posterior ratio 0.9"),
    "draws, regret": (functools.partial(draws.regret, 2, 30, 3), "mixture"),
    "noise_classes": (functools.partial(noise_classes.main, 20, 50), "| Rademacher | 0.000 |"),
    "parallel_trials": (functools.partial(parallel_trials.main, 1, 2), "| rosenbrock |"),
    "recommendation_limit": (
        functools.partial(recommendation_limit.main, 1, "development", 1, 8),
        "kbo to the informed rule",
    ),
    "sketches": (functools.partial(sketches.main, 7), "| cmm | exact CMM | 0 of"),
    "widths": (functools.partial(widths.main, 1, [10]), "| RBF 0.2 | weights, CMM |"),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_printed(name, capsys):
    script, row = TABLES[name]
    script()
    assert row in capsys.readouterr().out


def test_runs_that_are_in_the_file_are_not_made_again(tmp_path, capsys, monkeypatch):
    path = tmp_path / "safe.jsonl"
    safe.main(9, path, 2)
    printed = capsys.readouterr().out
    assert printed.startswith("bound | runs that violate")
    assert "CMM | 0 of 9" in printed
    monkeypatch.setattr(safe, "play", None)
    safe.main(9, path, 2)
    assert capsys.readouterr().out == printed


def test_training_writes_the_curves_that_are_replayed(tmp_path, monkeypatch):
    monkeypatch.setattr(training_curves, "STEPS", 2)
    training_curves.main(tmp_path / "curves.npz", 1)
    with np.load(tmp_path / "curves.npz") as written, np.load(curves.FILE) as kept:
        assert written.files == kept.files
        for name in written.files:
            assert written[name].ndim == kept[name].ndim
