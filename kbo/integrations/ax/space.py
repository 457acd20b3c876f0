"""Parameters of Ax's ``Client`` as a space of kbo, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ax.api.configs import ChoiceParameterConfig, RangeParameterConfig
from ax.core.parameter import ChoiceParameter, FixedParameter, ParameterType, RangeParameter
from ax.core.parameter_constraint import ParameterConstraint
from ax.core.search_space import SearchSpace
from ax.exceptions.core import UserInputError

from kbo import checks
from kbo.errors import InvalidInput
from kbo.space import Choice, Fixed, Float, Int, Linear, Ordinal, Parameter, Space, When

Config = RangeParameterConfig | ChoiceParameterConfig

_TYPES: dict[type, Any] = {bool: "bool", int: "int", float: "float", str: "str"}


def from_parameters(parameters: Sequence[Config], parameter_constraints: Sequence[str] = ()) -> Space:
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
            entries.append((config.name, _parameter(config), getattr(config, "dependent_parameters", None)))
    texts = checks.instance("parameter_constraints", parameter_constraints, Sequence)
    return _space(entries, [_linear(text) for text in texts])


def from_search_space(search_space: SearchSpace) -> Space:
    """The space of an experiment; as by ``from_parameters``, but ranges with steps are ``kbo.Ordinal`` there.

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
    limits = [Linear(one.constraint_dict, upper=one.bound) for one in search_space.parameter_constraints]
    return _space(entries, limits)


def _of_experiment(p: Any) -> Parameter:
    if isinstance(p, RangeParameter):
        ends: Any = p.lower, p.upper
        return (Int if p.parameter_type == ParameterType.INT else Float)(*ends, p.log_scale)
    if isinstance(p, FixedParameter):
        return Fixed(p.value)
    return (Ordinal if p.is_ordered else Choice)(p.values)


def _space(entries: Iterable[tuple[str, Parameter, Mapping[Any, Any] | None]], constraints: Sequence[Linear]) -> Space:
    """The space of parameters by name, each with the names of those that are active where it has a certain value."""
    entries, parents = list(entries), {}
    for parent, _, dependents in entries:
        for value, names in (dependents or {}).items():
            for name in names:
                parents.setdefault(name, (parent, []))[1].append(value)
    return Space(
        [When(*parents[name], {name: p}) if name in parents else {name: p} for name, p, _ in entries], constraints
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
        return kind(*bounds, log, **({} if config.step_size is None else {"step": config.step_size}))
    if not isinstance(config, ChoiceParameterConfig):
        raise InvalidInput(f"expected a RangeParameterConfig or ChoiceParameterConfig, got {checks.shown(config)}.")
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
        raise InvalidInput(f"parameter {name!r}: Ax needs options of one type, got {checks.shown(options)}.")
    ordered = not isinstance(p, Choice)
    return ChoiceParameterConfig(name, options, _TYPES[types.pop()], ordered, dependent)
