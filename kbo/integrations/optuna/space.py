"""Distributions of Optuna as a space of kbo and back, and the search space of a study for a model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import BaseTrial, FrozenTrial, TrialState

from kbo._base import checks
from kbo.errors import InvalidInput
from kbo.space import Choice, Condition, Fixed, Float, Int, Parameter, Params, Space, When
from kbo.space.constraints import in_words


def from_distributions(distributions: Mapping[str, BaseDistribution]) -> Space:
    """Return the space of distributions, for example of ``trial.distributions``.

    A choice becomes a ``kbo.Choice``, and a single value a ``kbo.Fixed``.

    Raises:
        InvalidInput: An option is no number, text, boolean or None, or a distribution is of another kind.
    """
    parameters: dict[str, Parameter] = {}
    for name, d in checks.instance("distributions", distributions, Mapping).items():
        with checks.inside(f"parameter {checks.shown(name)}"):
            if not isinstance(d, CategoricalDistribution):
                parameters[name] = _range(d)
            elif d.single():
                parameters[name] = Fixed(d.choices[0])
            else:
                parameters[name] = Choice(d.choices)
    return Space(parameters)


def _range(d: BaseDistribution) -> Parameter:
    """Return the parameter of a distribution of numbers."""
    if not isinstance(d, (FloatDistribution, IntDistribution)):
        raise InvalidInput(
            f"expected a FloatDistribution, IntDistribution or CategoricalDistribution, got {checks.shown(d)}."
        )
    if d.single():
        return Fixed(d.low)
    if isinstance(d, IntDistribution):
        return Int(d.low, d.high, log=d.log, step=d.step)
    return Float(d.low, d.high, log=d.log, step=d.step)


def to_distributions(space: Space) -> dict[str, BaseDistribution]:
    """Return the distributions of all parameters of a space. Its conditions are lost; ``suggest`` keeps them.

    A ``kbo.Ordinal`` becomes a choice, since Optuna has no distribution with an order.

    Raises:
        InvalidInput: The space has constraints.
    """
    if checks.instance("space", space, Space).constraints:
        raise InvalidInput(
            f"Optuna has no constraints on parameters: leave out {in_words(space.constraints)}, and raise "
            "optuna.TrialPruned where space.violated(params) names one."
        )
    return {name: _distribution(parameter) for name, parameter in space.parameters.items()}


def _distribution(parameter: Parameter) -> BaseDistribution:
    """Return the distribution of a parameter."""
    if isinstance(parameter, Float):
        return FloatDistribution(
            parameter.low, parameter.high, log=parameter.log, step=parameter.step
        )
    if isinstance(parameter, Int):
        return IntDistribution(
            parameter.low, parameter.high, log=parameter.log, step=parameter.step
        )
    return CategoricalDistribution(tuple(parameter.options))


def suggest(trial: BaseTrial, space: Space) -> Params:
    """Suggest the active parameters of a space, parents first, in the objective of a study.

    Args:
        trial: The trial.
        space: The space.

    Returns:
        The params in the form that the objective of ``kbo.minimize`` gets.

    Example:
        >>> study.optimize(lambda trial: objective(suggest(trial, space)), n_trials=50)
    """
    distributions = to_distributions(space)
    params: dict[str, Any] = {}
    while missing := [name for name in space.active_names(params) if name not in params]:
        for name in missing:
            value = _suggested(trial, name, distributions[name])
            params[name] = space.parameters[name].plain(value)
    if space.named:
        return space.canonical(params)
    return space.canonical(list(params.values()))


def _suggested(trial: BaseTrial, name: str, d: BaseDistribution) -> Any:
    """Suggest the value of one parameter."""
    if isinstance(d, CategoricalDistribution):
        return trial.suggest_categorical(name, d.choices)
    if isinstance(d, FloatDistribution):
        return trial.suggest_float(name, d.low, d.high, step=d.step, log=d.log)
    assert isinstance(d, IntDistribution)
    return trial.suggest_int(name, d.low, d.high, step=d.step, log=d.log)


class SearchSpace:
    """The distributions of a study as a space of kbo, for the model of a sampler.

    Parameters, and so the feature columns, are sorted by name. Options that ``kbo.Choice`` cannot have, such as
    objects, are texts in the space of kbo.

    Args:
        distributions: The distributions by name: at least one, and none of a single value.
        conditions: The conditions by name; see ``conditions_of``.
        was: By name, the value of a parameter in trials that lack it.
        needed: Parameters that a trial must have; otherwise it has no place in the space.
        dropped: Parameters that the latest trials lack.

    Attributes:
        distributions: The distributions, sorted by name.
        space: The space of kbo.
        defaults: By name, the value of a parameter in trials that lack it: the one of ``was``, or else the middle of
            the range (on its own scale) or the first choice.
        needed: The argument ``needed`` as a set.
        dropped: The argument ``dropped``, sorted.

    Raises:
        InvalidInput: kbo has no such parameter, or a value of ``was`` is outside its distribution.
    """

    def __init__(
        self,
        distributions: Mapping[str, BaseDistribution],
        conditions: Mapping[str, Condition] | None = None,
        was: Mapping[str, Any] | None = None,
        needed: Iterable[str] = (),
        dropped: Iterable[str] = (),
    ) -> None:
        self.needed: set[str] = set(needed)
        self.dropped: list[str] = sorted(dropped)
        self.distributions: dict[str, BaseDistribution] = dict(sorted(distributions.items()))
        self.defaults: dict[str, Any] = {}
        self._conditions = dict(conditions or {})
        parameters: dict[str, Parameter] = {}
        for name, d in self.distributions.items():
            with checks.inside(f"parameter {name!r}"):
                if isinstance(d, CategoricalDistribution):
                    parameters[name] = choice_of(d)
                    self.defaults[name] = parameters[name].options[0]
                else:
                    parameters[name] = _range(d)
                    self.defaults[name] = parameters[name].value(0.5)
        self.space: Space = self._of(parameters)
        with checks.inside("was"):
            self.defaults.update(self.encode(was or {}))

    def _of(self, parameters: Mapping[str, Parameter]) -> Space:
        """Return the space of parameters with the conditions."""
        bounds: list[Mapping[str, Any] | When] = []
        for name, parameter in parameters.items():
            if name in self._conditions:
                parent, values = self._conditions[name]
                bounds.append(When(parent, values, {name: parameter}))
            else:
                bounds.append({name: parameter})
        return Space(bounds)

    def within(self, ranges: Mapping[str, BaseDistribution]) -> Space:
        """Return the space with narrower ranges of some parameters; dropped parameters are fixed to their defaults."""
        parameters = dict(self.space.parameters)
        for name, d in ranges.items():
            if not isinstance(d, CategoricalDistribution):
                parameters[name] = _range(d)
        for name in self.dropped:
            parameters[name] = Fixed(self.defaults[name])
        return self._of(parameters)

    def encode(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return parameters of Optuna as values in the space of kbo; parameters that it lacks are ignored.

        Raises:
            InvalidInput: A value is outside its distribution.
        """
        values: dict[str, Any] = {}
        for name, d in self.distributions.items():
            if name not in params:
                continue
            parameter = self.space.parameters[name]
            try:
                if isinstance(d, CategoricalDistribution):
                    values[name] = parameter.options[int(d.to_internal_repr(params[name]))]
                else:
                    values[name] = parameter.plain(params[name])
            except (TypeError, ValueError, OverflowError) as error:
                raise InvalidInput(
                    f"parameter {name!r}: {params[name]!r} is not in {d}."
                ) from error
        return values

    def decode(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return values in the space of kbo as parameters of Optuna, the inverse of ``encode``."""
        params: dict[str, Any] = {}
        for name, value in values.items():
            d = self.distributions[name]
            if isinstance(d, CategoricalDistribution):
                value = d.choices[self.space.parameters[name].options.index(value)]
            params[name] = value
        return params

    def inside(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the result of ``encode`` for the values that are inside their distributions."""
        values: dict[str, Any] = {}
        for name, value in params.items():
            with contextlib.suppress(InvalidInput):
                values.update(self.encode({name: value}))
        return values

    def complete(self, params: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the result of ``encode`` with defaults for missing active parameters.

        None if all parameters are missing, or a value is outside its distribution.
        """
        try:
            encoded = self.encode(params)
        except InvalidInput:
            return None
        if not encoded:
            return None
        values = {**self.defaults, **encoded}
        return {name: values[name] for name in self.space.active_names(values)}


def choice_of(d: CategoricalDistribution) -> Choice:
    """Return the choice for a distribution; its options become texts if they are not different plain values."""
    try:
        return Choice(d.choices)
    except InvalidInput:
        texts = [checks.shown(choice) for choice in d.choices]
        if len(set(texts)) < len(texts):
            texts = [f"{text} ({index})" for index, text in enumerate(texts)]
        return Choice(texts)


def conditions_of(
    trials: Sequence[FrozenTrial], distributions: Mapping[str, BaseDistribution]
) -> dict[str, Condition]:
    """Return the conditions that the complete trials show.

    A parameter is conditional if complete trials have it exactly when a choice suggested before has certain values.

    Args:
        trials: The finished trials. Only complete ones count: others may have ended before a parameter was suggested.
        distributions: The parameters, in any order.

    Returns:
        By name, the condition of each conditional parameter. If several parents explain it, the parent is the one that
        was suggested first. The values are the parent's values in trials with the parameter, in the space of kbo.
    """
    complete = [trial.params for trial in trials if trial.state == TrialState.COMPLETE]
    suggested: dict[str, BaseDistribution] = {}  # in the order of their first suggestions
    conditions: dict[str, Condition] = {}
    for params in complete:
        for name in params:
            if name in distributions and name not in suggested:
                condition = _condition(name, suggested, complete)
                suggested[name] = distributions[name]
                if condition is not None:
                    conditions[name] = condition
    return conditions


def _condition(
    name: str, earlier: Mapping[str, BaseDistribution], complete: Sequence[Mapping[str, Any]]
) -> Condition | None:
    """Return the condition that explains which trials have a parameter; None if all have it, or none explains it.

    Args:
        name: The name of the parameter.
        earlier: The distributions of the parameters that were suggested before it.
        complete: The parameters of the complete trials.
    """
    having = [params for params in complete if name in params]
    lacking = [params for params in complete if name not in params]
    if not lacking:
        return None
    for parent, d in earlier.items():
        if not isinstance(d, CategoricalDistribution):
            continue
        if not all(parent in params for params in having):
            continue
        active = {int(d.to_internal_repr(params[parent])) for params in having}
        values_where_lacking = [params[parent] for params in lacking if parent in params]
        if not any(int(d.to_internal_repr(value)) in active for value in values_where_lacking):
            options = choice_of(d).options
            return Condition(parent, tuple(options[index] for index in sorted(active)))
    return None
