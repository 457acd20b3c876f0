"""Tuners of other libraries, each with its defaults: Optuna's samplers, Ax, SMAC and nevergrad."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from kbo._base.extras import require
from kbo.space import Float, Int, Params, Space

Value = float | Mapping[str, float]
"""The value of the objective, or the values of objective and measured quantities by name."""


def outputs(value: Value, constraints: Sequence[str]) -> list[float]:
    """Return the value of the objective, and then the values of the constraints in order."""
    if not isinstance(value, Mapping):
        return [value]
    return [value[name] for name in ("objective", *constraints)]


def sampler_of(name: str, seed: int, **options: Any) -> Any:
    """Return a sampler of ``optuna.samplers``, or KBOSampler, by the name of its class."""
    require("this comparison", "optuna", "optuna")
    import optuna

    from kbo.integrations.optuna import KBOSampler

    if name == "KBOSampler":
        return KBOSampler(seed=seed, **options)
    return getattr(optuna.samplers, name)(seed=seed, **options)


def new_study(**options: Any) -> Any:
    """Return a new study of Optuna, without the message about it."""
    import optuna

    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        return optuna.create_study(**options)
    finally:
        optuna.logging.set_verbosity(verbosity)


class OptunaTuner:
    """A sampler of Optuna with its ``options``; recommends ``study.best_params``, the best observed trial."""

    def __init__(
        self,
        space: Space,
        seed: int,
        trials: int,
        sampler: str,
        constraints: Sequence[str] = (),
        **options: Any,
    ) -> None:
        self._study = new_study(sampler=sampler_of(sampler, seed, **options))
        self._space = space
        self._constraints = constraints

    def ask(self) -> Params:
        from kbo.integrations.optuna import suggest

        self._trial = self._study.ask()
        return suggest(self._trial, self._space)

    def tell(self, params: Params, value: Value) -> None:
        objective, *measured = outputs(value, self._constraints)
        for name, quantity in zip(self._constraints, measured, strict=True):
            self._trial.set_constraint(name, quantity)
        self._study.tell(self._trial, objective)

    def recommended(self) -> Params | None:
        try:
            return _params(self._space, self._study.best_params)
        except ValueError:  # no trial satisfies the constraints
            return None


class AxTuner:
    """Ax's ``Client`` with its own choice of methods; recommends ``get_best_parameterization()``."""

    def __init__(
        self, space: Space, seed: int, trials: int, constraints: Sequence[str] = ()
    ) -> None:
        require("this comparison", "ax", "ax")
        from ax.api.client import Client
        from ax.utils.common.logger import set_ax_logger_levels

        from kbo.integrations.ax import to_parameters

        set_ax_logger_levels(logging.ERROR)
        self._space = space
        self._constraints = constraints
        self._client = Client(random_seed=seed)
        self._client.configure_experiment(to_parameters(space))
        self._client.configure_optimization("-value", [f"{name} <= 0" for name in constraints])

    def ask(self) -> Params:
        ((self._number, values),) = self._client.get_next_trials(1).items()
        return _params(self._space, values)

    def tell(self, params: Params, value: Value) -> None:
        names = ("value", *self._constraints)
        values = outputs(value, self._constraints)
        self._client.complete_trial(self._number, dict(zip(names, values, strict=True)))

    def recommended(self) -> Params | None:
        try:
            values, *_ = self._client.get_best_parameterization()
        except (ValueError, AssertionError):  # no trial satisfies the constraints
            return None
        return _params(self._space, values)


class SMACTuner:
    """SMAC3's ``HyperparameterOptimizationFacade``; recommends its incumbent."""

    def __init__(self, space: Space, seed: int, trials: int) -> None:
        require("this comparison", "experiments", "smac", "ConfigSpace")
        smac = import_module("smac")
        ConfigSpace = import_module("ConfigSpace")
        self._space = space
        self._folder = tempfile.TemporaryDirectory()  # for the files of SMAC
        configurations = ConfigSpace.ConfigurationSpace(seed=seed)
        configurations.add(_hyperparameter(name, p) for name, p in space.parameters.items())
        scenario = smac.Scenario(
            configurations, n_trials=trials, seed=seed, output_directory=Path(self._folder.name)
        )
        self._value = import_module("smac.runhistory").TrialValue
        self._smac = smac.HyperparameterOptimizationFacade(
            scenario, _never_called, overwrite=True, logging_level=False
        )

    def ask(self) -> Params:
        self._trial = self._smac.ask()
        return _params(self._space, self._trial.config)

    def tell(self, params: Params, value: float) -> None:
        self._smac.tell(self._trial, self._value(cost=value))

    def recommended(self) -> Params:
        return _params(self._space, self._smac.intensifier.get_incumbent())


def _hyperparameter(name: str, parameter: Any) -> Any:
    """Return a parameter as one of ConfigSpace."""
    ConfigSpace = import_module("ConfigSpace")
    if isinstance(parameter, Float):
        return ConfigSpace.Float(name, (parameter.low, parameter.high), log=parameter.log)
    if isinstance(parameter, Int):
        return ConfigSpace.Integer(name, (parameter.low, parameter.high), log=parameter.log)
    return ConfigSpace.Categorical(name, list(parameter.options))


def _never_called(config: Any, seed: int = 0) -> float:
    raise NotImplementedError  # values are told


class NevergradTuner:
    """nevergrad's ``NGOpt``, which chooses a method by the number of trials; recommends its recommendation."""

    def __init__(self, space: Space, seed: int, trials: int) -> None:
        require("this comparison", "experiments", "nevergrad")
        ng = import_module("nevergrad")
        parameters = {name: _instrument(p) for name, p in space.parameters.items()}
        parametrization = ng.p.Dict(**parameters)
        parametrization.random_state = np.random.RandomState(seed % 2**32)
        self._space = space
        self._optimizer = ng.optimizers.NGOpt(parametrization=parametrization, budget=trials)

    def ask(self) -> Params:
        self._candidate = self._optimizer.ask()
        return _params(self._space, self._candidate.value)

    def tell(self, params: Params, value: float) -> None:
        self._optimizer.tell(self._candidate, value)

    def recommended(self) -> Params:
        return _params(self._space, self._optimizer.recommend().value)


def _instrument(parameter: Any) -> Any:
    """Return a parameter as one of nevergrad."""
    ng = import_module("nevergrad")
    if not isinstance(parameter, (Float, Int)):
        return ng.p.Choice(parameter.options)
    if parameter.log:
        number = ng.p.Log(lower=parameter.low, upper=parameter.high)
    else:
        number = ng.p.Scalar(lower=parameter.low, upper=parameter.high)
    if isinstance(parameter, Int):
        number.set_integer_casting()
    return number


def _params(space: Space, values: Mapping[str, Any]) -> Params:
    """Return values by name as params. Rounding may have moved ends of logarithmic scales outside of the range."""
    inside = {}
    for name, parameter in space.parameters.items():
        if name not in values:
            continue
        inside[name] = values[name]
        if isinstance(parameter, (Float, Int)):
            inside[name] = min(max(values[name], parameter.low), parameter.high)
    if space.named:
        return space.canonical(inside)
    return space.canonical(list(inside.values()))
