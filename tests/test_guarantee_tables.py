"""Scripts that print the tables of pages about guarantees, each on its smallest problem.

Proofs, fronts, races and safe runs are looked at in tests of what they are about.
"""

import pytest

from experiments.guarantees import (
    confirmation,
    draws,
    hypotheses,
    noise_classes,
    parallel_trials,
    recommendation_limit,
    safe,
    sketches,
    widths,
)
from tests.parts import once

TABLES = [
    (noise_classes.main, (20, 50), "| Rademacher | 0.000 |"),
    (confirmation.main, (1, 20), "| better by 2 |"),
    (draws.widths, ([100], [5]), "prior-posterior ratio 0.9"),
    (draws.regret, (2, 30, 3), "mixture"),
    (hypotheses.main, (1,), "15, one true | 0 of 1 | 0 |"),
    (parallel_trials.main, (1, 2), "| rosenbrock |"),
    (recommendation_limit.main, (1, "development", 1, 8), "kbo to the informed rule"),
    (sketches.main, (7,), "| cmm | exact CMM | 0 of"),
    (widths.main, (1, [10]), "| RBF 0.2 | weights, CMM |"),
]


@pytest.mark.parametrize("table", once(TABLES))
def test_a_table_is_printed(table, capsys):
    script, arguments, row = table
    script(*arguments)
    assert row in capsys.readouterr().out


def test_runs_that_are_in_the_file_are_not_made_again(tmp_path, capsys, monkeypatch):
    path = tmp_path / "safe.jsonl"
    safe.main(9, path, 2)
    printed = capsys.readouterr().out
    assert "CMM | 0 of 9" in printed
    monkeypatch.setattr(safe, "play", None)
    safe.main(9, path, 2)
    assert capsys.readouterr().out == printed
