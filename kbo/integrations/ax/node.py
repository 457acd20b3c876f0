"""A generation strategy of Ax whose trials an optimiser of kbo chooses."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
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

from kbo._base import checks, devices
from kbo._base.surroundings import fixed
from kbo.errors import InvalidInput
from kbo.integrations.ax.history import (
    Columns,
    all_parameters,
    ended,
    left_out,
    limits_of,
    outcomes,
    pending,
    seen,
)
from kbo.integrations.ax.kernels import build_kernel, describe_kernel
from kbo.integrations.ax.space import space_of_trials
from kbo.integrations.replay import Ended, Replay, replay
from kbo.integrations.settings import resolved
from kbo.optimize import Certified, Constraint, Practical
from kbo.optimize.constraint import measured_only
from kbo.optimize.run.outcome import SEM
from kbo.optimize.settings.setting import Setting

log: logging.Logger = logging.getLogger("kbo")

T = TypeVar("T", Certified, Constraint)


class KBONode(ExternalGenerationNode):
    """Trials that an optimiser of kbo chooses; arguments as for ``generation_strategy``.

    Attributes:
        arguments: The arguments by name, which Ax stores.
        data: The outcomes that it knows.
        fixed: The values of parameters that the search space has fixed or disabled after trials with others.
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
            **{
                "method": method,
                "setting": setting,
                "n_trials": n_trials,
                "constraints": list(constraints),
            },
            **{"seed": seed, "device": device},
        }
        self.data: Columns = {}
        self._known: Replay | None = None
        self._next = 0  # index of the trial that is proposed next
        self._fixed: dict[str, Any] = {}
        self.fixed: dict[str, Any] = {}
        self._within: dict[str, tuple[float, float]] = {}
        self._said: set[int] = set()
        self._analysed: tuple[Any, Any] | None = (
            None  # a record of outcomes, and Ax's own model of them
        )

    @property
    def _fitted_adapter(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Ax's own model, which its analyses ask for; none while they have not, or after other data."""
        if self._analysed is None or self._analysed[0] != seen(outcomes(self.experiment)):
            return None
        return self._analysed[1]

    def _fit(self, experiment: Experiment, data: Data | None = None, **others: Any) -> None:
        """Fit Ax's own model: Ax calls this for its analyses, and before ``_gen``, which needs none."""
        self._analysed = (
            seen(outcomes(experiment)),
            Generators.BOTORCH_MODULAR(experiment=experiment, data=data),
        )

    def gen(
        self,
        *,
        experiment: Experiment,
        data: Data | None = None,
        skip_fit: bool = False,
        **others: Any,
    ) -> Any:
        """As in Ax, but without a model of its own."""
        if not skip_fit:
            super()._fit(experiment, data)
        return super().gen(experiment=experiment, data=data, skip_fit=True, **others)

    def update_generator_state(self, experiment: Experiment, data: Data) -> None:
        """Learn from the trials that have ended."""
        self.learned(experiment)
        self._next = len(experiment.trials)

    @fixed
    def learned(self, experiment: Experiment) -> Replay:
        """Return the optimiser after the trials that have ended.

        Raises:
            InvalidInput: The optimisation is not one that kbo can do.
        """
        config: Any = experiment.optimization_config
        objective, maximize = _objective(config)
        limits = self._limits(limits_of(config))
        widened = not self.arguments[
            "setting"
        ].certified  # whose kernel compares values scaled by the ranges
        found = space_of_trials(experiment.search_space, all_parameters(experiment), widened)
        space, self._within, self.fixed = found
        self.data = outcomes(experiment)
        trials = ended(experiment, self.data, space, objective, limits)
        setting = _with_errors(self.arguments["setting"], trials)
        others = {name: self.arguments[name] for name in ("method", "n_trials", "seed", "device")}
        options = {
            "bounds": space,
            "setting": setting,
            "maximize": maximize,
            "constraints": limits,
            **others,
        }
        problem = (
            space.describe(),
            list(map(str, space.constraints)),
            maximize,
            limits,
            setting.describe(space),
        )
        self._known = replay(self._known, problem, options, trials)
        self._name_left_out(left_out(experiment, trials))
        return self._known

    def _name_left_out(self, indices: Sequence[int]) -> None:
        """Say in the log, once, which trials the model does not have."""
        fresh = [index for index in indices if index not in self._said]
        if fresh:
            self._said.update(fresh)
            log.warning(
                "trials %s are left out of the model: their parameters are outside the search space, which was "
                "changed after them.",
                fresh,
            )

    def _within_of(self, context: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
        """Return the ranges of the search space of the parameters that are to be chosen."""
        return {name: ends for name, ends in self._within.items() if name not in context}

    def _limits(self, limits: list[Constraint]) -> list[Constraint]:
        """Return outcome constraints with the numbers that were given for them.

        Raises:
            InvalidInput: Numbers that are missing, or for other constraints.
        """
        given = {str(constraint): constraint for constraint in self.arguments["constraints"]}
        known = sorted(map(str, limits))
        if self.arguments["setting"].certified and sorted(given) != known:
            raise InvalidInput(
                "constraints: the certified setting needs one kbo.Constraint for each outcome constraint, with its "
                f"limit, got {sorted(given)} for {known}."
            )
        return [given.get(str(limit), limit) for limit in limits]

    def _gen(
        self,
        experiment: Experiment,
        data: Data | None = None,
        n: int | None = None,
        pending_observations: dict[str, list[ObservationFeatures]] | None = None,
        fixed_features: ObservationFeatures | None = None,
        **others: Any,
    ) -> GeneratorRun:
        self._fixed = {} if fixed_features is None else dict(fixed_features.parameters)
        self._explanations: list[str] = []
        run = super()._gen(experiment, data, n, pending_observations, **others)
        explained = {"kbo:explanation": self._explanations}
        run._gen_metadata = {**(run.gen_metadata or {}), **seen(self.data), **explained}
        return run

    @fixed
    def get_next_candidate(self, pending_parameters: list[TParameterization]) -> TParameterization:
        """Return the parameters of the next trial, apart from pending ones."""
        assert self._known is not None
        optimizer = self._known.optimizer
        others = pending(self.experiment, optimizer.space, pending_parameters, self._known.trials)
        context = {**self.fixed, **self._fixed}
        params, explanation = optimizer.proposal(
            self._next, context=context, pending=others, within=self._within_of(context)
        )
        self._next += 1
        self._explanations.append(str(explanation))
        return cast(TParameterization, params)


def _objective(config: Any) -> tuple[str, bool]:
    """Return the name of the objective, and whether larger values are better."""
    if not config.objective.is_single_objective:
        raise InvalidInput(
            f"kbo has methods for one objective, got {config.objective.expression!r}: for several leave out the "
            "strategy, and Ax takes qLogNEHVI; let the trials report a weighted sum as one outcome."
        )
    (name,) = config.objective.metric_names
    return name, not config.objective.minimize


def _with_errors(setting: Setting, trials: Sequence[Ended]) -> Setting:
    """Return the setting for an objective whose values have these standard errors.

    Raises:
        InvalidInput: An error contradicts the noise level that is given.
    """
    errors = [one.measured.get(SEM) for one in trials if one.value is not None]
    if (
        isinstance(setting, Practical)
        and setting.noise_std is None
        and errors
        and not any(e != 0 for e in errors)
    ):
        return replace(setting, noise_std=0.0)
    largest, most = (
        max((e for e in errors if e is not None), default=0.0),
        getattr(setting, "noise_upper", None),
    )
    if most is not None and largest > most * (1 + 1e-9):
        raise InvalidInput(
            f"an observation has a standard error of {largest:g}, but the noise level is given as at most {most:g}: "
            "no bound would hold. Give a noise level that is at least the largest standard error."
        )
    return setting


def _storable(owner: T) -> T:
    """Return a setting, hypothesis or constraint with its kernels as storage gives them back, to the last digit."""
    kernel: Any = owner.kernel
    if kernel is None:
        return owner
    several = isinstance(kernel, tuple)
    return replace(
        owner,
        kernel=list(map(_storable, kernel)) if several else build_kernel(describe_kernel(kernel)),
    )


@fixed
def generation_strategy(
    method: str | None = None,
    *,
    setting: Setting | None = None,
    n_trials: int | None = None,
    constraints: Sequence[Constraint] = (),
    seed: int = 0,
    device: str | None = None,
) -> GenerationStrategy:
    """A strategy whose trials are those of ``kbo.minimize`` or ``kbo.maximize``.

    For one objective with any ``outcome_constraints`` on single outcomes, each of which has a model of its own, in any
    search space of ranges and choices, conditional ones included. The strategy survives Ax's JSON and SQL storage, and
    the next point is a function of seed and data, so a resumed run continues as if it had never stopped. Running trials
    are pending. Failed and abandoned trials are avoided, early stopped ones count as pruned.

    The model and the search are those of ``kbo.Optimizer``: its bounds are in ``interval``, ``recommended``,
    ``feasibility`` and ``guarantee`` of this package. Ax's analyses fit Ax's own model, and ``client.predict`` has none
    before that. Features, for kernels of your own, are those of ``kbo.Space`` in the order of the parameters. Choices
    that Ax takes to have an order, two options among them, are ``kbo.Ordinal``.

    The standard error of a value of the objective counts as ``"sem"`` does in ``kbo.minimize``. Where all are 0, the
    practical setting takes the objective to have no noise.

    Args:
        method: A name of ``kbo.bandit.names()``; by default "ucb" (practical setting) or "dmm-ucb" (certified).
        setting: As in ``kbo.minimize``; ``Practical()`` by default.
        n_trials: The planned number of trials, if the method needs it ("igp-ucb").
        constraints: The outcome constraints again with the numbers that the certified setting needs, such as
            ``[kbo.Constraint("memory", upper=8.0, noise_std=0.1, norm_bound=20.0)]``. delta is shared equally among the
            outcomes.
        seed: Seed of every random choice.
        device: As in ``kbo.minimize``: "cuda", for example.

    Raises:
        InvalidInput: An unknown method, one that the setting does not allow, a setting or a kernel that cannot be
            stored, or a device that is not there.

    Example:
        >>> client = Client()
        >>> client.configure_experiment([RangeParameterConfig(name="x", parameter_type="float", bounds=(0.0, 1.0))])
        >>> client.configure_optimization(objective="-loss")
        >>> client.set_generation_strategy(kbo.integrations.ax.generation_strategy(seed=0))
    """
    setting, method = resolved(setting, method, n_trials)
    if isinstance(setting, Practical) and setting.strategies is not None:
        raise InvalidInput(
            "Ax cannot store strategies of your own: leave strategies out of kbo.Practical(...)."
        )
    if type(setting) not in (Practical, Certified):
        raise InvalidInput(
            f"Ax cannot store a {type(setting).__name__}: pass kbo.Practical or kbo.Certified."
        )
    measured, others = measured_only(constraints)
    if others or (measured and not setting.certified):
        raise InvalidInput(
            "constraints are kbo.Constraint for kbo.Certified(...), got "
            f"{checks.shown((others or measured)[0])}: outcome constraints belong to client.configure_optimization, "
            "constraints on parameters to client.configure_experiment."
        )
    if isinstance(setting, Certified):
        setting, measured = _storable(setting), list(map(_storable, measured))
        for constraint in measured:
            setting.of(constraint, 1)
    where = str(devices.device("device", device))
    node = KBONode(method, setting, n_trials, measured, checks.seed(seed), where)
    return GenerationStrategy(name=node.name, nodes=[node])
