"""Parameters of Ax's ``Client`` as a space of kbo, and back."""

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


def from_parameters(
    parameters: Sequence[Config], parameter_constraints: Sequence[str] = ()
) -> Space:
    """The space of the arguments of ``Client.configure_experiment``, conditional parameters included.

    Choices that are declared as ordered become ``kbo.Ordinal``, single values ``kbo.Fixed``, constraints such as
    "x1 + 2*x2 <= 1" and "x1 <= x2" ``kbo.Linear``.

    Raises:
        InvalidInput: A parameter that is neither a range nor a choice, or cannot be one of kbo; a constraint that Ax
            cannot read, or that no parameters satisfy.
    """
    entries = []
    for config in checks.instance("parameters", parameters, Sequence):
        with checks.inside(f"parameter {checks.shown(getattr(config, 'name', config))}"):
            entries.append(
                (config.name, _parameter(config), getattr(config, "dependent_parameters", None))
            )
    texts = checks.instance("parameter_constraints", parameter_constraints, Sequence)
    return _space(entries, [_linear(text) for text in texts])


def from_search_space(search_space: SearchSpace) -> Space:
    """The space of an experiment; as by ``from_parameters``, but ranges with steps are ``kbo.Ordinal`` there.

    Raises:
        InvalidInput: A parameter that is a task, a fidelity or computed from others.
    """
    return _of_entries(_entries(search_space), search_space)


class SpaceOfTrials(NamedTuple):
    """The space of a model of all trials of an experiment, whose search space may have been changed between them.

    Attributes:
        space: The space, whose ranges contain those of the search space and the values of the trials.
        within: The ranges of the search space, for proposals, where they are closer than these.
        fixed: The values of the parameters that the search space fixes while trials have others, or that are disabled.
    """

    space: Space
    within: dict[str, tuple[float, float]]
    fixed: dict[str, Any]


def space_of_trials(
    search_space: SearchSpace, arms: Iterable[Mapping[str, Any]], widened: bool
) -> SpaceOfTrials:
    """Return the space of a model of trials.

    Choices have the options of the search space only, since Ax keeps no trace of others.

    Args:
        search_space: The search space for the next trial.
        arms: The parameters of trials so far.
        widened: Whether values outside the search space widen the ranges.

    Raises:
        InvalidInput: As by ``from_search_space``.
    """
    within: dict[str, tuple[float, float]] = {}
    fixed: dict[str, Any] = {}
    seen: dict[str, list[Any]] = {}
    for parameters in arms if widened else ():
        for name, value in parameters.items():
            seen.setdefault(name, []).append(value)
    entries = []
    limits = []
    for name, today, dependents in _entries(search_space):
        p = search_space.parameters[name]
        found = _with_values(today, seen.get(name, []))
        entries.append((name, found, dependents))
        if p.is_disabled:
            fixed[name] = p.default_value
        elif isinstance(today, Fixed) and found != today:
            fixed[name] = today.constant
        elif isinstance(today, (Float, Int)) and found != today:
            if search_space.parameter_constraints:
                limits.append(Linear({name: 1.0}, lower=today.low, upper=today.high))
            else:
                within[name] = today.low, today.high
    return SpaceOfTrials(_of_entries(entries, search_space, limits), within, fixed)


def _with_values(today: Parameter, values: Sequence[Any]) -> Parameter:
    """Return a parameter that has the values of trials as well; the same one if they cannot be added to it."""
    if isinstance(today, Fixed):
        return _of_values(today, [today.constant, *values])
    numbers = [value for value in values if _is_number(value) and (value > 0 or not today.log)]
    if not isinstance(today, (Float, Int)) or not numbers:
        return today
    low = min(today.low, *numbers)
    high = max(today.high, *numbers)
    if (low, high) == (today.low, today.high):
        return today
    if isinstance(today, Int):
        return Int(int(low), int(high), today.log)
    return Float(low, high, today.log)


def _of_values(today: Fixed, values: Sequence[Any]) -> Parameter:
    """Return a parameter of the values that a parameter had before it was fixed, and of the one that it has now."""
    distinct = list(dict.fromkeys(value for value in values if value is not None))
    if len(distinct) < 2:
        return today
    if not all(map(_is_number, distinct)):
        return Choice(distinct)
    low, high = min(distinct), max(distinct)
    if all(isinstance(value, int) for value in distinct):
        return Int(low, high)
    return Float(float(low), float(high))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


Entry = tuple[str, Parameter, Any]
"""The name of a parameter, the parameter, and the names of those that are active with each of its values, if any."""


