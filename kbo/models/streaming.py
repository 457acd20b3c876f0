"""The base of BoTorch models with fixed kernel and noise, whose data grow."""

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
    "kernel, ridge or transform were changed after the model had data: make a new model with values that you chose "
    "before you saw data"
)


class StreamingGP(PosteriorModel):
    """A Gaussian process with fixed kernel and noise variance.

    Subclasses define the state without data (``_new_state``); arguments and errors are those of ``KernelRidgeGP``.
    """

    batch_shape: torch.Size = torch.Size()  # only fantasies have batches
    _likelihood: RidgeLikelihood

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
        _unbatched("train_X", train_X)
        checks.kernel(kernel)
        checks.maybe(checks.instance, "input_transform", input_transform, InputTransform)
        checks.maybe(checks.instance, "outcome_transform", outcome_transform, OutcomeTransform)
        if (shape := tuple(checks.tensor("train_Y", train_Y).shape)) != (len(train_X), 1):
            flat = shape == (len(train_X),)
            hint = (
                "use train_Y.unsqueeze(-1)"
                if flat
                else "for several outputs make a ModelListGP of one model each"
            )
            raise InvalidInput(
                f"train_Y must have shape [{len(train_X)} 1], one column with a value for each row of train_X, "
                f"got {shape}: {hint}."
            )
        checks.observations(train_X, train_Y.squeeze(-1), names=("train_X", "train_Y"))
        if train_X.dtype != torch.float64:
            message = "train_X is torch.float32, which is good for predictions alone: bounds need torch.float64."
            warnings.warn(message, InputDataWarning, stacklevel=2)
        if train_Yvar is not None:
            checks.variances("train_Yvar", train_Yvar, train_Y)
            train_Yvar = train_Yvar.clone()
        train_X, train_Y = train_X.clone(), train_Y.clone()  # the caller may change theirs
        self._caveats: tuple[str, ...] = ()
        self._built: tuple[list[float], Posterior] | None = None  # hyperparameters and their state
        # Copies in training mode, as new: one transform may be given to many models.
        if outcome_transform is not None:
            self.outcome_transform: OutcomeTransform = (
                copy.deepcopy(outcome_transform).to(train_X).train()
            )
            self._note_fit(self.outcome_transform, train_Y)
            train_Y, train_Yvar = self.outcome_transform(train_Y, train_Yvar, X=train_X)
        if input_transform is not None:
            self.input_transform: InputTransform = (
                copy.deepcopy(input_transform).to(train_X).train()
            )
            self._note_fit(self.input_transform, train_X)
            self.input_transform(train_X)  # learn the bounds
        self.covar_module: Kernel = copy.deepcopy(checks.kernel(kernel)).to(train_X)
        value = train_X.new_tensor(checks.positive("ridge", ridge), dtype=torch.float64)
        self.ridge: torch.nn.Parameter = torch.nn.Parameter(value)
        self.train_inputs: tuple[Tensor, ...] = (train_X,)
        self.train_targets: Tensor = train_Y.squeeze(-1)
        likelihood = RidgeLikelihood(self.ridge, self.train_targets)
        vars(self)["_likelihood"] = likelihood  # no submodule: a state dict has the ridge once
        self._variances = None if train_Yvar is None else train_Yvar.squeeze(-1)
        self.eval()
        self._first_values: list[float] = self.hyperparameters().tolist()

    def add_caveat(self, reason: str) -> None:
        """Add a reason why no theorem covers bounds on this model, in words; models conditioned on it have it too."""
        self._caveats, self._built = (*self._caveats, reason), None

    def _note_fit(self, transform: torch.nn.Module, data: Tensor) -> None:
        """Note a transform whose constants depend on the data: other data give it others."""
        if not len(data):
            return
        one, other = copy.deepcopy(transform), copy.deepcopy(transform)
        one(data)
        other(data / 2)
        before, after = _numbers(one), _numbers(other)
        if len(before) != len(after) or not all(map(torch.equal, before, after)):
            self.add_caveat(
                f"{type(transform).__name__} takes its constants from the data: scale with constants that you chose "
                "before you saw data, for example train_Y = (Y - offset) / scale, or Normalize(d, bounds=...)"
            )

    def hyperparameters(self) -> Tensor:
        """Return all numbers [h] on which the meaning of the data depends."""
        transforms = (
            getattr(self, name, None) for name in ("input_transform", "outcome_transform")
        )
        numbers = (
            number
            for transform in transforms
            if transform is not None
            for number in _numbers(transform)
        )
        values = (*self.covar_module.parameters(), self.ridge, *numbers)
        return torch.cat([value.detach().reshape(-1) for value in values])

    @property
    def train_Yvar(self) -> Tensor | None:
        """Known noise variances [n] of the observations, in units of the transformed targets; or None."""
        return self._variances

    @train_Yvar.setter
    def train_Yvar(self, value: Any) -> None:
        raise InvalidInput(
            "the noise variances of a model stay as they are: make a new model with another train_Yvar."
        )

    @property
    def likelihood(self) -> RidgeLikelihood | KnownLikelihood:
        """Gaussian noise of variances ``train_Yvar``, or ``ridge``: setting or fitting the one changes the other.

        Fits respect the constraints and priors that are registered with it; they are not in state dicts.
        """
        return (
            self._own_likelihood() if self.train_Yvar is None else KnownLikelihood(self.train_Yvar)
        )

    def _own_likelihood(self) -> RidgeLikelihood:
        ridge = self._likelihood.raw_noise
        if (
            ridge is not self.ridge
        ):  # that of the model this one was conditioned from, or before load_state_dict
            vars(self)["_likelihood"] = copy.deepcopy(self._likelihood, {id(ridge): self.ridge})
        return self._likelihood

    def named_priors(self) -> Iterator[tuple[Any, ...]]:
        """Yield the priors of kernel and noise, which marginal likelihoods add."""
        yield from super().named_priors()
        yield from self._own_likelihood().named_priors()

    @abstractmethod
    def _new_state(self) -> Posterior:
        """Return the state without data, for the current kernel and ridge."""

    @property
    def state(self) -> Posterior:
        """The posterior of the transformed data.

        To add data use ``condition_on_observations``: an update of the state itself would be lost.
        """
        # A function of data, kernel and ridge. It is checked here, not computed by a method that callers must not
        # forget, because BoTorch, Ax and users change kernels, data and devices without calling the model.
        if self.training:
            self.eval()
        hyperparameters, built = self.hyperparameters().tolist(), self._built
        if built is None or hyperparameters != built[0]:
            state = self._new_state()
            self._learn(state, self.train_inputs[0], self.train_targets, self.train_Yvar)
            if not state.n:
                self._first_values = hyperparameters
            for caveat in (*self._caveats, *[_CHANGED] * (hyperparameters != self._first_values)):
                state.note(caveat)
            self._built = built = hyperparameters, state
        return built[1]

    def _learn(self, state: Posterior, X: Tensor, y: Tensor, variances: Tensor | None) -> None:
        """Add observations X [r d], y [r] of noise variances [r] to a state; None for the ridge."""
        if variances is None:
            state.update(X, y)
        else:
            state.update(X, y, weights=state.ridge / variances)
            state.note(unit_variance=state.ridge)

    def transformed(self, dictionary: Dictionary) -> Dictionary:
        """Return the dictionary, with its given points, if any, in the units of the state."""
        points = dictionary.points if isinstance(dictionary, Dictionary) else None
        if points is None:
            return dictionary
        given = (
            self.train_inputs[0]
            if self._original_train_inputs is None
            else self._original_train_inputs
        )
        if points.shape[-1] != given.shape[-1]:
            raise InvalidInput(
                f"the dictionary's points have {points.shape[-1]} columns but train_X has {given.shape[-1]}."
            )
        moved = copy.copy(dictionary)
        moved.points = self.transform_inputs(points.to(self.train_targets))
        return moved

    def set_train_data(
        self,
        inputs: Tensor | Sequence[Tensor] | None = None,
        targets: Tensor | None = None,
        strict: bool = True,
    ) -> None:
        """Replace the data (BoTorch calls this when it applies or undoes the input transform)."""
        X, y = self.train_inputs[0], self.train_targets
        if inputs is not None:
            given: Any = inputs[0] if isinstance(inputs, (tuple, list)) and inputs else inputs
            X = _unbatched("inputs", given).clone()
        if targets is not None:
            y = checks.points("targets", targets).clone()
        if self._variances is not None and not len(X) == len(y) == len(self._variances):
            raise InvalidInput(
                f"the model has known noise variances of {len(self._variances)} observations: for {len(X)} rows of "
                f"inputs and {len(y)} targets make a new model with another train_Yvar."
            )
        self.train_inputs, self.train_targets, self._built = (X,), y, None

    def get_extra_state(self) -> Tensor:
        """Return whether kernel, ridge or transforms were chosen after data: a state dict has it, as in PyTorch."""
        changed = (
            len(self.train_targets) > 0 and self.hyperparameters().tolist() != self._first_values
        )
        return torch.tensor(changed or bool(self._caveats), device="cpu")

    def set_extra_state(self, state: Tensor) -> None:
        """Take over whether the values of a state dict were chosen after data."""
        if bool(state) and not self._caveats:
            self.add_caveat(
                "kernel, ridge or transforms come from the state dict of a model that had data before them"
            )

    def _extract_targets_and_noise(self) -> tuple[Tensor, Tensor | None]:
        return self.train_targets.unsqueeze(
            -1
        ), None if self.train_Yvar is None else self.train_Yvar.unsqueeze(-1)

    def _restore_targets_and_noise(self, Y: Tensor, Yvar: Tensor | None, strict: bool) -> None:
        self._variances = None if Yvar is None else Yvar.squeeze(-1)
        self.set_train_data(targets=Y.squeeze(-1), strict=strict)

    def condition_on_observations(
        self, X: Tensor, Y: Tensor, noise: Tensor | None = None, **kwargs: Any
    ) -> PosteriorModel:
        """Return the model after observing Y [q 1] at X [q d], which shares with this one what does not change.

        Batched data, or data that require gradients, give a differentiable ``FantasyGP`` instead.

        Args:
            X: Points [q d].
            Y: Targets [q 1].
            noise: Known noise variances [q 1], in units of the transformed targets; by default the ridge.
            **kwargs: Ignored.
        """
        X, Y = self.cast("X", X), self.cast("Y", Y)
        wants_graph = torch.is_grad_enabled() and (X.requires_grad or Y.requires_grad)
        if wants_graph or X.ndim > 2 or Y.ndim > 2:
            return super().condition_on_observations(X, Y, noise, **kwargs)
        values, state = self.hyperparameters().tolist(), self.state
        state.at()  # grows the factor, once for all models that follow
        if Y.ndim != 2 or Y.shape[-1] != 1:
            raise InvalidInput(
                f"Y must have shape [{len(X)} 1], got {tuple(Y.shape)}: use y.unsqueeze(-1)."
            )
        P = self.observed_at(X).detach()
        targets = (
            self.outcome_transform(Y=Y, X=X)[0] if hasattr(self, "outcome_transform") else Y
        ).detach()
        checks.shaped("X", P, self.train_targets, self.train_inputs[0].shape[-1])
        new = (
            None
            if noise is None
            else checks.variances("noise", self.cast("noise", noise), targets).detach().squeeze(-1)
        )
        state = state.fork()
        self._learn(state, P, targets.squeeze(-1), new)
        model = object.__new__(type(self))
        vars(model).update(vars(self))
        shared: Any = {
            id(one.gram): one.gram for one in self.modules() if isinstance(one, PrecomputedKernel)
        }
        model._modules, model._buffers, model._parameters = copy.deepcopy(
            (self._modules, self._buffers, self._parameters), shared
        )
        model.train_inputs = (torch.cat([self.train_inputs[0], P]),)
        model.train_targets = torch.cat([self.train_targets, targets.squeeze(-1)])
        if self._original_train_inputs is not None:
            model._original_train_inputs = torch.cat([self._original_train_inputs, X.detach()])
        if new is not None or self.train_Yvar is not None:
            old, new = (
                self.ridge.detach().to(y).expand(len(y)) if variances is None else variances
                for variances, y in ((self.train_Yvar, self.train_targets), (new, targets))
            )
            model._variances = torch.cat([old, new])
        model._built = values, state
        return model

    def _apply(self, fn, recurse: bool = True):
        super()._apply(fn, recurse)
        self._own_likelihood()._apply(fn)
        before, self.train_targets = self.train_targets, fn(self.train_targets)
        if (
            self.train_targets is before
        ):  # BoTorch moves a model to where it is before each evaluation
            return self
        self.train_inputs = tuple(fn(X) for X in self.train_inputs)
        if (
            len(before)
            and torch.finfo(self.train_targets.dtype).eps > torch.finfo(before.dtype).eps
        ):
            self.add_caveat(
                f"data and kernel were rounded to {self.train_targets.dtype}: make a new model of the data"
            )
        if self._original_train_inputs is not None:
            self._original_train_inputs = fn(self._original_train_inputs)
        self._variances = None if self._variances is None else fn(self._variances)
        self._first_values = fn(before.new_tensor(self._first_values, dtype=torch.float64)).tolist()
        self._built = None
        return self

    @classmethod
    def construct_inputs(cls, training_data: SupervisedDataset, **options: Any) -> dict[str, Any]:
        """Return constructor arguments: those of a BoTorch data set, and the ``options``.

        Variances of single observations are left out, since they are often estimates from few values: pass
        ``train_Yvar`` among the options if they are known.
        """
        given = super().construct_inputs(training_data)
        given.pop("train_Yvar", None)
        return {**given, **options}


def _unbatched(name: str, X: Tensor) -> Tensor:
    """Return points [n d] of a model."""
    if checks.tensor(name, X).ndim > 2:
        raise InvalidInput(
            f"{name} must have shape [n d], got {tuple(X.shape)}, and models of kbo have no batches: make one model of "
            "each batch; to cross-validate a model take botorch.cross_validation.loo_cv."
        )
    return checks.rows(name, X)


def _numbers(transform: torch.nn.Module) -> list[Tensor]:
    """Return the numbers of a transform; flags such as "is trained" are none, and BoTorch keeps them on the CPU."""
    return [
        value
        for value in (*transform.parameters(), *transform.buffers())
        if value.dtype != torch.bool
    ]
