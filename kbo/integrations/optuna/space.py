"""Optuna's distributions as a space of kbo and back, and the parameters of a study in the space of its model."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
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
    """The space of distributions, such as those of a trial.

    Choices become ``kbo.Choice``, and single values ``kbo.Fixed``.

    Raises:
        InvalidInput: A choice of objects that are no numbers, text, booleans or None, or another kind of distribution.
    """
    parameters = {}
    for name, d in checks.instance("distributions", distributions, Mapping).items():
        with checks.inside(f"parameter {checks.shown(name)}"):
            if isinstance(d, CategoricalDistribution):
                parameters[name] = Fixed(*d.choices) if d.single() else Choice(d.choices)
            else:
                parameters[name] = _range(d)
    return Space(parameters)


def to_distributions(space: Space) -> dict[str, BaseDistribution]:
    """The distributions of all parameters of a space, without its conditions, which ``suggest`` keeps.

    Options with an order become choices, since Optuna has no such distribution.

    Raises:
        InvalidInput: The space has constraints.
    """
    if checks.instance("space", space, Space).constraints:
        raise InvalidInput(
            f"Optuna has no constraints on parameters: leave out {in_words(space.constraints)}, and raise "
            "optuna.TrialPruned where space.violated(params) names one."
        )
    return {
        name: FloatDistribution(p.low, p.high, log=p.log, step=p.step)
        if isinstance(p, Float)
        else IntDistribution(p.low, p.high, log=p.log, step=p.step)
        if isinstance(p, Int)
        else CategoricalDistribution(tuple(p.options))
        for name, p in space.parameters.items()
    }


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
    distributions, found = to_distributions(space), {}
    while left := [name for name in space.active_names(found) if name not in found]:
        for name in left:
            d = distributions[name]
            if isinstance(d, CategoricalDistribution):
                found[name] = trial.suggest_categorical(name, d.choices)
            elif isinstance(d, FloatDistribution):
                found[name] = trial.suggest_float(name, d.low, d.high, step=d.step, log=d.log)
            else:
                assert isinstance(d, IntDistribution)
                found[name] = trial.suggest_int(name, d.low, d.high, step=d.step, log=d.log)
            found[name] = space.parameters[name].plain(found[name])
    return space.canonical(found if space.named else list(found.values()))


class SearchSpace:
    """The distributions of a study as a space of kbo, of which a sampler makes a model.

    Numbers are themselves; choices, which may be any objects, are their index. Parameters, and so the columns of the
    features, are in the order of their names.

    Args:
        distributions: At least one, none of a single value.
        conditions: Conditions on some of the parameters, whose values are indices; see ``conditions_of``.

    Attributes:
        distributions: The same, sorted by name.
        space: The space of kbo.
        defaults: The values of parameters that a trial does not have: the middle of the range (on the logarithmic scale
            if it has one), or the first choice.
    """

    def __init__(
        self,
        distributions: Mapping[str, BaseDistribution],
        conditions: Mapping[str, Condition] | None = None,
    ) -> None:
        self.distributions: dict[str, BaseDistribution] = {
            name: distributions[name] for name in sorted(distributions)
        }
        parts: list[Mapping[str, Any] | When] = []
        for name, d in self.distributions.items():
            with checks.inside(f"parameter {name!r}"):
                p = (
                    Choice(range(len(d.choices)))
                    if isinstance(d, CategoricalDistribution)
                    else _range(d)
                )
            condition = (conditions or {}).get(name)
            parts.append(When(*condition, {name: p}) if condition else {name: p})
        self.space: Space = Space(parts)
        self.defaults: dict[str, Any] = {
            name: p.options[0] if isinstance(p, Choice) else p.value(0.5)
            for name, p in self.space.parameters.items()
        }

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, SearchSpace)
            and self.distributions == other.distributions
            and self.space.conditions == other.space.conditions
        )

    def encode(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The values in the space of kbo of those parameters that it has; others are ignored."""
        found = {}
        for name in [name for name in self.distributions if name in params]:
            d, value = self.distributions[name], params[name]
            try:
                if isinstance(d, CategoricalDistribution):
                    value = int(d.to_internal_repr(value))
                found[name] = self.space.parameters[name].plain(value)
            except (TypeError, ValueError, OverflowError) as error:
                raise InvalidInput(
                    f"parameter {name!r}: {params[name]!r} is not in {d}."
                ) from error
        return found

    def inside(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values as by ``encode``, without those that are outside their distributions."""
        found = {}
        for name, value in params.items():
            with contextlib.suppress(InvalidInput):
                found.update(self.encode({name: value}))
        return found

    def complete(self, params: Mapping[str, Any]) -> dict[str, Any] | None:
        """The values as by ``encode``, with defaults for missing active parameters; None if all are missing."""
        found = self.encode(params)
        if not found:
            return None
        found = {**self.defaults, **found}
        return {name: found[name] for name in self.space.active_names(found)}

    def space_with_options(self) -> Space:
        """Return the space of reports, in which a choice has its options as values, not their indices."""
        parts: list[Mapping[str, Any] | When] = []
        for name, parameter in self.space.parameters.items():
            d = self.distributions[name]
            if isinstance(d, CategoricalDistribution):
                parameter = Choice(_plain(d))
            condition = self.space.conditions.get(name)
            if condition is None:
                parts.append({name: parameter})
                continue
            options = _plain(self.distributions[condition.parent])
            values = [options[index] for index in condition.values]
            parts.append(When(condition.parent, values, {name: parameter}))
        return Space(parts)

    def with_options(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return parameters of ``space_with_options`` for values in the space of kbo."""
        params = dict(values)
        for name, value in values.items():
            d = self.distributions[name]
            if isinstance(d, CategoricalDistribution):
                params[name] = _plain(d)[value]
        return params

    def decode(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters of Optuna for values in the space of kbo."""
        distributions = self.distributions
        return {
            name: d.choices[value]
            if isinstance(d := distributions[name], CategoricalDistribution)
            else value
            for name, value in values.items()
        }


def _plain(d: Any) -> list[Any]:
    """Return the options of a distribution, as text where they are no distinct plain values."""
    found = list(d.choices)
    plain = all(
        value is None or (isinstance(value, (str, bool, int, float)) and value == value)
        for value in found
    )
    if plain and len({str(value) for value in found}) == len(set(found)) == len(found):
        return found
    texts = [str(value) for value in found]
    return [text if texts.count(text) == 1 else f"{text} ({i})" for i, text in enumerate(texts)]


def conditions_of(
    trials: Sequence[FrozenTrial], distributions: Mapping[str, BaseDistribution]
) -> dict[str, Condition]:
    """The conditions on parameters that complete trials have exactly where an earlier choice has certain values.

    Args:
        trials: The finished trials; those that failed or were pruned may have ended before a parameter was suggested.
        distributions: The parameters, in any order.

    Returns:
        The condition of each such parameter: of the parents that explain it, the one that was suggested first, and the
        indices of its values with which the parameter was seen.
    """
    params = [trial.params for trial in trials if trial.state == TrialState.COMPLETE]
    order = [
        name
        for name in dict.fromkeys(name for each in params for name in each)
        if name in distributions
    ]
    found = {}
    for place, name in enumerate(order):
        having = [each for each in params if name in each]
        lacking = [each for each in params if name not in each]
        for parent in order[:place] if lacking else ():
            d = distributions[parent]
            if not isinstance(d, CategoricalDistribution) or not all(
                parent in each for each in having
            ):
                continue
            active = {int(d.to_internal_repr(each[parent])) for each in having}
            if not any(
                parent in each and int(d.to_internal_repr(each[parent])) in active
                for each in lacking
            ):
                found[name] = Condition(parent, tuple(sorted(active)))
                break
    return found


def _range(d: BaseDistribution) -> Parameter:
    """The parameter of a distribution of numbers."""
    if not isinstance(d, (FloatDistribution, IntDistribution)):
        raise InvalidInput(
            f"expected a FloatDistribution, IntDistribution or CategoricalDistribution, got {checks.shown(d)}."
        )
    if d.single():
        return Fixed(d.low)
    if isinstance(d, IntDistribution):
        return Int(d.low, d.high, log=d.log, step=d.step)
    return Float(d.low, d.high, log=d.log, step=d.step)
