"""Spaces of Optuna and Ax as spaces of kbo, and back."""

import math

import optuna
import pytest
import torch
from ax.api.configs import ChoiceParameterConfig, RangeParameterConfig
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

import kbo
from kbo.integrations import ax as kbo_ax
from kbo.integrations import optuna as kbo_optuna
from kbo.integrations.optuna.space import conditions_of
from kbo.space import Condition
from tests.test_space import BRANCHES

KINDS = {
    "x": kbo.Float(-1.0, 1.0),
    "lr": kbo.Float(1e-4, 1e-1, log=True),
    "step": kbo.Float(0.1, 0.9, step=0.2),
    "n": kbo.Int(1, 64, log=True),
    "depth": kbo.Int(2, 12, step=5),
    "act": kbo.Choice(["relu", "tanh"]),
    "seed": kbo.Fixed(3),
}


def test_distributions_become_a_space_and_back():
    distributions = {
        "x": FloatDistribution(-1.0, 1.0),
        "lr": FloatDistribution(1e-4, 1e-1, log=True),
        "step": FloatDistribution(0.1, 0.9, step=0.2),
        "n": IntDistribution(1, 64, log=True),
        "depth": IntDistribution(2, 12, step=5),
        "act": CategoricalDistribution(("relu", "tanh")),
        "seed": CategoricalDistribution((3,)),
    }
    assert kbo_optuna.from_distributions(distributions).parameters == KINDS
    assert kbo_optuna.to_distributions(kbo.Space(KINDS)) == distributions
    single = {"x": IntDistribution(2, 2), "y": distributions["x"]}
    assert kbo_optuna.from_distributions(single).parameters["x"] == kbo.Fixed(2)
    with pytest.warns(UserWarning, match="Choices for a categorical"):
        odd = CategoricalDistribution(((1, 2), "b"))
    with pytest.raises(kbo.InvalidInput, match="parameter 'a': an option"):
        kbo_optuna.from_distributions({"a": odd})


def test_a_trial_suggests_the_active_parameters_of_a_space():
    space = kbo.Space(BRANCHES)
    seen = []
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))

    def objective(trial):
        seen.append(kbo_optuna.suggest(trial, space))
        assert trial.params == space.canonical(seen[-1]) == seen[-1]
        return 0.0

    study.optimize(objective, n_trials=30)
    assert len({frozenset(params) for params in seen}) == 3
    listed = kbo.Space([(0, 1), (2, 3)])
    study.optimize(lambda trial: sum(kbo_optuna.suggest(trial, listed)), n_trials=1)
    assert 2 <= study.trials[-1].value <= 4


def test_the_conditions_of_a_space_show_in_the_trials_of_a_study():
    space = kbo.Space(
        [
            {"model": ["a", "b"], "x": (0.0, 1.0)},
            kbo.When("model", "b", {"y": bool}),
            kbo.When("y", True, {"z": (0.0, 1.0)}),
        ]
    )
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(lambda trial: float(len(kbo_optuna.suggest(trial, space))), n_trials=20)
    shared = kbo_optuna.to_distributions(space)
    assert conditions_of(study.trials, shared) == {
        "y": Condition("model", ("b",)),
        "z": Condition("y", (True,)),
    }
    del shared["z"]
    params = {"model": "a", "x": 0.1, "y": True}
    study.add_trial(optuna.create_trial(params=params, distributions=shared, value=0.0))
    assert "y" not in conditions_of(study.trials, shared)


def test_parameters_of_ax_become_a_space_and_back():
    configs = [
        RangeParameterConfig("x", (-1.0, 1.0), "float", None, "linear"),
        RangeParameterConfig("lr", (1e-4, 1e-1), "float", None, "log"),
        RangeParameterConfig("step", (0.1, 0.9), "float", 0.2, "linear"),
        RangeParameterConfig("n", (1, 64), "int", None, "log"),
        RangeParameterConfig("depth", (2, 12), "int", 5, "linear"),
        ChoiceParameterConfig("act", ["relu", "tanh"], "str", False, None),
        ChoiceParameterConfig("seed", [3], "int", True, None),
    ]
    assert kbo_ax.from_parameters(configs).parameters == KINDS
    assert kbo_ax.to_parameters(kbo.Space(KINDS)) == configs
    space = kbo.Space([BRANCHES[0], *BRANCHES[2:]])
    again = kbo_ax.from_parameters(kbo_ax.to_parameters(space))
    assert again.describe() == space.describe()
    limits = [
        kbo.Linear({"x": 1, "n": -0.5}, upper=3),
        kbo.Linear({"depth": 2, "n": 0.1}, lower=-1e-7),
    ]
    limited = kbo.Space(KINDS, limits)
    again = kbo_ax.from_parameters(configs, kbo_ax.to_parameter_constraints(limited))
    generator = torch.Generator().manual_seed(0)
    inside = torch.rand(200, again.dimension, dtype=torch.float64, generator=generator)
    assert torch.equal(again.satisfies(inside), limited.satisfies(inside))
    assert kbo_ax.from_parameters(configs, ["x <= n"]).constraints == (
        kbo.Linear({"x": 1, "n": -1}, upper=0),
    )
    with pytest.raises(kbo.InvalidInput, match=r"Ax has linear constraints only: leave out .*cos"):
        kbo_ax.to_parameter_constraints(kbo.Space(KINDS, [math.cos]))
    with pytest.raises(kbo.InvalidInput, match=r"Optuna has no constraints .*'x - 0.5 n <= 3'"):
        kbo_optuna.to_distributions(limited)