def _entries(search_space: SearchSpace) -> list[Entry]:
    """Return the parameters of a search space.

    Raises:
        InvalidInput: A parameter that is a task, a fidelity or computed from others.
    """
    entries = []
    for p in search_space.parameters.values():
        special = p.is_fidelity or getattr(p, "is_task", False)
        if special or not isinstance(p, (RangeParameter, ChoiceParameter, FixedParameter)):
            raise InvalidInput(
                f"parameter {p.name!r}: kbo has no model of tasks, fidelities and parameters that are computed from "
                f"others, got {p!r}: fix it or leave it out."
            )
        entries.append((p.name, _of_experiment(p), p.dependents if p.is_hierarchical else None))
    return entries


def _of_entries(
    entries: Sequence[Entry], search_space: SearchSpace, limits: Sequence[Linear] = ()
) -> Space:
    """Return the space of parameters with the constraints of a search space, and with limits of their own."""
    constraints = [
        Linear(one.constraint_dict, upper=one.bound) for one in search_space.parameter_constraints
    ]
    return _space(entries, [*constraints, *limits])


def _of_experiment(p: Any) -> Parameter:
    if isinstance(p, RangeParameter):
        ends: Any = p.lower, p.upper
        return (Int if p.parameter_type == ParameterType.INT else Float)(*ends, p.log_scale)
    if isinstance(p, FixedParameter):
        return Fixed(p.value)
    return (Ordinal if p.is_ordered else Choice)(p.values)


def _space(
    entries: Iterable[tuple[str, Parameter, Mapping[Any, Any] | None]],
    constraints: Sequence[Linear],
) -> Space:
    """The space of parameters by name, each with the names of those that are active where it has a certain value."""
    entries, parents = list(entries), {}
    for parent, _, dependents in entries:
        for value, names in (dependents or {}).items():
            for name in names:
                parents.setdefault(name, (parent, []))[1].append(value)
    return Space(
        [
            When(*parents[name], {name: p}) if name in parents else {name: p}
            for name, p, _ in entries
        ],
        constraints,
    )


def to_parameter_constraints(space: Space) -> list[str]:
    """The constraints of a space for ``Client.configure_experiment``.

    Raises:
        InvalidInput: One of them is a function, which Ax does not have.
    """
    found = []
    for constraint in checks.instance("space", space, Space).constraints:
        if not isinstance(constraint, Linear):
            raise InvalidInput(
                f"Ax has linear constraints only: leave out {checks.name_of(constraint)}, and let trials fail there."
            )
        terms = " + ".join(f"{weight!r}*{name}" for name, weight in constraint.weights.items())
        ends = {"<=": constraint.upper, ">=": constraint.lower}
        found += [f"{terms} {sign} {end!r}" for sign, end in ends.items() if end is not None]
    return found


def _linear(text: str) -> Linear:
    with checks.inside("parameter_constraints"):
        try:
            found = ParameterConstraint(inequality=checks.text("a constraint", text))
        except UserInputError as error:
            raise InvalidInput(f"Ax cannot read {text!r}: {error}") from error
        return Linear(found.constraint_dict, upper=found.bound)


def to_parameters(space: Space) -> list[Config]:
    """The parameters of a space for ``Client.configure_experiment``, conditions included.

    Raises:
        InvalidInput: A choice of options of several types, or None, which Ax does not have.
    """
    dependent: dict[str, dict[Any, list[str]]] = {}
    for name, (parent, values) in checks.instance("space", space, Space).conditions.items():
        for value in values:
            dependent.setdefault(parent, {}).setdefault(value, []).append(name)
    return [_config(name, p, dependent.get(name)) for name, p in space.parameters.items()]


def _parameter(config: Config) -> Parameter:
    if isinstance(config, RangeParameterConfig):
        bounds: Any = config.bounds
        kind, log = Int if config.parameter_type == "int" else Float, config.scaling == "log"
        return kind(
            *bounds, log, **({} if config.step_size is None else {"step": config.step_size})
        )
    if not isinstance(config, ChoiceParameterConfig):
        raise InvalidInput(
            f"expected a RangeParameterConfig or ChoiceParameterConfig, got {checks.shown(config)}."
        )
    if len(config.values) == 1:
        return Fixed(config.values[0])
    return (Ordinal if config.is_ordered else Choice)(config.values)


def _config(name: str, p: Parameter, dependent: dict[Any, list[str]] | None) -> Config:
    if isinstance(p, (Float, Int)) and not dependent:
        step = p.step if isinstance(p, Float) or p.step > 1 else None
        kind, scaling = ("int" if isinstance(p, Int) else "float"), ("log" if p.log else "linear")
        return RangeParameterConfig(name, (p.low, p.high), kind, step, scaling)
    options: Any = list(p.options)
    if len(types := set(map(type, options))) > 1 or not types <= _TYPES.keys():
        raise InvalidInput(
            f"parameter {name!r}: Ax needs options of one type, got {checks.shown(options)}."
        )
    ordered = not isinstance(p, Choice)
    return ChoiceParameterConfig(name, options, _TYPES[types.pop()], ordered, dependent)
