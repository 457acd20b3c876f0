"""Tuners of several objectives, each as its own users would run it; the interface is that of ``tuners``.

``tell(params, values)`` learns a value of each objective, smaller ones better, and ``recommended()`` returns the
parameters of the front that the tuner shows its user.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from experiments.tuning.tuners import BoTorchTuner
from kbo._base import checks
from kbo._base.extras import require
from kbo.optimize import Front, Optimizer, Practical
from kbo.optimize.objectives.hypervolume import non_dominated
from kbo.space import Params, Space


class KBOFront:
    """``kbo.Optimizer(objectives=...)``; recommends the trials of ``insight.front()``.

    ``practical`` has options of ``kbo.Practical``.
    """

    def __init__(
        self,
        space: Space,
        seed: int,
        objectives: Sequence[str],
        setting: type[Practical] = Practical,
        practical: Mapping[str, Any] = {},
    ) -> None:
        self._names = objectives
        self.optimizer: Optimizer = Optimizer(
            space, setting=setting(**practical), objectives=objectives, seed=seed
        )

    def ask(self) -> Params:
        return self.optimizer.ask()

    def tell(self, params: Params, values: Sequence[float]) -> None:
        outcome: Any = dict(zip(self._names, values, strict=True))
        self.optimizer.tell(params, outcome)

    def front(self) -> Front:
        """Return the front with its probabilities."""
        front = self.optimizer.insight.front()
        assert front is not None
        return front

    def recommended(self) -> list[Params]:
        return [point.trial.params for point in self.front().points]


class OptunaFront:
    """A sampler of ``optuna.samplers``; recommends ``study.best_trials``, which no observed trial dominates."""

    def __init__(
        self, space: Space, seed: int, objectives: Sequence[str], sampler: str, **options: Any
    ) -> None:
        require("this comparison", "optuna", "optuna")
        import optuna

        directions: Any = ["minimize"] * len(objectives)
        before = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.ERROR)  # the study is no news
        try:
            self._study = optuna.create_study(
                directions=directions,
                sampler=getattr(optuna.samplers, sampler)(seed=seed, **options),
            )
        finally:
            optuna.logging.set_verbosity(before)
        self._space = space
        self._params: list[Params] = []

    def ask(self) -> Params:
        from kbo.integrations.optuna import suggest

        self._trial = self._study.ask()
        return suggest(self._trial, self._space)

    def tell(self, params: Params, values: Sequence[float]) -> None:
        self._study.tell(self._trial, values)
        self._params.append(params)

    def recommended(self) -> list[Params]:
        return [self._params[trial.number] for trial in self._study.best_trials]


class BoTorchFront(BoTorchTuner):
    """BoTorch's ``SingleTaskGP`` of each objective and qLogNEHVI, as Ax has them; recommends as ``OptunaFront``.

    The reference is that which BoTorch infers from the front observed so far.
    """

    def __init__(self, space: Space, seed: int, objectives: Sequence[str]) -> None:
        super().__init__(space, seed, trials=0)
        self._params: list[Params] = []

    def tell(self, params: Params, values: Any) -> None:
        self._params.append(params)
        self._units.append(self._space.unit(params))
        self._y.append(list(values))
        self._model = None

    def recommended(self) -> Any:
        on_front = non_dominated(self._values())
        return [p for p, is_on_front in zip(self._params, on_front, strict=True) if is_on_front]

    def _values(self) -> Tensor:
        """Return the values [n m], larger ones better."""
        return -torch.tensor(self._y, dtype=torch.float64)

    def _fitted(self) -> Any:
        from botorch.fit import fit_gpytorch_mll
        from botorch.models import ModelListGP, SingleTaskGP
        from gpytorch.mlls import ExactMarginalLogLikelihood

        X = self._features()
        values = self._values()
        models = [SingleTaskGP(X, values[:, [k]]) for k in range(values.shape[-1])]
        for model in models:
            fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        return ModelListGP(*models)

    def _acquisition(self) -> Any:
        from botorch.acquisition.multi_objective.logei import (
            qLogNoisyExpectedHypervolumeImprovement,
        )
        from botorch.utils.multi_objective.hypervolume import infer_reference_point

        values = self._values()
        reference = infer_reference_point(values[non_dominated(values)])
        return qLogNoisyExpectedHypervolumeImprovement(
            self._fitted(),
            reference,
            self._features(),
            sampler=self._sampler(),
            prune_baseline=True,
        )


TUNERS: dict[str, Callable[..., Any]] = {
    "kbo": KBOFront,
    "qlognehvi": BoTorchFront,
    "gpsampler": partial(OptunaFront, sampler="GPSampler"),
    "tpe": partial(OptunaFront, sampler="TPESampler"),
    "nsga2": partial(OptunaFront, sampler="NSGAIISampler", population_size=20),
    "random": partial(OptunaFront, sampler="RandomSampler"),
}
"""Tuners by name. NSGA-II has 20 points in a population, as its default of 50 leaves one generation of 60 trials."""


def tuner(name: str, space: Space, seed: int, objectives: Sequence[str]) -> Any:
    """Return the tuner of that name, a key of ``TUNERS``."""
    return TUNERS[checks.one_of("tuner", name, TUNERS)](space, seed, objectives)
