"""Models and rules of the methods of kbo, which Ax constructs from the data alone."""

from __future__ import annotations

import math
import random
import warnings
from dataclasses import replace
from typing import Any, ClassVar

import torch
from ax.core.search_space import SearchSpaceDigest
from ax.generators.torch.botorch_modular.acquisition import Acquisition, determine_optimizer
from ax.generators.torch.botorch_modular.surrogate import submodel_input_constructor
from ax.generators.torch.botorch_modular.utils import ModelConfig, fit_botorch_model
from ax.generators.torch_base import TorchOptConfig
from ax.generators.utils import mk_discrete_choices
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import Standardize
from botorch.utils.datasets import SupervisedDataset
from torch import Tensor

from kbo.acquisition import ConstrainedKernelUCB, InflatedThompsonSampling, KernelUCB
from kbo.acquisition.input_constructors import register, register_constrained
from kbo.confidence import Confidence
from kbo.errors import InvalidInput
from kbo.integrations.ax.search import best_points
from kbo.models import StreamingGP
from kbo.optimize import Certified, Practical
from kbo.optimize.belief import Belief, Problem
from kbo.optimize.settings.fitting import LEAST_NOISE, fit, unit_kernel
from kbo.optimize.settings.model import Fitted
from kbo.optimize.settings.practical import PracticalBelief
from kbo.optimize.settings.schedule import Schedule
from kbo.optimize.targets import Targets
from kbo.regression import Posterior
from kbo.space import Choice, Float, Int, Parameter, Space


class UnitFeatures(InputTransform):
    """Numbers scaled to [0, 1], choices without an order as one-hot columns of length 1/sqrt(2).

    Ax itself takes logarithms, numbers the choices that are no numbers, and leaves out parameters of one value. Choices
    with an order are numbers; Ax assumes an order of two options.

    Args:
        bounds: Lower and upper ends [2 d] of the parameters.
        options: The values of those without an order, by column.
    """

    def __init__(self, bounds: Tensor, options: dict[int, list[float]]) -> None:
        super().__init__()
        self.transform_on_train = self.transform_on_eval = self.transform_on_fantasize = True
        self.low: Tensor
        self.width: Tensor
        self.register_buffer("low", bounds[0])
        self.register_buffer("width", bounds[1] - bounds[0])
        self.options = options

    @property
    def columns(self) -> int:
        """Number of feature columns D."""
        return len(self.low) + sum(len(values) - 1 for values in self.options.values())

    def transform(self, X: Tensor) -> Tensor:
        """Features [... D] of points X [... d]."""
        unit = (X - self.low) / self.width
        if not self.options:
            return unit
        parts = [column.unsqueeze(-1) for column in unit.unbind(-1)]
        for i, options in self.options.items():
            values = torch.tensor(options).to(X)
            index = (X[..., i, None] - values).abs().argmin(-1)
            parts[i] = torch.nn.functional.one_hot(index, len(values)).to(X) / math.sqrt(2)
        return torch.cat(parts, -1)


def features_of(digest: SearchSpaceDigest) -> UnitFeatures:
    """The features of a search space."""
    if digest.task_features or digest.fidelity_features:
        names = [digest.feature_names[i] for i in (*digest.task_features, *digest.fidelity_features)]
        raise InvalidInput(f"kbo has no model of tasks and fidelities: fix the parameters {names}.")
    options = {i: [float(v) for v in digest.discrete_choices[i]] for i in digest.categorical_features}
    return UnitFeatures(torch.tensor(digest.bounds, dtype=torch.float64).T, options)


def space_of(digest: SearchSpaceDigest) -> Space:
    """The search space as one of kbo, with the same features; ordered options that are no range count as a range."""
    return Space({name: _parameter(digest, i) for i, name in enumerate(digest.feature_names)})


def _parameter(digest: SearchSpaceDigest, i: int) -> Parameter:
    values, (low, high) = digest.discrete_choices.get(i), digest.bounds[i]
    if values is None:
        return Float(float(low), float(high))
    if i in digest.categorical_features:
        return Choice(values)
    if list(values) == list(range(int(low), int(high) + 1)):
        return Int(int(low), int(high))
    return Float(float(low), float(high))


