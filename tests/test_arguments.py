"""Arguments and results that are almost right: odd numbers, odd paths, objects that raise when they are shown."""

import json
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch

import kbo


class Hostile:
    """An object whose conversion and texts raise."""

    def __float__(self):
        raise OSError("no such number")

    def __repr__(self):
        raise OSError("no text")

    __str__ = __repr__


class HostileError(Exception):
    def __str__(self):
        raise OSError("no text")


NUMBERS = [
    3.5,
    np.float32(3.5),
    torch.tensor(3.5),
    torch.tensor([3.5]),
    Decimal("3.5"),
    Fraction(7, 2),
]
NO_NUMBERS = [
    True,
    np.True_,
    torch.tensor(True),
    "3.5",
    b"3.5",
    np.complex128(1),
    1j,
    [],
    None,
    math.nan,
    math.inf,
]
NO_NUMBERS += [10**400, torch.zeros(2), torch.empty((), device="meta"), Hostile(), object]


@pytest.mark.parametrize("value", NUMBERS, ids=repr)
def test_numbers_of_every_library_are_values(value):
    assert kbo.Optimizer([(0, 1)]).tell([0.5], value).value == 3.5


@pytest.mark.parametrize("value", NO_NUMBERS, ids=lambda value: type(value).__name__)
def test_what_is_no_number_fails_the_trial_and_nothing_else(value):
    result = kbo.minimize(lambda x: value if 0.2 < x[0] < 0.6 else x[0], [(0, 1)], 6)
    failed = [trial for trial in result.trials if trial.status == "failed"]
    assert 0 < len(failed) < 6
    assert all(trial.failure.startswith("the objective returned") for trial in failed)


def test_an_exception_without_a_text_fails_the_trial_and_nothing_else():
    def objective(x):
        if 0.2 < x[0] < 0.6:
            raise HostileError
        return x[0]

    failures = [
        trial.failure for trial in kbo.minimize(objective, [(0, 1)], 6).trials if trial.failure
    ]
    assert failures
    assert all(failure.startswith("HostileError") for failure in failures)


def test_numpy_numbers_are_written_as_python_numbers(tmp_path):
    low, high, n = np.float64(0.25), np.float32(2.0), np.int64(3)
    bounds = {
        "x": (low, high),
        "n": kbo.Int(np.int64(1), n),
        "c": [n, np.int64(4), np.float32(0.5), np.True_],
    }
    journal = tmp_path / "run.jsonl"
    result = kbo.minimize(
        lambda p: np.float32(p["x"]), bounds, n, seed=np.int64(2), journal=journal
    )
    plain = {"x": (0.25, 2.0), "n": kbo.Int(1, 3), "c": [3, 4, 0.5, True]}
    assert (
        result.trials
        == kbo.minimize(lambda p: p["x"], plain, 5, seed=2, journal=journal).trials[:3]
    )
    told = kbo.Optimizer(plain).tell(
        {"x": np.float32(0.5), "n": np.int8(2), "c": np.int64(4)}, 1.0, np.float32(1.5)
    )
    json.dumps([told.params, told.seconds])


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"seed": None}, "seed"),
        ({"seed": 2**64}, "seed"),
        ({"n_trials": "3"}, "n_trials"),
        ({"n_trials": 0}, "n_trials"),
        ({"max_failures": True}, "max_failures"),
        ({"timeout": "5"}, "timeout"),
        ({"timeout": 1e12}, "timeout"),
        ({"stop_at_gap": b"1"}, "stop_at_gap"),
        ({"progress": "no"}, "progress"),
        ({"on_trial": 3}, "on_trial"),
        ({"objective": 3}, "objective"),
        ({"journal": ""}, "journal"),
        ({"journal": "a\0b"}, "journal"),
        ({"journal": "."}, "journal"),
    ],
)
def test_arguments_of_a_run_are_refused_by_name(options, name):
    with pytest.raises(kbo.KboError, match=name):
        kbo.minimize(**{"objective": lambda x: x[0], "bounds": [(0, 1)], "n_trials": 3, **options})
