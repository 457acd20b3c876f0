"""Search spaces of Ax as spaces of kbo, and back."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ax.api.configs import ChoiceParameterConfig, RangeParameterConfig
from ax.core.parameter import ChoiceParameter, FixedParameter, ParameterType, RangeParameter
from ax.core.parameter_constraint import ParameterConstraint
from ax.core.search_space import SearchSpace
from ax.exceptions.core import UserInputError

from kbo._base import checks
from kbo.errors import InvalidInput
from kbo.space import Choice, Fixed, Float, Int, Linear, Ordinal, Parameter, Space, When

Config = RangeParameterConfig | ChoiceParameterConfig

_TYPES: dict[type, Any] = {bool: "bool", int: "int", float: "float", str: "str"}


class _Entry(NamedTuple):
    """A parameter of a search space.

    Attributes:
        name: The name of the parameter.
        parameter: The parameter.
        dependents: By value, the names of the parameters that are active with this value; None if there are none.
    """

    name: str
    parameter: Parameter
    dependents: Mapping[Any, Sequence[str]] | None


def _space(entries: Sequence[_Entry], constraints: Sequence[Linear]) -> Space:
    """Return the space of parameters. A parameter that no value of its parents can make active is left out."""
    parents: dict[str, str] = {}
    values: dict[str, list[Any]] = {}
    for entry in entries:
        for value, names in (entry.dependents or {}).items():
            for name in names:
                parents.setdefault(name, entry.name)
                if not isinstance(entry.parameter, Fixed) or value == entry.parameter.constant:
                    values.setdefault(name, []).append(value)

    def may_be_active(name: str) -> bool:
        """Return whether the parents of a parameter can have the values that make it active."""
        return name not in parents or (name in values and may_be_active(parents[name]))

    bounds: list[Mapping[str, Any] | When] = []
    for entry in entries:
        name = entry.name
        if name not in parents:
            bounds.append({name: entry.parameter})
        elif may_be_active(name):
            bounds.append(When(parents[name], values[name], {name: entry.parameter}))
    return Space(bounds, constraints)


# From and to the arguments of Client.configure_experiment


def from_parameters(
    parameters: Sequence[Config], parameter_constraints: Sequence[str] = ()
) -> Space:
    """Return the space for arguments of ``Client.configure_experiment``, also with conditional parameters.

    A choice that is declared as ordered becomes a ``kbo.Ordinal``, and a single value a ``kbo.Fixed``. A constraint
    such as "x1 + 2*x2 <= 1" or "x1 <= x2" becomes a ``kbo.Linear``.

    Raises:
        InvalidInput: A parameter is neither a range nor a choice, or kbo has no such parameter. Ax cannot read a
            constraint, or no parameters satisfy the constraints.
    """
    entries: list[_Entry] = []
    for config in checks.instance("parameters", parameters, Sequence):
        with checks.inside(f"parameter {checks.shown(getattr(config, 'name', config))}"):
            dependents = getattr(config, "dependent_parameters", None)
            parameter = _of_config(config)
            entries.append(_Entry(config.name, parameter, dependents))
    texts = checks.instance("parameter_constraints", parameter_constraints, Sequence)
    return _space(entries, [_linear(text) for text in texts])


def _of_config(config: Config) -> Parameter:
    """Return the parameter of kbo for a configuration of Ax."""
    if isinstance(config, RangeParameterConfig):
        low: Any
        high: Any
        low, high = config.bounds
        log = config.scaling == "log"
        options: dict[str, Any] = {}
        if config.step_size is not None:
            options["step"] = config.step_size
        if config.parameter_type == "int":
            return Int(low, high, log, **options)
        return Float(low, high, log, **options)
    if not isinstance(config, ChoiceParameterConfig):
        raise InvalidInput(
            f"expected a RangeParameterConfig or ChoiceParameterConfig, got {checks.shown(config)}."
        )
    if len(config.values) == 1:
        return Fixed(config.values[0])
    if config.is_ordered:
        return Ordinal(config.values)
    return Choice(config.values)


def _linear(text: str) -> Linear:
    """Return the constraint of kbo for a text such as "x1 + 2*x2 <= 1"."""
    with checks.inside("parameter_constraints"):
        try:
            constraint = ParameterConstraint(inequality=checks.text("a constraint", text))
        except UserInputError as error:
            raise InvalidInput(f"Ax cannot read {text!r}: {error}") from error
        return Linear(constraint.constraint_dict, upper=constraint.bound)


def to_parameters(space: Space) -> list[Config]:
    """Return the parameters of a space for ``Client.configure_experiment``, with their conditions.

    Raises:
        InvalidInput: A choice has options of several types or None, which Ax does not support.
    """
    dependents: dict[str, dict[Any, list[str]]] = {}
    for name, condition in checks.instance("space", space, Space).conditions.items():
        of_parent = dependents.setdefault(condition.parent, {})
        for value in condition.values:
            of_parent.setdefault(value, []).append(name)
    return [_config(name, p, dependents.get(name)) for name, p in space.parameters.items()]


def _config(name: str, p: Parameter, dependents: dict[Any, list[str]] | None) -> Config:
    """Return the configuration of a parameter. A number with dependent parameters becomes a choice of its values."""
    if isinstance(p, (Float, Int)) and not dependents:
        scaling = "log" if p.log else "linear"
        if isinstance(p, Float):
            return RangeParameterConfig(name, (p.low, p.high), "float", p.step, scaling)
        step = p.step if p.step > 1 else None
        return RangeParameterConfig(name, (p.low, p.high), "int", step, scaling)
    options: Any = list(p.options)
    types = set(map(type, options))
    if len(types) > 1 or not types <= _TYPES.keys():
        raise InvalidInput(
            f"parameter {name!r}: Ax needs options of one type, got {checks.shown(options)}."
        )
    is_ordered = not isinstance(p, Choice)
    return ChoiceParameterConfig(name, options, _TYPES[types.pop()], is_ordered, dependents)


def to_parameter_constraints(space: Space) -> list[str]:
    """Return the constraints of a space for ``Client.configure_experiment``.

    Raises:
        InvalidInput: A constraint is a function, which Ax does not support.
    """
    texts: list[str] = []
    for constraint in checks.instance("space", space, Space).constraints:
        if not isinstance(constraint, Linear):
            raise InvalidInput(
                f"Ax has linear constraints only: leave out {checks.name_of(constraint)}, and let trials fail there."
            )
        terms = " + ".join(f"{weight!r}*{name}" for name, weight in constraint.weights.items())
        if constraint.upper is not None:
            texts.append(f"{terms} <= {constraint.upper!r}")
        if constraint.lower is not None:
            texts.append(f"{terms} >= {constraint.lower!r}")
    return texts


# The search space of an experiment


class Spaces(NamedTuple):
    """The spaces of an experiment; its search space may have been changed between trials.

    Attributes:
        whole: A space that contains the search space and all trials. It has no constraints, unless both are equal.
        present: The search space for the next trial, in which disabled parameters are fixed.
    """

    whole: Space
    present: Space


def spaces_of(search_space: SearchSpace, arms: Iterable[Mapping[str, Any]]) -> Spaces:
    """Return the space of all trials and the space of the next trial; both are equal if no trial is outside.

    Args:
        search_space: The search space for the next trial.
        arms: The parameters of the trials.

    Raises:
        InvalidInput: A parameter is a task, a fidelity or computed from others.
    """
    values: dict[str, list[Any]] = {}
    for parameters in arms:
        for name, value in parameters.items():
            values.setdefault(name, []).append(value)
    entries: list[_Entry] = []
    wider: list[_Entry] = []
    for name, p in search_space.parameters.items():
        parameter = _of_experiment(p)
        of_trials = _with_values(parameter, values.get(name, []))
        if isinstance(of_trials, Choice) and isinstance(parameter, Ordinal):
            parameter = Choice(
                parameter.options
            )  # Ax treats every choice of two options as ordered
        entry = _Entry(name, parameter, p.dependents if p.is_hierarchical else None)
        wider.append(entry._replace(parameter=of_trials))
        if p.is_disabled:
            entry = entry._replace(parameter=Fixed(p.default_value))
        entries.append(entry)
    limits = [Linear(c.constraint_dict, upper=c.bound) for c in search_space.parameter_constraints]
    present = _space(entries, limits)
    if wider == entries:
        return Spaces(present, present)
    return Spaces(_space(wider, []), present)


def _of_experiment(p: Any) -> Parameter:
    """Return the parameter of kbo for one of a search space, in which ranges with steps are ordered choices.

    Raises:
        InvalidInput: The parameter is a task, a fidelity or computed from others.
    """
    is_special = p.is_fidelity or getattr(p, "is_task", False)
    if is_special or not isinstance(p, (RangeParameter, ChoiceParameter, FixedParameter)):
        raise InvalidInput(
            f"parameter {p.name!r}: kbo has no model of tasks, fidelities and parameters that are computed from "
            f"others, got {p!r}: fix it or leave it out."
        )
    if isinstance(p, FixedParameter):
        return Fixed(p.value)
    if isinstance(p, RangeParameter):
        low: Any = p.lower
        high: Any = p.upper
        if p.parameter_type == ParameterType.INT:
            return Int(low, high, p.log_scale)
        return Float(low, high, p.log_scale)
    if p.is_ordered:
        return Ordinal(p.values)
    return Choice(p.values)


def _with_values(present: Parameter, values: Sequence[Any]) -> Parameter:
    """Return a parameter that also has the values of trials, except values that have no place on its scale."""
    if isinstance(present, (Float, Int)):
        numbers = [v for v in values if _is_number(v) and (v > 0 or not present.log)]
        low: Any = min([present.low, *numbers])
        high: Any = max([present.high, *numbers])
        return type(present)(low, high, present.log)
    options = list(present.options)
    options += [value for value in dict.fromkeys(values) if value not in (None, *options)]
    if len(options) == len(present.options):
        return present
    are_numbers = all(map(_is_number, options))
    if isinstance(present, Ordinal) and are_numbers:
        return Ordinal(sorted(options))
    if isinstance(present, Fixed) and are_numbers:
        if all(isinstance(option, int) for option in options):
            return Int(min(options), max(options))
        return Float(min(options), max(options))
    return Choice(options)


def _is_number(value: Any) -> bool:
    """Return whether a value is a finite number, and no boolean."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