class MethodGP(StreamingGP):
    """A model with the posterior of a method of kbo; its ``belief`` has the confidence too.

    Args of both kinds:
        train_X, train_Y: Points [n d], and targets [n 1] in their own units.
        sem: The largest standard error of the targets, or None; see each kind.
        method: A name of ``kbo.recipes.names()``.
        setting: The assumptions, or the numbers of the practical setting.
        n_trials: The planned number of trials, for methods that need it.
        input_transform: Makes the features.
    """

    certified: ClassVar[bool] = False
    belief: Belief
    """Posterior, confidence and assumptions after the training data."""

    def confidence(self) -> Confidence:
        """The bound of the method after the training data."""
        confidence = self.belief.confidence
        assert confidence is not None  # the strategy refuses methods without a bound
        return confidence


class CertifiedGP(MethodGP):
    """The posterior of a method in the certified setting: raw targets, nothing fitted.

    ``sem`` is that of the targets which have one, and ``space`` the search space.

    Raises:
        InvalidInput: The kernel does not fit the features, or a standard error contradicts the noise level.
    """

    certified = True

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        sem: float | None,
        method: str,
        setting: Certified,
        space: Space,
        n_trials: int | None = None,
        input_transform: InputTransform | None = None,
    ) -> None:
        most = setting.noise_std if setting.noise_std is not None else setting.noise_upper
        if sem is not None and most is not None and sem > most * (1 + 1e-9):
            raise InvalidInput(
                f"an observation has a standard error of {sem:g}, but the noise level is given as at most {most:g}: no "
                "bound would hold. Give a noise level that is at least the largest standard error."
            )
        self._prior = setting.prior(Problem(method, n_trials, space))
        super().__init__(train_X, train_Y, setting.kernel, self._prior.posterior.ridge, input_transform)

    def _new_state(self) -> Posterior:
        return self._prior.posterior.fork()

    @property
    def belief(self) -> Belief:
        return replace(self._prior, posterior=self.state)


class PracticalGP(MethodGP):
    """The posterior of a method in the practical setting: kernel, noise level and constant are fitted.

    A new model has the means of the priors until ``estimate``, which depends on the data alone. Targets are
    standardised; the posterior is in raw units. With a ``sem``, which is given if all targets have one,
    the noise level is not fitted: it is ``sem``, but not below a hundredth of the targets' standard deviation.
    """

    outcome_transform: Any
    noise_std: Tensor

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        sem: float | None,
        method: str,
        setting: Practical,
        n_trials: int | None = None,
        input_transform: InputTransform | None = None,
    ) -> None:
        columns = getattr(input_transform, "columns", train_X.shape[-1])
        self.sem = sem
        self._setting, self._problem = setting, Problem(method, n_trials, Space([(0.0, 1.0)] * columns))
        super().__init__(train_X, train_Y, unit_kernel(columns), 1.0, input_transform, Standardize(m=1))
        self.register_buffer("noise_std", torch.tensor(1.0, dtype=torch.float64))

    def estimate(self) -> None:
        """Fit kernel, noise level and constant to the data."""
        X, y, scale = self.train_inputs[0], self.train_targets, self.outcome_transform
        known = None if self.sem is None else max(self.sem / float(scale.stdvs), LEAST_NOISE)
        fitted = fit(X, y, known)
        self.covar_module.load_state_dict(fitted.kernel.state_dict())
        self.noise_std.fill_(fitted.noise_std)
        scale.means += scale.stdvs * fitted.constant
        self.set_train_data(targets=y - fitted.constant)
        self.ridge.data.fill_(self._new_state().ridge)

    def _new_state(self) -> Posterior:
        return self._belief(None).posterior

    @property
    def belief(self) -> Belief:
        return self._belief(self.state)

    def _belief(self, state: Posterior | None) -> PracticalBelief:
        scale, n = self.outcome_transform, len(self.train_targets)
        targets = Targets(float(scale.means), float(scale.stdvs))
        fitted = Fitted(self.covar_module, float(self.noise_std), targets, self.sem)
        return PracticalBelief(self._setting, self._problem, fitted, state, Schedule(math.inf, None, n_fitted=n))


@fit_botorch_model.register(StreamingGP)
def _fit_nothing(model: StreamingGP, *args: Any, **kwargs: Any) -> None:
    """Leave the given kernel and ridge as they are."""


@fit_botorch_model.register(PracticalGP)
def _fit_practical(model: PracticalGP, *args: Any, **kwargs: Any) -> None:
    model.estimate()


