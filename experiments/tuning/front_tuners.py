"""Tuners of several objectives, each as its own users would run it, with the interface of ``tuners``.

``tell(params, values)`` learns a value of each objective; smaller values are better. ``recommended()`` returns the
parameters of the front that the tuner shows its user.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from experiments.tuning.peers import new_study, sampler_of
from experiments.tuning.tuners import BoTorchTuner
from kbo._base import checks
from kbo.optimize import Front, Optimizer
from kbo.optimize.objectives.hypervolume import non_dominated
from kbo.space import Params, Space


class KBOFront:
    """``kbo.Optimizer(objectives=...)``; recommends the trials of ``insight.front()``."""

    def __init__(self, space: Space, seed: int, objectives: Sequence[str]) -> None:
        self._names = objectives
        self._optimizer = Optimizer(space, objectives=objectives, seed=seed)

    def ask(self) -> Params:
        return self._optimizer.ask()

    def tell(self, params: Params, values: Sequence[float]) -> None:
        outcome: Any = dict(zip(self._names, values, strict=True))
        self._optimizer.tell(params, outcome)

    def front(self) -> Front:
        """Return the front with its probabilities."""
        front = self._optimizer.insight.front()
        assert front is not None
        return front

    def recommended(self) -> list[Params]:
        return [point.trial.params for point in self.front().points]


class OptunaFront:
    """A sampler of ``optuna.samplers``; recommends ``study.best_trials``, which no observed trial dominates."""

    def __init__(
        self, space: Space, seed: int, objectives: Sequence[str], sampler: str, **options: Any
    ) -> None:
        self._study = new_study(
            directions=["minimize"] * len(objectives),
            sampler=sampler_of(sampler, seed, **options),
        )
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
    """BoTorch's ``SingleTaskGP`` of each objective and qLogNEHVI, as in Ax; recommends as ``OptunaFront``.

    BoTorch infers the reference from the front observed so far.
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
        is_on_front = non_dominated(self._outcomes())
        return list(itertools.compress(self._params, is_on_front))

    def _outcomes(self) -> Tensor:
        """Return the values of the objectives [n m], larger ones better."""
        return -torch.tensor(self._y, dtype=torch.float64)

    def _acquisition(self) -> Any:
        from botorch.acquisition.multi_objective.logei import (
            qLogNoisyExpectedHypervolumeImprovement,
        )
        from botorch.utils.multi_objective.hypervolume import infer_reference_point

        outcomes = self._outcomes()
        reference = infer_reference_point(outcomes[non_dominated(outcomes)])
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
    """Return the tuner with a name, a key of ``TUNERS``."""
    return TUNERS[checks.one_of("tuner", name, TUNERS)](space, seed, objectives)
