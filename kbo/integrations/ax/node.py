"""A generation strategy of Ax in which an optimiser of kbo proposes the trials."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

from ax.adapter.registry import Generators
from ax.core.data import Data
from ax.core.experiment import Experiment
from ax.core.generator_run import GeneratorRun
from ax.core.observation import ObservationFeatures
from ax.core.types import TParameterization
from ax.generation_strategy.external_generation_node import ExternalGenerationNode
from ax.generation_strategy.generation_strategy import GenerationStrategy
from ax.storage.json_store.registry import CORE_DECODER_REGISTRY, CORE_ENCODER_REGISTRY

from kbo._base import checks, devices
from kbo._base.isolation import isolated
from kbo.errors import InvalidInput
from kbo.integrations.ax.history import (
    Outcomes,
    all_parameters,
    directions_of,
    ended,
    left_out,
    limits_of,
    objectives_of,
    outcomes,
    pending,
)
from kbo.integrations.ax.records import record_of
from kbo.integrations.ax.space import spaces_of
from kbo.integrations.ax.storage import build_kernel, describe_kernel
from kbo.integrations.replay import Ended, Replay, replay, resolved
from kbo.optimize import Certified, Constraint, Practical
from kbo.optimize.constraints.constraint import measured_only
from kbo.optimize.settings.setting import Setting

log: logging.Logger = logging.getLogger("kbo")

T = TypeVar("T")


class KBONode(ExternalGenerationNode):
    """A node of a strategy in which an optimiser of kbo proposes the trials; arguments as for ``generation_strategy``.

    Attributes:
        arguments: The arguments by name, which Ax stores.
        record: Metadata with the values that the optimiser has and no record has yet.
    """

    def __init__(
        self,
        method: str,
        setting: Setting,
        n_trials: int | None = None,
        constraints: Sequence[Constraint] = (),
        seed: int = 0,
        device: str = "cpu",
    ) -> None:
        super().__init__(name=f"kbo {method}", should_deduplicate=False)
        self.arguments: dict[str, Any] = {
            "method": method,
            "setting": setting,
            "n_trials": n_trials,
            "constraints": list(constraints),
            "seed": seed,
            "device": device,
        }
        self.record: dict[str, Any] = {}
        self._model: Replay | None = None
        self._left_out: set[int] = set()  # the trials that the log has named
        self._next_trial = 0
        self._fixed_features: dict[str, Any] = {}
        self._explanations: list[str] = []
        self._fitted_model: Any = None  # Ax's own, to the data of the latest proposal or later

    # Ax's own model

    @property
    def _fitted_adapter(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Ax's own model, which its analyses use; None if it is not fitted."""
        return self._fitted_model

    def _fit(self, experiment: Experiment, data: Data | None = None, **others: Any) -> None:
        """Fit Ax's own model. Ax calls this for its analyses."""
        self._fitted_model = Generators.BOTORCH_MODULAR(experiment=experiment, data=data)

    def gen(self, *, experiment: Experiment, skip_fit: bool = False, **options: Any) -> Any:
        """Generate trials as Ax does, but without a fit of Ax's own model."""
        if not skip_fit:
            super()._fit(experiment)
        return super().gen(experiment=experiment, skip_fit=True, **options)

    # The optimiser of kbo

    def update_generator_state(self, experiment: Experiment, data: Data) -> None:
        """Add the ended trials to the optimiser."""
        self._fitted_model = None
        self.learned(experiment)
        self._next_trial = len(experiment.trials)

    @isolated
    def learned(self, experiment: Experiment) -> Replay:
        """Return the optimiser after the ended trials.

        Raises:
            InvalidInput: kbo cannot do this optimisation; the message says why.
        """
        config: Any = experiment.optimization_config
        names = list(directions_of(config))
        limits = self._limits(limits_of(config))
        arms = all_parameters(experiment)
        if self.arguments["setting"].certified:  # the kernel compares values scaled by the ranges
            arms = []
        whole, present = spaces_of(experiment.search_space, arms)
        self.record = record_of(experiment)
        data = outcomes(experiment)
        trials = ended(experiment, data, whole, names, limits)
        options = {
            **self.arguments,
            "bounds": whole,
            "setting": _for_trials(self.arguments["setting"], trials, data, names),
            **objectives_of(config),
            "constraints": limits,
        }
        self._model = replay(self._model, options, trials, present)
        self._warn_of(left_out(experiment, self._model))
        return self._model

    def _limits(self, limits: list[Constraint]) -> list[Constraint]:
        """Return the outcome constraints with the noise level and norm bound that were given for each.

        Raises:
            InvalidInput: The certified setting lacks numbers of a constraint, or has numbers of another constraint.
        """
        with_numbers = {str(constraint): constraint for constraint in self.arguments["constraints"]}
        names = sorted(map(str, limits))
        if self.arguments["setting"].certified and sorted(with_numbers) != names:
            raise InvalidInput(
                "constraints: the certified setting needs one kbo.Constraint for each outcome constraint, with its "
                f"limit, got {sorted(with_numbers)} for {names}."
            )
        return [with_numbers.get(str(limit), limit) for limit in limits]

    def _warn_of(self, indices: Sequence[int]) -> None:
        """Log the indices of trials that are left out of the model, each index once."""
        unnamed = [index for index in indices if index not in self._left_out]
        if unnamed:
            self._left_out.update(unnamed)
            log.warning(
                "trials %s are left out of the model: their parameters are outside the search space, which was "
                "changed after them.",
                unnamed,
            )

    def _gen(
        self,
        experiment: Experiment,
        data: Data | None = None,
        n: int | None = None,
        pending_observations: dict[str, list[ObservationFeatures]] | None = None,
        fixed_features: ObservationFeatures | None = None,
        **others: Any,
    ) -> GeneratorRun:
        self._fixed_features = {}
        if fixed_features is not None:
            self._fixed_features = dict(fixed_features.parameters)
        self._explanations = []
        run = super()._gen(experiment, data, n, pending_observations, **others)
        run._gen_metadata = {
            **(run.gen_metadata or {}),
            **self.record,
            "kbo:explanation": self._explanations,
        }
        return run

    @isolated
    def get_next_candidate(self, pending_parameters: list[TParameterization]) -> TParameterization:
        """Return the parameters of the next trial, given the pending ones."""
        assert self._model is not None
        optimizer = self._model.optimizer
        params, explanation = optimizer.proposal(
            self._next_trial,
            context=self._fixed_features,
            pending=pending(
                self.experiment, optimizer.space, pending_parameters, self._model.trials
            ),
        )
        self._next_trial += 1
        self._explanations.append(str(explanation))
        return cast(TParameterization, params)


