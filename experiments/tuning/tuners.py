"""Tuners with one interface: kbo, BoTorch, the tuners of ``peers`` and random search, each as its own users run it.

A tuner is made from the space, a seed and the number of trials, which few of them use. ``ask()`` returns the parameters
to try next, ``tell(params, value)`` learns a value, and ``recommended()`` returns the parameters that its user would
take at present. Smaller values are better. Some tuners also take ``constraints``: names of quantities that must be at
most 0. Then ``tell`` gets a dictionary with their values and the "objective", and ``recommended()`` may be None.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from experiments.tuning.peers import AxTuner, NevergradTuner, OptunaTuner, SMACTuner, Value, outputs
from kbo import space as spaces
from kbo._base import checks
from kbo.optimize import Constraint, Optimizer
from kbo.space import Params, Space


class KBO:
    """``kbo.minimize``; recommends the trial with the best pessimistic bound."""

    def __init__(
        self, space: Space, seed: int, trials: int, constraints: Sequence[str] = ()
    ) -> None:
        limits = [Constraint(name, upper=0.0) for name in constraints]
        self._optimizer = Optimizer(space, constraints=limits, seed=seed)

    def ask(self) -> Params:
        return self._optimizer.ask()

    def tell(self, params: Params, value: Value) -> None:
        self._optimizer.tell(params, value)

    def recommended(self) -> Params:
        best = self._optimizer.recommended()
        assert best is not None
        return best.params


class BoTorchTuner:
    """BoTorch's ``SingleTaskGP`` and qLogNEI; recommends the trial with the smallest posterior mean.

    With constraints, a ``ModelListGP`` has one model for each output, and the recommendation is among the trials that
    are feasible with a probability of at least one half; if there is none, it is the trial that is most probably
    feasible. Features are those of ``kbo.space``. Whole numbers are searched as real numbers and rounded, and choices
    one by one. Finite spaces of up to 10 000 points are searched point by point. The first 2 P + 2 trials fill the
    space.
    """

    restarts: int = 4
    raw_samples: int = 128
    draws: int = 128

    def __init__(
        self, space: Space, seed: int, trials: int, constraints: Sequence[str] = ()
    ) -> None:
        self._space = space
        self._seed = seed
        self._constraints = constraints
        self._sobol = torch.quasirandom.SobolEngine(space.dimension, scramble=True, seed=seed)
        self._units: list[Tensor] = []
        self._y: list[list[float]] = []
        self._points = space.points(10_000)
        self._model: Any = None

    def ask(self) -> Params:
        n = len(self._units)
        if n < 2 * self._space.dimension + 2:
            return self._space.params(self._sobol.draw(1, dtype=torch.float64)[0])
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1_000_003 * self._seed + n)
            return self._space.params(self._next())

    def tell(self, params: Params, value: Value) -> None:
        self._units.append(self._space.unit(params))
        self._y.append(outputs(value, self._constraints))
        self._model = None

    def recommended(self) -> Params:
        posterior = self._fitted().posterior(self._features())
        mean = posterior.mean.detach()
        std = posterior.variance.detach().sqrt()
        feasibility = torch.special.log_ndtr(-mean[:, 1:] / std[:, 1:]).sum(-1).exp()
        is_feasible = feasibility >= 0.5
        if bool(is_feasible.any()):
            best = mean[:, 0].masked_fill(~is_feasible, -torch.inf).argmax()
        else:
            best = feasibility.argmax()
        return self._space.params(self._units[int(best)])

    def _features(self) -> Tensor:
        return self._space.features(torch.stack(self._units))

    def _outcomes(self) -> Tensor:
        """Return minus the objective, and the constraints [n 1 + c]; BoTorch maximises the first."""
        outcomes = torch.tensor(self._y, dtype=torch.float64)
        outcomes[:, 0] *= -1
        return outcomes

    def _fitted(self) -> Any:
        """Return the model of all outcomes, fitted once for the present data."""
        from botorch.fit import fit_gpytorch_mll
        from botorch.models import ModelListGP, SingleTaskGP
        from gpytorch.mlls import ExactMarginalLogLikelihood

        if self._model is not None:
            return self._model
        X = self._features()
        outcomes = self._outcomes()
        models = [SingleTaskGP(X, outcomes[:, [i]]) for i in range(outcomes.shape[1])]
        for model in models:
            fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        self._model = models[0]
        if len(models) > 1:
            self._model = ModelListGP(*models)
        return self._model

    def _sampler(self) -> Any:
        """Return the source of the draws of the acquisition."""
        from botorch.sampling import SobolQMCNormalSampler

        return SobolQMCNormalSampler(torch.Size([self.draws]), seed=self._seed)

    def _acquisition(self) -> Any:
        """Return the acquisition, as a function of features."""
        from botorch.acquisition import GenericMCObjective
        from botorch.acquisition.logei import qLogNoisyExpectedImprovement

        options: dict[str, Any] = {"sampler": self._sampler(), "prune_baseline": True}
        if self._constraints:
            options["constraints"] = [
                lambda Z, i=i: Z[..., i] for i, _ in enumerate(self._constraints, 1)
            ]
            options["objective"] = GenericMCObjective(lambda Z, X=None: Z[..., 0])
        return qLogNoisyExpectedImprovement(self._fitted(), self._features(), **options)

    def _next(self) -> Tensor:
        """Return the point of the unit cube with the largest acquisition."""
        from botorch.optim import optimize_acqf, optimize_acqf_discrete, optimize_acqf_mixed

        acqf = self._acquisition()
        if self._points is not None:
            choices = self._space.features(self._points)
            best, _ = optimize_acqf_discrete(acqf, q=1, choices=choices)
            return self._points[int((choices - best).abs().sum(-1).argmin())]
        columns = self._space.columns
        bounds = torch.stack([torch.zeros(columns), torch.ones(columns)]).double()
        options: Any = {"q": 1, "num_restarts": self.restarts, "raw_samples": self.raw_samples}
        fixed = _choices_one_by_one(self._space)
        if fixed == [{}]:
            best, _ = optimize_acqf(acqf, bounds, **options)
        else:
            best, _ = optimize_acqf_mixed(acqf, bounds, fixed_features_list=fixed, **options)
        return _unit(self._space, best[0].tolist())


def _choices_one_by_one(space: Space) -> list[dict[int, float]]:
    """Return for every combination of options the values of the one-hot columns of all choices, by column."""
    blocks = []
    column = 0
    for parameter in space.parameters.values():
        if isinstance(parameter, spaces.Choice):
            one_hot = math.sqrt(0.5) * torch.eye(parameter.columns, dtype=torch.float64)
            blocks.append([list(enumerate(row, column)) for row in one_hot.tolist()])
        column += parameter.columns
    return [dict(itertools.chain(*combination)) for combination in itertools.product(*blocks)]


def _unit(space: Space, features: list[float]) -> Tensor:
    """Return the point of the unit cube whose features are nearest to the given ones."""
    units = []
    column = 0
    for parameter in space.parameters.values():
        part = torch.tensor(features[column : column + parameter.columns], dtype=torch.float64)
        column += parameter.columns
        if parameter.options:
            options = parameter.middles(torch.arange(len(parameter.options)))
            distances = (parameter.features(options) - part).square().sum(1)
            units.append(float(options[distances.argmin()]))
        else:
            units.append(min(max(float(part[0]), 0.0), 1.0))
    return torch.tensor(units, dtype=torch.float64)


TUNERS: dict[str, Callable[..., Any]] = {
    "kbo": KBO,
    "qlognei": BoTorchTuner,
    "gpsampler": partial(OptunaTuner, sampler="GPSampler"),
    "tpe": partial(OptunaTuner, sampler="TPESampler"),
    "tpe-group": partial(OptunaTuner, sampler="TPESampler", group=True),
    "kbo-sampler": partial(OptunaTuner, sampler="KBOSampler"),
    "tpe-independent": partial(OptunaTuner, sampler="TPESampler", multivariate=False),
    "cmaes": partial(OptunaTuner, sampler="CmaEsSampler"),
    "ax": AxTuner,
    "smac": SMACTuner,
    "ngopt": NevergradTuner,
    "random": partial(OptunaTuner, sampler="RandomSampler"),
}
"""Tuners by name. TPE is multivariate by default since Optuna 5; ``group`` only matters with conditional parameters."""

LEFT_OUT = "(HEBO 0.3.6 is left out: it needs NumPy below 1.25, and kbo at least 1.26)"

FEWER = {
    "qlognei": {50: 3, 1000: 0},
    "ax": {50: 3, 200: 1, 1000: 0},
    "gpsampler": {200: 5, 1000: 0},
    "smac": {200: 5, 1000: 1},
}
"""For slow tuners, by name and smallest number of trials: the number of runs on a problem. A run takes more than 20 CPU
seconds (in 5 dimensions: 25 and 39 for qlognei and ax with 50 trials, 41 and 41 for gpsampler and smac with 200). Other
tuners do all runs."""


def seeds_of(name: str, trials: int, seeds: int) -> int:
    """Return the number of runs of a tuner on a problem: the wanted ``seeds``, or as many as ``FEWER`` allows."""
    limits = FEWER.get(name, {})
    return min([seeds, *(most for from_trials, most in limits.items() if trials >= from_trials)])


def tuner(name: str, space: Space, seed: int, trials: int, **options: Any) -> Any:
    """Return the tuner with a name, a key of ``TUNERS``, with its options."""
    return TUNERS[checks.one_of("tuner", name, TUNERS)](space, seed, trials, **options)
