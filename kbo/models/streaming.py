"""Models whose data grow: the posterior is a function of data, kernel and ridge.

    train_X, train_Y, train_Yvar --transforms--> train_inputs, train_targets, variances
                    covar_module, ridge --------> empty_state() --update(data)--> state

BoTorch, Ax and users change kernels, ridges, data and devices without a call of the model. So
``state`` compares the hyperparameters with those of the last posterior, and builds a new posterior
after a change.
"""

from __future__ import annotations

import copy
import warnings
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from botorch.exceptions import InputDataWarning
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.utils.datasets import SupervisedDataset
from gpytorch.kernels import Kernel
from torch import Tensor

from kbo._base import checks
from kbo.errors import InvalidInput
from kbo.kernels import PrecomputedKernel
from kbo.models.base import PosteriorModel
from kbo.models.likelihoods import KnownLikelihood, RidgeLikelihood
from kbo.regression import Dictionary, Posterior

_CHANGED = (
    "kernel, ridge or transform were changed after the model had data: make a new model with values "
    "that you chose before you saw data"
)


class StreamingGP(PosteriorModel):
    """The base of the models that hold data: a Gaussian process with fixed kernel and noise variance.

    A subclass defines ``empty_state``, the posterior without data. Arguments and errors are those
    of ``KernelRidgeGP``.
    """

    batch_shape: torch.Size = torch.Size()  # only fantasies have batches

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        kernel: Kernel,
        ridge: float,
        input_transform: InputTransform | None = None,
        outcome_transform: OutcomeTransform | None = None,
        train_Yvar: Tensor | None = None,
    ) -> None:
        super().__init__()
        checks.maybe(checks.instance, "input_transform", input_transform, InputTransform)
        checks.maybe(checks.instance, "outcome_transform", outcome_transform, OutcomeTransform)
        checks.kernel(kernel)
        _check_data(train_X, train_Y, train_Yvar)
        train_X = train_X.clone()  # the caller may change the original
        train_Y = train_Y.clone()
        train_Yvar = None if train_Yvar is None else train_Yvar.clone()
        self._caveats: tuple[str, ...] = ()
        self._built: tuple[list[float], Posterior] | None = None  # hyperparameters, posterior
        if outcome_transform is not None:
            self.outcome_transform: OutcomeTransform = _untrained(outcome_transform, train_X)
            self._note_constants(self.outcome_transform, train_Y)
            train_Y, train_Yvar = self.outcome_transform(train_Y, train_Yvar, X=train_X)
        if input_transform is not None:
            self.input_transform: InputTransform = _untrained(input_transform, train_X)
            self._note_constants(self.input_transform, train_X)
            self.input_transform(train_X)  # learn the constants
        self.covar_module: Kernel = copy.deepcopy(kernel).to(train_X)
        self.train_inputs: tuple[Tensor, ...] = (train_X,)
        self.train_targets: Tensor = train_Y.squeeze(-1)
        self._variances = None if train_Yvar is None else train_Yvar.squeeze(-1)
        value = train_X.new_tensor(checks.positive("ridge", ridge), dtype=torch.float64)
        self.ridge: torch.nn.Parameter = torch.nn.Parameter(value)
        self._keep_likelihood(RidgeLikelihood(self.ridge, train_X))
        self.eval()
        self._first_values: list[float] = self.hyperparameters().tolist()

    # Hyperparameters

    @property
    def likelihood(self) -> RidgeLikelihood | KnownLikelihood:
        """Gaussian noise of variances ``train_Yvar`` if they are known, else of variance ``ridge``.

        Fits respect its registered constraints and priors, which are not in state dicts.
        """
        if self.train_Yvar is not None:
            return KnownLikelihood(self.train_Yvar)
        return self._ridge_likelihood()

    def _ridge_likelihood(self) -> RidgeLikelihood:
        """Return the likelihood of the ridge, first copied if it belongs to the original model."""
        likelihood: RidgeLikelihood = vars(self)["_likelihood"]
        ridge = likelihood.noise_covar.raw_noise
        if ridge is not self.ridge:
            likelihood = copy.deepcopy(likelihood, {id(ridge): self.ridge})
            self._keep_likelihood(likelihood)
        return likelihood

    def _keep_likelihood(self, likelihood: RidgeLikelihood) -> None:
        """Keep the likelihood outside the submodules, so that state dicts have the ridge only once."""
        vars(self)["_likelihood"] = likelihood

    def named_priors(self) -> Iterator[tuple[Any, ...]]:
        """Yield the priors of kernel and noise, which marginal likelihoods add."""
        yield from super().named_priors()
        yield from self._ridge_likelihood().named_priors()

    def hyperparameters(self) -> Tensor:
        """Return the numbers of kernel, ridge and transforms, [h]."""
        values = [*self.covar_module.parameters(), self.ridge]
        for name in ("input_transform", "outcome_transform"):
            if hasattr(self, name):
                values += _constants(getattr(self, name))
        return torch.cat([value.detach().reshape(-1) for value in values])

    # The posterior

    @property
    def state(self) -> Posterior:
        """The posterior of the transformed data.

        To add data use ``condition_on_observations``. Updates of the state itself would be lost.
        """
        if self.training:
            self.eval()
        values = self.hyperparameters().tolist()
        if self._built is None or self._built[0] != values:
            if not len(self.train_targets):
                self._first_values = values
            self._built = (values, self._build(values))
        return self._built[1]

    def _build(self, hyperparameters: list[float]) -> Posterior:
        """Return the posterior of data, kernel and ridge, with the caveats of the model."""
        state = self.empty_state()
        _learn(state, self.train_inputs[0], self.train_targets, self.train_Yvar)
        for caveat in self._caveats:
            state.note(caveat)
        if hyperparameters != self._first_values:
            state.note(_CHANGED)
        return state

    @abstractmethod
    def empty_state(self) -> Posterior:
        """Return the posterior without data, for the current kernel and ridge."""

    def transformed(self, dictionary: Dictionary) -> Dictionary:
        """Return the dictionary, with its given points, if any, after the input transform."""
        points = checks.instance("dictionary", dictionary, Dictionary).points
        if points is None:
            return dictionary
        columns = self.train_inputs[0].shape[-1]
        if self._original_train_inputs is not None:
            columns = self._original_train_inputs.shape[-1]
        if points.shape[-1] != columns:
            raise InvalidInput(
                f"the dictionary's points have {points.shape[-1]} columns but train_X has {columns}."
            )
        moved = copy.copy(dictionary)
        moved.points = self.transform_inputs(points.to(self.train_targets))
        return moved

    # Reasons why no theorem covers the model

    def add_caveat(self, reason: str) -> None:
        """Add a reason why no theorem covers bounds on this model, or on models conditioned on it."""
        self._caveats = (*self._caveats, reason)
        self._built = None

    def _note_constants(self, transform: torch.nn.Module, data: Tensor) -> None:
        """Add a caveat if a transform takes constants from the data [n d]."""
        if len(data) and _learns(transform, data):
            self.add_caveat(
                f"{type(transform).__name__} takes its constants from the data: scale with constants "
                "that you chose before you saw data, for example train_Y = (Y - offset) / scale, or "
                "Normalize(d, bounds=...)"
            )

    def get_extra_state(self) -> Tensor:
        """Return whether kernel, ridge or transforms were chosen after data, for state dicts, []."""
        changed = self.hyperparameters().tolist() != self._first_values
        after_data = changed and len(self.train_targets) > 0
        return torch.tensor(after_data or bool(self._caveats), device="cpu")

    def set_extra_state(self, state: Tensor) -> None:
        """Add a caveat if the values of a state dict were chosen after data."""
        if bool(state) and not self._caveats:
            self.add_caveat(
                "kernel, ridge or transforms come from the state dict of a model that had data "
                "before them"
            )

    # Other data

    def set_train_data(
        self,
        inputs: Tensor | Sequence[Tensor] | None = None,
        targets: Tensor | None = None,
        strict: bool = True,
    ) -> None:
        """Replace the data. BoTorch calls this when it applies or undoes the input transform."""
        X = self.train_inputs[0]
        y = self.train_targets
        if inputs is not None:
            points: Any = inputs[0] if isinstance(inputs, (tuple, list)) and inputs else inputs
            X = _unbatched("inputs", points).clone()
        if targets is not None:
            y = checks.points("targets", targets).clone()
        if self._variances is not None and not len(X) == len(y) == len(self._variances):
            raise InvalidInput(
                f"the model has known noise variances of {len(self._variances)} observations: for "
                f"{len(X)} rows of inputs and {len(y)} targets make a new model with another "
                "train_Yvar."
            )
        self.train_inputs = (X,)
        self.train_targets = y
        self._built = None

    def condition_on_observations(
        self, X: Tensor, Y: Tensor, noise: Tensor | None = None, **kwargs: Any
    ) -> PosteriorModel:
        """Return the model after observing Y at X; it shares what does not change with this model.

        Batched data, or data that require gradients, give a differentiable ``FantasyGP``.

        Args:
            X: Points [q d].
            Y: Targets [q 1].
            noise: Known noise variances [q 1], in squared units of the transformed targets; by
                default the ridge.
            **kwargs: Ignored.
        """
        X = self.cast("X", X)
        Y = self.cast("Y", Y)
        wants_graph = torch.is_grad_enabled() and (X.requires_grad or Y.requires_grad)
        if wants_graph or X.ndim > 2 or Y.ndim > 2:
            return super().condition_on_observations(X, Y, noise, **kwargs)
        values = self.hyperparameters().tolist()
        observed = self.state
        observed.at()  # grows the factor once, for all models derived from this one
        checks.rows("X", X)
        with torch.no_grad():
            P, y, variances = self._transformed_observations(X.detach(), Y.detach(), noise)
        checks.shaped("X", P, self.train_targets, self.train_inputs[0].shape[-1])
        state = observed.fork()
        _learn(state, P, y, variances)
        model = self._copy()
        model.train_inputs = (torch.cat([self.train_inputs[0], P]),)
        model.train_targets = torch.cat([self.train_targets, y])
        if self._original_train_inputs is not None:
            model._original_train_inputs = torch.cat([self._original_train_inputs, X.detach()])
        if variances is not None or self.train_Yvar is not None:
            ridge = self.ridge.detach()
            before = _variances_or_ridge(self.train_Yvar, self.train_targets, ridge)
            model._variances = torch.cat([before, _variances_or_ridge(variances, y, ridge)])
        model._built = (values, state)
        return model

    def _copy(self) -> StreamingGP:
        """Return a model with its own modules and parameters, and the data and posterior of this one."""
        model = object.__new__(type(self))
        vars(model).update(vars(self))
        kernels = [kernel for kernel in self.modules() if isinstance(kernel, PrecomputedKernel)]
        shared: Any = {id(kernel.gram): kernel.gram for kernel in kernels}  # large and constant
        modules_and_tensors = (self._modules, self._buffers, self._parameters)
        copies = copy.deepcopy(modules_and_tensors, shared)
        model._modules, model._buffers, model._parameters = copies
        return model

    # PyTorch and BoTorch

    def _apply(self, fn, recurse: bool = True):
        super()._apply(fn, recurse)
        self._ridge_likelihood()._apply(fn)
        before = self.train_targets
        after = fn(before)
        if after is before:  # before each evaluation BoTorch "moves" a model to its own device
            return self
        self.train_targets = after
        self.train_inputs = tuple(fn(X) for X in self.train_inputs)
        if self._original_train_inputs is not None:
            self._original_train_inputs = fn(self._original_train_inputs)
        if self._variances is not None:
            self._variances = fn(self._variances)
        first_values = before.new_tensor(self._first_values, dtype=torch.float64)
        self._first_values = fn(first_values).tolist()
        self._built = None
        if len(before) and torch.finfo(after.dtype).eps > torch.finfo(before.dtype).eps:
            self.add_caveat(
                f"data and kernel were rounded to {after.dtype}: make a new model of the data"
            )
        return self

    def _extract_targets_and_noise(self) -> tuple[Tensor, Tensor | None]:
        variances = self.train_Yvar
        if variances is not None:
            variances = variances.unsqueeze(-1)
        return self.train_targets.unsqueeze(-1), variances

    def _restore_targets_and_noise(self, Y: Tensor, Yvar: Tensor | None, strict: bool) -> None:
        self._variances = None if Yvar is None else Yvar.squeeze(-1)
        self.set_train_data(targets=Y.squeeze(-1), strict=strict)

    @classmethod
    def construct_inputs(cls, training_data: SupervisedDataset, **options: Any) -> dict[str, Any]:
        """Return the constructor arguments for a BoTorch data set, and the ``options``.

        The noise variances of the data set are ignored, because they are often estimates from few
        values. Pass ``train_Yvar`` among the options if they are known.
        """
        arguments = super().construct_inputs(training_data)
        arguments.pop("train_Yvar", None)
        return {**arguments, **options}