@submodel_input_constructor.register(MethodGP)
def _method_inputs(
    botorch_model_class: type[MethodGP],
    model_config: ModelConfig,
    dataset: SupervisedDataset,
    search_space_digest: SearchSpaceDigest,
    surrogate: Any,
) -> dict[str, Any]:
    certified = issubclass(botorch_model_class, CertifiedGP)
    known = torch.tensor([]) if dataset.Yvar is None else dataset.Yvar[~dataset.Yvar.isnan()]
    enough = len(known) > 0 if certified else len(known) == len(dataset.Y)
    return {
        "train_X": dataset.X,
        "train_Y": dataset.Y,
        "sem": float(known.max().sqrt()) if enough else None,
        "input_transform": features_of(search_space_digest),
        **({"space": space_of(search_space_digest)} if certified else {}),
        **model_config.model_options,
    }


class MethodUCB(KernelUCB):
    """``KernelUCB`` for which Ax takes the confidence of the model's own method."""


class MethodConstrainedUCB(ConstrainedKernelUCB):
    """``ConstrainedKernelUCB`` for which Ax takes the confidences of the models' own method."""


class MethodSampling(InflatedThompsonSampling):
    """``InflatedThompsonSampling`` for which Ax takes the confidence of the model's own method."""


register(MethodUCB, confidence=lambda model: model.confidence())
register_constrained(MethodConstrainedUCB, confidences=lambda model: [one.confidence() for one in model.models])
register(MethodSampling, confidence=lambda model: model.confidence())


_WALK = {"n_burnin": 256, "n_thinning": 2}
"""Options of BoTorch's search under constraints on parameters: by default it begins with a walk of 18 000 steps, which
takes seconds."""


class SeededAcquisition(Acquisition):
    """Ax's search for the largest value, with randomness that follows from a seed and the data.

    Under outcome constraints the value is that of ``MethodConstrainedUCB``. The option "seed" is that of the strategy.
    In spaces that are all discrete, observed points may be proposed again: with noise, another observation there has a
    value.
    """

    def __init__(self, *, torch_opt_config: TorchOptConfig, botorch_acqf_class: Any, **options: Any) -> None:
        kind = botorch_acqf_class if torch_opt_config.outcome_constraints is None else MethodConstrainedUCB
        super().__init__(torch_opt_config=torch_opt_config, botorch_acqf_class=kind, **options)

    def optimize(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, n: int, search_space_digest: SearchSpaceDigest, optimizer_options: Any = None, **options: Any
    ) -> tuple[Tensor, Tensor, Tensor]:
        """As in Ax."""
        optimizer_options = dict(optimizer_options or {})
        limits, fixed = options.get("inequality_constraints"), options.get("fixed_features")
        walks = limits or options.get("equality_constraints")
        kind = determine_optimizer(search_space_digest, self.acqf, mk_discrete_choices(search_space_digest, fixed))
        if walks and kind == "optimize_acqf":
            optimizer_options["options"] = _WALK | optimizer_options.get("options", {})
        if self._outcome_constraints is not None and kind in ("optimize_acqf", "optimize_acqf_mixed"):
            optimizer_options["retry_on_optimization_warning"] = False  # searches end at the border of a limit
        pending = 0 if self.X_pending is None else len(self.X_pending)
        observed = self.X_observed, self.X_pending
        before = random.getstate()
        try:
            with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Optimization failed", RuntimeWarning)
                seed = (1_000_003 * self.options.get("seed", 0) + 1009 * len(self.surrogate.Xs[0]) + pending) % 2**63
                torch.manual_seed(seed)
                random.seed(seed)
                self.X_observed = self.X_pending = None  # Ax would exclude these points
                if limits and kind.startswith("optimize_acqf_mixed") and not options.get("equality_constraints"):
                    device = self.surrogate.Xs[0].device
                    points = best_points(self.acqf, n, search_space_digest, limits, fixed, observed[1], device)
                    if (rounded := options.get("rounding_func")) is not None:
                        points = torch.stack([rounded(x) for x in points])
                    return points, self.acqf(points.unsqueeze(-2)).detach(), torch.ones(n, dtype=points.dtype)
                return super().optimize(n, search_space_digest, optimizer_options=optimizer_options, **options)
        finally:
            self.X_observed, self.X_pending = observed
            random.setstate(before)
