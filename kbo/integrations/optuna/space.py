"""Optuna's distributions as a space of kbo, and parameters in both directions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import FrozenTrial

from kbo.errors import InvalidInput
from kbo.space import Choice, Float, Int, Parameter, Space

_ON_GRID = 1e-6
"""Steps by which a value may be off its grid: Optuna adds up steps in floating point."""


class SearchSpace:
    """Named distributions as a space of kbo.

    Real and whole numbers are themselves, numbers with a step are their index on the grid, and choices, which may be
    any objects, are their index. Parameters, and so the columns of the features, are in the order of their names.

    Args:
        distributions: At least one, none of a single value.

    Attributes:
        distributions: The same, sorted by name.
        space: The space of kbo.
        defaults: The values of parameters that a trial does not have: the middle of the range (on the logarithmic scale
            if it has one), or the first choice.
    """

    def __init__(self, distributions: Mapping[str, BaseDistribution]) -> None:
        self.distributions = {name: distributions[name] for name in sorted(distributions)}
        self.space = Space({name: _parameter(name, d) for name, d in self.distributions.items()})
        self.defaults = {
            name: p.options[0] if isinstance(p, Choice) else p.value(0.5) for name, p in self.space.parameters.items()
        }

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SearchSpace) and self.distributions == other.distributions

    def encode(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The values in the space of kbo of those parameters that it has; others are ignored.

        Raises:
            InvalidInput: A value that its distribution does not contain.
        """
        return {name: self._encoded(name, params[name]) for name in self.distributions if name in params}

    def complete(self, params: Mapping[str, Any]) -> dict[str, Any] | None:
        """The values as by ``encode``, with defaults for missing parameters; None if all are missing.

        Raises:
            InvalidInput: A value that its distribution does not contain.
        """
        found = self.encode(params)
        return {**self.defaults, **found} if found else None

    def decode(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters of Optuna for values in the space of kbo."""
        return {name: _decoded(self.distributions[name], value) for name, value in values.items()}

    def _encoded(self, name: str, value: Any) -> Any:
        try:
            encoded = _encoded(self.distributions[name], value)
            self.space.parameters[name].unit(encoded)  # checks the bounds
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidInput(f"parameter {name!r}: {value!r} is not in {self.distributions[name]}.") from error
        return encoded


def shared_distributions(trials: Iterable[FrozenTrial]) -> dict[str, BaseDistribution]:
    """All parameters of the trials, by name, except those whose distribution changed and those of a single value."""
    seen: dict[str, BaseDistribution] = {}
    changed: set[str] = set()
    for trial in trials:
        for name, distribution in trial.distributions.items():
            if seen.setdefault(name, distribution) != distribution:
                changed.add(name)
    return {name: seen[name] for name in sorted(seen) if name not in changed and not seen[name].single()}


def _steps(distribution: BaseDistribution) -> float | None:
    """The step of a grid whose points are known by their index; None for other distributions."""
    if isinstance(distribution, IntDistribution):
        return distribution.step if distribution.step > 1 else None
    return distribution.step if isinstance(distribution, FloatDistribution) else None


def _parameter(name: str, distribution: BaseDistribution) -> Parameter:
    if isinstance(distribution, CategoricalDistribution):
        return Choice(range(len(distribution.choices)))
    if not isinstance(distribution, (FloatDistribution, IntDistribution)):
        raise InvalidInput(
            f"parameter {name!r}: expected a FloatDistribution, IntDistribution or CategoricalDistribution, got "
            f"{distribution!r}."
        )
    if (step := _steps(distribution)) is not None:
        return Int(0, round((distribution.high - distribution.low) / step))
    if isinstance(distribution, IntDistribution):
        return Int(distribution.low, distribution.high, log=distribution.log)
    return Float(distribution.low, distribution.high, log=distribution.log)


def _encoded(distribution: Any, value: Any) -> float | int:
    if isinstance(distribution, CategoricalDistribution):
        return int(distribution.to_internal_repr(value))
    if (step := _steps(distribution)) is not None:
        index = (float(value) - distribution.low) / step
        if abs(index - round(index)) > _ON_GRID:
            raise ValueError(f"{value} is between the steps")
        return round(index)
    return float(value) if isinstance(distribution, FloatDistribution) else value


def _decoded(distribution: Any, value: Any) -> Any:
    if isinstance(distribution, CategoricalDistribution):
        return distribution.to_external_repr(value)
    if (step := _steps(distribution)) is not None:
        return min(distribution.low + value * step, distribution.high)
    return value
