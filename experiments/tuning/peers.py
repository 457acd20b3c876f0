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
"""The value of the objective, or of it and of what is measured besides, by name."""


def outputs(value: Value, constraints: Sequence[str]) -> list[float]:
    """Return the value of the objective, and those of the constraints in order."""
    return (
        [value[name] for name in ("objective", *constraints)]
        if isinstance(value, Mapping)
        else [value]
    )


class OptunaTuner:
    """A sampler of ``optuna.samplers``, or KBOSampler; recommends ``study.best_params``, the best observed trial.

    ``options`` are those of the sampler. With a pruner it is its own running trial: an objective can report to it.
    """

    def __init__(
        self,
        space: Space,
        seed: int,
        trials: int,
        sampler: str,
        pruner: Any = None,
        constraints: Sequence[str] = (),
        **options: Any,
    ) -> None:
        require("this comparison", "optuna", "optuna")
        import optuna

        from kbo.integrations.optuna import KBOSampler

        make = KBOSampler if sampler == "KBOSampler" else getattr(optuna.samplers, sampler)
        before = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.ERROR)  # the study is no news
        try:  # Hyperband uses the name of the study.
            self._study = optuna.create_study(
                study_name=f"{seed}", sampler=make(seed=seed, **options), pruner=pruner
            )
        finally:
            optuna.logging.set_verbosity(before)
        self._space, self._constraints, self._stopped = space, constraints, False
        self.n_reports: int = 0

    def ask(self) -> Params:
        from kbo.integrations.optuna import suggest

        self._trial = self._study.ask()
        return suggest(self._trial, self._space)

    def report(self, value: float, *, step: int) -> None:
        """Report to the pruner."""
        self._trial.report(value, step)
        self.n_reports += 1

    def should_stop(self) -> bool:
        """Return whether the pruner stops the trial, whose value does not count then."""
        self._stopped = self._trial.should_prune()
        return self._stopped

    def tell(self, params: Params, value: Value) -> None:
        from optuna.trial import TrialState

        objective, *measured = outputs(value, self._constraints)
        for name, c in zip(self._constraints, measured, strict=True):
            self._trial.set_constraint(name, c)
        if self._stopped:
            self._study.tell(self._trial, state=TrialState.PRUNED)
        else:
            self._study.tell(self._trial, objective)
        self._stopped = False

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
        self._space, self._constraints, self._client = space, constraints, Client(random_seed=seed)
        self._client.configure_experiment(to_parameters(space))
        self._client.configure_optimization("-value", [f"{name} <= 0" for name in constraints])

    def ask(self) -> Params:
        ((self._number, found),) = self._client.get_next_trials(1).items()
        return _params(self._space, found)

    def tell(self, params: Params, value: Value) -> None:
        names = ("value", *self._constraints)
        self._client.complete_trial(
            self._number, dict(zip(names, outputs(value, self._constraints), strict=True))
        )

    def recommended(self) -> Params | None:
        try:
            found, *_ = self._client.get_best_parameterization()
        except (ValueError, AssertionError):  # no trial satisfies the constraints
            return None
        return _params(self._space, found)


class SMACTuner:
    """SMAC3's ``HyperparameterOptimizationFacade``; recommends its incumbent."""

    def __init__(self, space: Space, seed: int, trials: int) -> None:
        require("this comparison", "experiments", "smac", "ConfigSpace")
        smac, ConfigSpace = import_module("smac"), import_module("ConfigSpace")
        self._space, self._folder = (
            space,
            tempfile.TemporaryDirectory(),
        )  # it writes files, and goes with the tuner
        configurations = ConfigSpace.ConfigurationSpace(seed=seed)
        configurations.add(
            (ConfigSpace.Integer if isinstance(p, Int) else ConfigSpace.Float)(
                name, (p.low, p.high), log=p.log
            )
            if isinstance(p, (Float, Int))
            else ConfigSpace.Categorical(name, list(p.options))
            for name, p in space.parameters.items()
        )
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


def _never_called(config: Any, seed: int = 0) -> float:
    raise NotImplementedError  # values come by tell


class NevergradTuner:
    """nevergrad's ``NGOpt``, which chooses a method by the number of trials; recommends its recommendation."""

    def __init__(self, space: Space, seed: int, trials: int) -> None:
        require("this comparison", "experiments", "nevergrad")
        ng = import_module("nevergrad")
        entries: dict[str, Any] = {}
        for name, p in space.parameters.items():
            if not isinstance(p, (Float, Int)):
                entries[name] = ng.p.Choice(p.options)
                continue
            entries[name] = (ng.p.Log if p.log else ng.p.Scalar)(lower=p.low, upper=p.high)
            if isinstance(p, Int):
                entries[name].set_integer_casting()
        together = ng.p.Dict(**entries)
        together.random_state = np.random.RandomState(seed % 2**32)
        self._space, self._optimizer = (
            space,
            ng.optimizers.NGOpt(parametrization=together, budget=trials),
        )

    def ask(self) -> Params:
        self._candidate = self._optimizer.ask()
        return _params(self._space, self._candidate.value)

    def tell(self, params: Params, value: float) -> None:
        self._optimizer.tell(self._candidate, value)

    def recommended(self) -> Params:
        return _params(self._space, self._optimizer.recommend().value)


def _params(space: Space, found: Mapping[str, Any]) -> Params:
    """Parameters of the space; ends of logarithmic scales may have been rounded to numbers outside."""
    entries = {
        name: min(max(found[name], p.low), p.high) if isinstance(p, (Float, Int)) else found[name]
        for name, p in space.parameters.items()
        if name in found
    }
    return space.canonical(entries if space.named else list(entries.values()))