def _check_data(train_X: Tensor, train_Y: Tensor, train_Yvar: Tensor | None) -> None:
    """Raise InvalidInput unless points [n d], targets [n 1] and variances [n 1] make a model."""
    _unbatched("train_X", train_X)
    shape = tuple(checks.tensor("train_Y", train_Y).shape)
    if shape != (len(train_X), 1):
        hint = "for several outputs make a ModelListGP of one model each"
        if shape == (len(train_X),):
            hint = "use train_Y.unsqueeze(-1)"
        raise InvalidInput(
            f"train_Y must have shape [{len(train_X)} 1], one column with a value for each row of "
            f"train_X, got {shape}: {hint}."
        )
    checks.observations(train_X, train_Y.squeeze(-1), names=("train_X", "train_Y"))
    if train_X.dtype != torch.float64:
        warnings.warn(
            "train_X is torch.float32, which is good for predictions alone: bounds need "
            "torch.float64.",
            InputDataWarning,
            stacklevel=3,
        )
    if train_Yvar is not None:
        checks.variances("train_Yvar", train_Yvar, train_Y)


def _unbatched(name: str, X: Tensor) -> Tensor:
    """Return X, or raise InvalidInput unless it has the shape [n d]."""
    if checks.tensor(name, X).ndim > 2:
        raise InvalidInput(
            f"{name} must have shape [n d], got {tuple(X.shape)}, and models of kbo have no batches: "
            "make one model of each batch; to cross-validate a model take "
            "botorch.cross_validation.loo_cv."
        )
    return checks.rows(name, X)