def _encoded(node: KBONode) -> dict[str, Any]:
    """Return the arguments of a node as JSON values."""
    return {"__type": "KBONode", **node.arguments}


def _decoded(**arguments: Any) -> KBONode:
    """Return the node with stored arguments. Ax decodes arguments for a function, but not for a class of nodes."""
    return KBONode(**arguments)


CORE_ENCODER_REGISTRY[KBONode] = _encoded
CORE_DECODER_REGISTRY["KBONode"] = _decoded  # pyright: ignore[reportArgumentType]


def _for_trials(
    setting: Setting, trials: Sequence[Ended], data: Outcomes, objectives: Sequence[str]
) -> Setting:
    """Return the setting after trials: without noise if all standard errors of all objectives are 0.

    With learning curves it is told that there is noise. Otherwise kbo would repeat the best parameters once to see
    whether there is. But Ax stops no trial early if two trials have the same parameters.

    Raises:
        InvalidInput: An error is larger than the noise level of the setting.
    """
    errors: list[float | None] = []
    for trial in trials:
        if trial.value is not None:
            errors += [data.error(name, trial.key) for name in objectives]
    largest = max((error for error in errors if error is not None), default=0.0)
    limit = setting.largest_error()
    if largest > limit * (1 + 1e-9):
        raise InvalidInput(
            f"an observation has a standard error of {largest:g}, but the noise level is given as at most {limit:g}: "
            "no bound would hold. Give a noise level that is at least the largest standard error."
        )
    if errors and all(error == 0 for error in errors):
        setting = setting.without_noise()
    if any(trial.reports for trial in trials):
        setting = setting.with_noise()
    return setting


