"""Distributions of Optuna as a space of kbo and back, and the parameters of a study in the space of its model."""

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
    """Return the space of distributions, such as those of a trial.

    Choices become ``kbo.Choice``, and single values ``kbo.Fixed``.

    Raises:
        InvalidInput: A choice of objects that are no numbers, text, booleans or None, or another kind of distribution.
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
    """Return the distributions of all parameters of a space, without its conditions, which ``suggest`` keeps.

    Options with an order become choices, since Optuna has no such distribution.

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
    """Suggest the parameters of a space that are active, parents first, in the objective of a study.

    Args:
        trial: The trial.
        space: The space.

    Returns:
        The params, as the objective of ``kbo.minimize`` gets them.

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
    """The distributions of a study as a space of kbo, of which a sampler makes a model.

    Parameters, and so the columns of the features, are in the order of their names. Choices that ``kbo.Choice`` cannot
    have, such as objects, are texts in the space of kbo.

    Args:
        distributions: The distributions by name: at least one, and none of a single value.
        conditions: Conditions on some of the parameters; see ``conditions_of``.
        was: Values in trials that lack a parameter, by name.
        needed: The parameters without which a trial has no place in the space.
        dropped: The parameters that the latest trials lack.

    Attributes:
        distributions: The distributions, sorted by name.
        space: The space of kbo.
        defaults: The values of parameters that a trial does not have: those of ``was``, otherwise the middle of the
            range (on the logarithmic scale if it has one), or the first choice.
        needed, dropped: As given.

    Raises:
        InvalidInput: A parameter that cannot be one of kbo, or a value of ``was`` outside its distribution.
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
        """Return the space of some ranges, in which parameters that were dropped have their defaults."""
        parameters = dict(self.space.parameters)
        for name, d in ranges.items():
            if not isinstance(d, CategoricalDistribution):
                parameters[name] = _range(d)
        for name in self.dropped:
            parameters[name] = Fixed(self.defaults[name])
        return self._of(parameters)

    def encode(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values in the space of kbo of the parameters that it has; others are ignored.

        Raises:
            InvalidInput: A value outside its distribution.
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
        """Return the parameters of Optuna for values in the space of kbo, the inverse of ``encode``."""
        params: dict[str, Any] = {}
        for name, value in values.items():
            d = self.distributions[name]
            if isinstance(d, CategoricalDistribution):
                value = d.choices[self.space.parameters[name].options.index(value)]
            params[name] = value
        return params

    def inside(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values as by ``encode``, without values outside their distributions."""
        values: dict[str, Any] = {}
        for name, value in params.items():
            with contextlib.suppress(InvalidInput):
                values.update(self.encode({name: value}))
        return values

    def complete(self, params: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the values as by ``encode``, with defaults for missing active parameters; None if all are missing.

        Raises:
            InvalidInput: A value outside its distribution.
        """
        encoded = self.encode(params)
        if not encoded:
            return None
        values = {**self.defaults, **encoded}
        return {name: values[name] for name in self.space.active_names(values)}

    def complete_inside(self, params: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the values as by ``complete``; None also if one of them is outside its distribution."""
        try:
            return self.complete(params)
        except InvalidInput:
            return None


def choice_of(d: CategoricalDistribution) -> Choice:
    """Return the choice of a distribution, with texts as options where its own are not different plain values."""
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
    """Return the conditions on parameters that complete trials have exactly where an earlier choice has certain values.

    Args:
        trials: The finished trials; those that failed or were pruned may have ended before a parameter was suggested.
        distributions: The parameters, in any order.

    Returns:
        The condition of each such parameter: of the parents that explain it, the one that was suggested first, and its
        values, in the space of kbo, with which the parameter was seen.
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
    """Return the condition that explains which trials have a parameter; None if all have it or no condition does.

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
