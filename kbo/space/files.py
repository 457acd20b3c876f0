"""Spaces from plain data: dicts, and files of JSON and YAML."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kbo._base import checks
from kbo._base.extras import require
from kbo._base.files import check_file, reading
from kbo._base.lazy import Lazy
from kbo.errors import InvalidInput
from kbo.space.bounds import When
from kbo.space.constraints import Linear
from kbo.space.parameters import Choice, Fixed, Float, Int, Ordinal

if TYPE_CHECKING:
    import yaml
else:
    yaml = Lazy("yaml")

_ADVICE = (
    "Such a file has a line for each parameter, as `temperature: {kind: Float, low: 20, high: 90}` and `solvent: "
    "[water, ethanol]`; Space.to_dict() returns what it holds."
)

_KINDS: dict[str, Any] = {
    kind.__name__: kind for kind in (Float, Int, Choice, Ordinal, Fixed, Linear)
}


class Definition(NamedTuple):
    """A space from plain data.

    Attributes:
        bounds: A dict or a ``When`` for each parameter.
        constraints: The linear constraints.
        rows: The values of each parameter in the rows of a table of candidates, by name; empty without a table.
    """

    bounds: list[Mapping[str, Any] | When]
    constraints: list[Linear]
    rows: dict[str, Any]


def definition_of(entries: Mapping[str, Any]) -> Definition:
    """Return the definition of a space from its entries, in the form of ``Space.from_dict``.

    Raises:
        InvalidInput: An entry cannot be used; the message names it.
    """
    definition = Definition([], [], {})
    for name, entry in entries.items():
        with checks.inside(f"parameter {checks.shown(name)}"):
            if not isinstance(entry, Mapping):
                definition.bounds.append({name: entry})
            elif entry.get("kind") == "Linear":
                definition.constraints.append(_constructed(entry))
            else:
                definition.bounds.append(_parameter(name, entry))
                if "rows" in entry:
                    definition.rows[name] = entry["rows"]
    return definition


def _parameter(name: Any, entry: Mapping[str, Any]) -> Mapping[str, Any] | When:
    """Return the parameter of an entry with a kind: as a dict, or as a ``When`` if it is conditional."""
    if entry.get("kind") == "function":
        raise InvalidInput(
            "a constraint that is a function is given in Python, Space(bounds, constraints=[...])."
        )
    parameter = _constructed(entry)
    when = entry.get("when")
    if when is None:
        return {name: parameter}
    if not isinstance(when, Mapping) or len(when) != 1:
        raise InvalidInput(
            f"when must have one parent with its values, {{parent: values}}, got {checks.shown(when)}."
        )
    [(parent, values)] = when.items()
    return When(parent, values, {name: parameter})


def _constructed(entry: Mapping[str, Any]) -> Any:
    """Return an object of the class that ``kind`` of an entry names; the other items are its arguments."""
    kind = _KINDS[checks.one_of("kind", entry.get("kind"), _KINDS)]
    arguments = {key: value for key, value in entry.items() if key not in ("kind", "when", "rows")}
    signature = inspect.signature(kind)
    try:
        signature.bind(**arguments)
    except TypeError as error:
        names = ", ".join(signature.parameters)
        raise InvalidInput(
            f"{kind.__name__} has the entries {names}, got {checks.shown(arguments)} ({error})."
        ) from error
    return kind(**arguments)


_BOOL = "tag:yaml.org,2002:bool"
_FLOAT = "tag:yaml.org,2002:float"
_INT = "tag:yaml.org,2002:int"
"""Names of types in YAML."""

_LONGEST_NUMBER = 100
"""Most characters of a whole number in YAML: PyYAML takes minutes for 500 000 characters in base 60, as 1:30:00."""


def read(path: Path) -> Any:
    """Return the data in a file: JSON if its suffix is .json, otherwise YAML.

    Raises:
        InvalidInput: The file cannot be read. If its text is wrong, the message names the line.
        MissingExtra: PyYAML is not installed.
    """
    form = "JSON"
    if path.suffix != ".json":
        form = "YAML"
        require("a space in YAML", "yaml", "yaml")
    check_file(path, _ADVICE)
    with reading(path, f"a space in {form}, text in UTF-8", _ADVICE):
        text = path.read_text("utf-8-sig")
        if form == "YAML":
            return _yaml(text)
        return json.loads(text, object_pairs_hook=_each_once)


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the entries of a JSON object.

    Raises:
        ValueError: A name comes twice. Python's reader would silently keep the last entry.
    """
    entries: dict[str, Any] = {}
    for name, value in pairs:
        if name in entries:
            raise ValueError(f"the entry {name!r} is there twice")
        entries[name] = value
    return entries


def _yaml(text: str) -> Any:
    """Return the data in a text of YAML 1.2.

    In YAML 1.2, 1e-4 is a number, and yes, no, on and off are texts. PyYAML reads YAML 1.1, in which 1e-4 is a text,
    and the four words are truth values.

    Raises:
        ValueError: The text is no YAML; the message names the line if it is known.
    """

    class Loader(yaml.SafeLoader):
        pass

    resolvers = {}
    for first, entries in yaml.SafeLoader.yaml_implicit_resolvers.items():
        resolvers[first] = [entry for entry in entries if entry[0] != _BOOL]
    Loader.yaml_implicit_resolvers = resolvers
    boolean = re.compile("true|True|TRUE|false|False|FALSE")
    Loader.add_implicit_resolver(_BOOL, boolean, list("tTfF"))
    number = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$")
    Loader.add_implicit_resolver(_FLOAT, number, list("-+0123456789"))
    Loader.add_constructor(_INT, _whole_number)
    try:
        return yaml.load(text, Loader)
    except yaml.YAMLError as error:
        problem = str(error)
        if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
            problem = f"line {error.problem_mark.line + 1}: {error.problem}"
        raise ValueError(" ".join(problem.split())) from error


def _whole_number(loader: yaml.SafeLoader, node: Any) -> int:
    """Return the whole number of a YAML node.

    Raises:
        ValueError: The number has more than ``_LONGEST_NUMBER`` characters.
    """
    if len(node.value) > _LONGEST_NUMBER:
        raise ValueError(
            f"line {node.start_mark.line + 1}: a number of {len(node.value)} characters"
        )
    return loader.construct_yaml_int(node)
