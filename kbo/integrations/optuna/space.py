"""Optuna's distributions as a space of kbo, and parameters in both directions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import FrozenTrial

from kbo import checks
from kbo.errors import InvalidInput
from kbo.space import Choice, Float, Int, Parameter, Space

_ON_GRID = 1e-6  # steps by which a value may be off its grid: Optuna adds up steps in floating point


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
        self.distributions: dict[str, BaseDistribution] = {name: distributions[name] for name in sorted(distributions)}
        self._codings: dict[str, _Coding] = {}
        for name, distribution in self.distributions.items():
            with checks.inside(f"parameter {name!r}"):
                self._codings[name] = _coding(distribution)
        self.space: Space = Space({name: coding.parameter for name, coding in self._codings.items()})
        self.defaults: dict[str, Any] = {
            name: p.options[0] if isinstance(p, Choice) else p.value(0.5) for name, p in self.space.parameters.items()
        }

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SearchSpace) and self.distributions == other.distributions

    def encode(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The values in the space of kbo of those parameters that it has; others are ignored."""
        found = {}
        for name in [name for name in self.distributions if name in params]:
            try:
                found[name] = self._codings[name].encode(params[name])
                self.space.parameters[name].plain(found[name])  # checks the bounds
            except (TypeError, ValueError, OverflowError) as error:
                raise InvalidInput(
                    f"parameter {name!r}: {params[name]!r} is not in {self.distributions[name]}."
                ) from error
        return found

    def complete(self, params: Mapping[str, Any]) -> dict[str, Any] | None:
        """The values as by ``encode``, with defaults for missing parameters; None if all are missing."""
        found = self.encode(params)
        return {**self.defaults, **found} if found else None

    def decode(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters of Optuna for values in the space of kbo."""
        return {name: self._codings[name].decode(value) for name, value in values.items()}


def shared_distributions(trials: Iterable[FrozenTrial]) -> dict[str, BaseDistribution]:
    """All parameters of the trials, by name, except those whose distribution changed and those of a single value."""
    seen: dict[str, BaseDistribution] = {}
    changed: set[str] = set()
    for trial in trials:
        for name, distribution in trial.distributions.items():
            if seen.setdefault(name, distribution) != distribution:
                changed.add(name)
    return {name: seen[name] for name in sorted(seen) if name not in changed and not seen[name].single()}


class _Coding(NamedTuple):
    """A parameter of kbo for a distribution, and the functions from Optuna's values to its values and back."""

    parameter: Parameter
    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]


def _coding(d: BaseDistribution) -> _Coding:
    if isinstance(d, CategoricalDistribution):
        return _Coding(Choice(range(len(d.choices))), lambda value: int(d.to_internal_repr(value)), d.to_external_repr)
    if not isinstance(d, (FloatDistribution, IntDistribution)):
        raise InvalidInput(
            f"expected a FloatDistribution, IntDistribution or CategoricalDistribution, got {checks.shown(d)}."
        )
    if d.step is not None and (isinstance(d, FloatDistribution) or d.step > 1):
        low, high, step = d.low, d.high, d.step
        grid = Int(0, round(checks.number("the number of steps", (high - low) / step)))
        return _Coding(grid, lambda value: _index(value, low, step), lambda i: min(low + i * step, high))
    if isinstance(d, IntDistribution):
        return _Coding(Int(d.low, d.high, log=d.log), lambda value: value, lambda value: value)
    return _Coding(Float(d.low, d.high, log=d.log), float, lambda value: value)


def _index(value: Any, low: float, step: float) -> int:
    """The index of a value on a grid."""
    index = (float(value) - low) / step
    if abs(index - round(index)) > _ON_GRID:
        raise ValueError(f"{value} is between the steps")
    return round(index)