def _learn(state: Posterior, X: Tensor, y: Tensor, variances: Tensor | None) -> None:
    """Add observations X [r d], y [r] to a posterior; noise variances [r], or None for the ridge."""
    if variances is None:
        state.update(X, y)
        return
    state.update(X, y, weights=state.ridge / variances)
    state.note(unit_variance=state.ridge)


def _variances_or_ridge(variances: Tensor | None, y: Tensor, ridge: Tensor) -> Tensor:
    """Return the noise variances [r] of targets y [r]: the known ones, or the ridge [] for each."""
    if variances is None:
        return ridge.to(y).expand(len(y))
    return variances


def _untrained(transform: Any, like: Tensor) -> Any:
    """Return a copy of a transform in training mode, as a user may pass it to many models."""
    return copy.deepcopy(transform).to(like).train()


def _learns(transform: torch.nn.Module, data: Tensor) -> bool:
    """Return whether a transform learns constants from data [n d]: they differ for ``data / 2``."""
    of_data = copy.deepcopy(transform)
    of_halves = copy.deepcopy(transform)
    of_data(data)
    of_halves(data / 2)
    constants = _constants(of_data)
    constants_of_halves = _constants(of_halves)
    if len(constants) != len(constants_of_halves):
        return True
    return not all(map(torch.equal, constants, constants_of_halves))


def _constants(transform: torch.nn.Module) -> list[Tensor]:
    """Return the numbers of a transform, without its flags, which BoTorch keeps on the CPU."""
    values = (*transform.parameters(), *transform.buffers())
    return [value for value in values if value.dtype != torch.bool]