@isolated
def generation_strategy(
    method: str | None = None,
    *,
    setting: Setting | None = None,
    n_trials: int | None = None,
    constraints: Sequence[Constraint] = (),
    seed: int = 0,
    device: str | None = None,
) -> GenerationStrategy:
    """Return a strategy of Ax that proposes trials as ``kbo.minimize`` and ``kbo.maximize`` do.

    It handles one or several objectives, outcome constraints on single outcomes, and any search space of ranges and
    choices, also with conditional parameters. Each outcome has its own model. With several objectives it searches for
    the largest hypervolume above the thresholds, if there are any. The strategy can be stored by Ax as JSON and SQL.
    The next point is a function of seed and data, so a resumed run continues as if it had never stopped. Running trials
    are pending. Failed and abandoned trials are avoided, and early stopped trials count as pruned.

    Model and search are those of ``kbo.Optimizer``. ``interval``, ``recommended``, ``feasibility`` and ``guarantee`` of
    this package show its bounds. Ax's analyses fit Ax's own model; before that, ``client.predict`` has no model. If you
    give a kernel, its input has the features of ``kbo.Space`` in the order of the parameters. A choice with an order is
    a ``kbo.Ordinal``; Ax treats every choice of two options as ordered.

    The standard error of the first objective is used as ``"sem"`` in ``kbo.minimize``. If all standard errors of all
    objectives are 0, the practical setting assumes that there is no noise.

    Args:
        method: A name of ``kbo.bandit.names()``; by default "ucb" (practical setting) or "dmm-ucb" (certified).
        setting: The setting as in ``kbo.minimize``; ``Practical()`` by default.
        n_trials: The planned number of trials, if the method needs it ("igp-ucb").
        constraints: For the certified setting, the outcome constraints with their noise levels and norm bounds, such as
            ``[kbo.Constraint("memory", upper=8.0, noise_std=0.1, norm_bound=20.0)]``. delta is shared equally among the
            outcomes.
        seed: Seed of every random choice.
        device: The device as in ``kbo.minimize``, for example "cuda".

    Raises:
        InvalidInput: The method is unknown or not for the setting, the setting or a kernel cannot be stored, or the
            device does not exist.

    Example:
        >>> client = Client()
        >>> client.configure_experiment([RangeParameterConfig(name="x", parameter_type="float", bounds=(0.0, 1.0))])
        >>> client.configure_optimization(objective="-loss")
        >>> client.set_generation_strategy(kbo.integrations.ax.generation_strategy(seed=0))
    """
    setting, method = resolved(setting, method, n_trials)
    _check_storable(setting)
    measured = _checked(constraints, setting)
    if setting.certified:
        setting = _as_stored(setting)
        measured = [_as_stored(constraint) for constraint in measured]
        for constraint in measured:
            setting.for_quantity(constraint, 1)
    device_name = str(devices.device("device", device))
    node = KBONode(method, setting, n_trials, measured, checks.seed(seed), device_name)
    return GenerationStrategy(name=node.name, nodes=[node])


def _check_storable(setting: Setting) -> None:
    """Check that Ax can store a setting.

    Raises:
        InvalidInput: The setting is of another class than Practical and Certified, or has strategies.
    """
    has_strategies = isinstance(setting, Practical) and setting.strategies is not None
    if has_strategies or type(setting) not in (Practical, Certified):
        raise InvalidInput(
            "Ax can store a kbo.Certified, and a kbo.Practical without strategies of your own, got "
            f"{checks.shown(setting)}."
        )


def _checked(constraints: Any, setting: Setting) -> list[Constraint]:
    """Return the constraints after a check that they limit measurements and that the setting needs them.

    Raises:
        InvalidInput: A constraint is of another kind, or the setting is practical.
    """
    measured, wrong = measured_only(constraints)
    if not setting.certified:
        wrong += measured
    if wrong:
        raise InvalidInput(
            "constraints are kbo.Constraint for kbo.Certified(...), got "
            f"{checks.shown(wrong[0])}: outcome constraints belong to client.configure_optimization, "
            "constraints on parameters to client.configure_experiment."
        )
    return measured


def _as_stored(owner: T) -> T:
    """Return a setting, hypothesis or constraint whose kernels are exactly those that Ax's storage returns."""
    with_kernel: Any = owner
    kernel = with_kernel.kernel
    if kernel is None:
        return owner
    if isinstance(kernel, tuple):
        return replace(with_kernel, kernel=list(map(_as_stored, kernel)))
    return replace(with_kernel, kernel=build_kernel(describe_kernel(kernel)))
