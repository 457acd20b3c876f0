"""Arguments and results that are almost right: odd numbers, odd paths, objects that raise when they are shown."""

import json
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch

import kbo


class Hostile(Exception):
    """An object whose conversion and texts raise."""

    def __float__(self):
        raise OSError("no such number")

    def __repr__(self):
        raise OSError("no text")

    __str__ = __repr__


NUMBERS = [
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
    1j,
    [],
    None,
    math.nan,
    math.inf,
    10**400,
    torch.zeros(2),
    torch.empty((), device="meta"),
    Hostile(),
]


def test_numbers_of_every_library_are_values_and_all_else_is_a_failure():
    for value in NUMBERS:
        assert kbo.Optimizer([(0, 1)]).tell([0.5], value).value == 3.5
    values = iter(NO_NUMBERS)
    options = {"method": "random", "max_failures": 99, "try_first": [[0.5]]}
    result = kbo.minimize(
        lambda x: 1.0 if x[0] == 0.5 else next(values), [(0, 1)], len(NO_NUMBERS) + 1, **options
    )
    for trial in result.trials[1:]:
        assert trial.failure.startswith("the objective returned"), trial


def test_an_exception_without_a_text_or_a_result_fails_the_trial_and_nothing_else():
    def objective(x):
        if x[0] < 0.4:
            raise Hostile
        return Hostile() if x[0] < 0.6 else x[0]

    trials = kbo.minimize(objective, [(0, 1)], 6, try_first=[[0.1], [0.5], [0.9]]).trials
    assert trials[0].failure.startswith("Hostile")
    assert trials[1].failure.startswith("the objective returned")
    assert trials[2].value == 0.9


def test_numpy_numbers_are_written_as_python_numbers(tmp_path):
    n = np.int64(3)
    bounds = {
        "x": (np.float64(0.25), np.float32(2.0)),
        "n": kbo.Int(np.int64(1), n),
        "c": [n, np.int64(4), np.float32(0.5), np.True_],
    }
    options = {"seed": np.int64(2), "journal": tmp_path / "run.jsonl"}
    result = kbo.minimize(lambda p: np.float32(p["x"]), bounds, n, **options)
    plain = {"x": (0.25, 2.0), "n": kbo.Int(1, 3), "c": [3, 4, 0.5, True]}
    assert result.trials == kbo.minimize(lambda p: p["x"], plain, 5, **options).trials[:3]
    json.dumps([result.trials[0].params, result.trials[0].value])


@pytest.mark.parametrize(
    ("name", "values"),
    {
        "seed": [None, 2**64],
        "n_trials": ["3", 0],
        "max_failures": [True],
        "timeout": ["5", 1e12],
        "stop_at_gap": [b"1"],
        "progress": ["no"],
        "on_trial": [3],
        "objective": [3],
        "journal": ["", "a\0b", "."],
    }.items(),
)
def test_arguments_of_a_run_are_refused_by_name(name, values):
    for value in values:
        options = {"objective": lambda x: x[0], "bounds": [(0, 1)], "n_trials": 3, name: value}
        with pytest.raises(kbo.KboError, match=name):
            kbo.minimize(**options)


def test_a_method_that_does_not_exist_is_answered_with_those_that_search_boxes():
    with pytest.raises(kbo.InvalidInput, match="unknown method 'gp-ucbb': did you mean") as error:
        kbo.Optimizer([(0.0, 1.0)], method="gp-ucbb")
    assert ", gp-ucb," not in str(error.value)
    assert "igp-ucb" in str(error.value)


def test_a_kernel_by_name_is_answered_with_an_example():
    with pytest.raises(kbo.InvalidInput, match=r"such as gpytorch.kernels.MaternKernel\(nu=2.5\)"):
        kbo.Certified("matern", 0.1, 1.0)


def test_an_array_of_options_is_answered_with_how_to_make_a_list():
    with pytest.raises(kbo.InvalidInput, match=r"\(of an array, \.tolist\(\)\)"):
        kbo.Optimizer({"lr": np.logspace(-4, 0, 5)})


@pytest.mark.parametrize(
    ("argument", "name"),
    [
        ("trials", "n_trials"),
        ("n_calls", "n_trials"),
        ("max_evals", "n_trials"),
        ("joural", "journal"),
        ("n_trial", "n_trials"),
        ("timeouts", "timeout"),
    ],
)
def test_an_argument_of_another_library_or_a_mistyped_one_is_answered_with_its_name(argument, name):
    for function in (kbo.minimize, kbo.maximize):
        with pytest.raises(TypeError, match=f"has no argument '{argument}': did you mean {name}"):
            function(sum, [(0, 1)], **{argument: 1})
        with pytest.raises(TypeError, match="of which larger ones are better"):
            function(sum, [(0, 1)], direction="maximize")
    with pytest.raises(TypeError, match="did you mean maximize"):
        kbo.Optimizer([(0, 1)], direction="maximize")
    with pytest.raises(TypeError, match="the arguments are objective, bounds, n_trials, "):
        kbo.minimize(sum, [(0, 1)], zzz=1)
    with pytest.raises(
        TypeError, match="Practical has no argument 'noise': did you mean noise_std"
    ):
        kbo.Practical(noise=0.1)
    with pytest.raises(TypeError, match="Safe has no argument 'starts': did you mean start"):
        kbo.Safe(starts=[])


def test_a_name_of_another_library_is_answered_with_that_of_kbo():
    for name, here in (("Categorical", "Choice"), ("Integer", "Int"), ("Real", "Float")):
        with pytest.raises(AttributeError, match=rf"it is called kbo\.{here},"):
            getattr(kbo, name)
        assert hasattr(kbo, here)
    result = kbo.minimize(sum, [(0.0, 1.0)], 2)
    for name, here in (("best_params", "params"), ("best_value", "value"), ("x", "params")):
        with pytest.raises(AttributeError, match=rf"it is called result\.{here}$"):
            getattr(result, name)
