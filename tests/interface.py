"""The public interface: names, and the names, kinds and defaults of parameters, one line each in ``interface.txt``.

``python -m tests.interface`` writes the file anew. The interface is what the packages export and what ``docs/api.md``
lists. Of a class it has the members that users are told of: all that ``docs/api.md`` shows, and those that its
docstring or a page names. Annotations are left out: how they are shown depends on the version of Python.
"""

import dataclasses
import functools
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kbo

ROOT = Path(__file__).parent.parent
FILE = Path(__file__).parent / "interface.txt"

_PREFIX = {
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.VAR_KEYWORD: "**",
}


def lines() -> dict[str, str]:
    """Return the line of each public name, sorted. A name of an object that has a shorter one only names that."""
    with_members = {id(value_of(name)) for name, has_members in documented() if has_members}
    listed = [name for name, _ in documented()]
    names = sorted({*exported(), *listed}, key=lambda name: (name.count("."), name))
    shortest: dict[int, str] = {}
    found: dict[str, str] = {}
    for name in names:
        value = value_of(name)
        if inspect.ismodule(value):
            continue
        is_definition = inspect.isclass(value) or inspect.isroutine(value)
        if is_definition and id(value) in shortest:
            found[name] = f"{name} = {shortest[id(value)]}"
            continue
        shortest[id(value)] = name
        for path, line in _definition(name, value):
            member = path.removeprefix(name).removeprefix(".")
            if not member or id(value) in with_members or _is_named(value, member):
                found[path] = line
    return dict(sorted(found.items()))


def value_of(name: str) -> Any:
    """Return what a dotted name stands for: attributes first, since ``kbo.optimize.minimize`` is a module too."""
    value: Any = kbo
    path = "kbo"
    for part in name.split(".")[1:]:
        path = f"{path}.{part}"
        if not hasattr(value, part):
            importlib.import_module(path)
        value = getattr(value, part)
    return value


def stored() -> dict[str, str]:
    """Return the lines of the file by name."""
    return {re.split(r"[( ]", line)[0]: line for line in FILE.read_text("utf-8").splitlines()}


def exported() -> Iterator[str]:
    """Yield the names that ``kbo`` and its packages export."""
    for name in kbo.__all__:
        yield f"kbo.{name}"
    packages = [name for name in dir(kbo) if inspect.ismodule(getattr(kbo, name))]
    for package in packages:
        for name in getattr(getattr(kbo, package), "__all__", ()):
            yield f"kbo.{package}.{name}"


def documented() -> Iterator[tuple[str, bool]]:
    """Yield the names of classes and functions that ``docs/api.md`` lists, and whether it lists their members."""
    current = ""
    text = (ROOT / "docs" / "api.md").read_text("utf-8")
    directive = r"^\.\. (\w+):: ([\w.]+)(\n +:members:.*)?"
    for kind, name, members in re.findall(directive, text, re.MULTILINE):
        if kind == "currentmodule":
            current = name
        elif kind == "automodule":
            _, _, names = members.partition(":members:")
            listed = [member.strip() for member in names.split(",") if member.strip()]
            for member in listed or _defined_in(name):
                yield f"{name}.{member}", True
        elif name.startswith("kbo."):
            yield name, bool(members)
        else:
            yield f"{current}.{name}", bool(members)


def _is_named(kind: type, member: str) -> bool:
    """Return whether the docstring of a class, or of one of its bases, or a page as Class.member names a member."""
    bases = [base for base in kind.__mro__ if base.__module__.startswith("kbo.")]
    in_list = rf"^ +(\w+, )*{member}(, \w+)*:"  # an entry of Args or Attributes
    pattern = rf"{in_list}|``\.?{member}\b"
    if any(re.search(pattern, base.__doc__ or "", re.MULTILINE) for base in bases):
        return True
    return any(f"{base.__name__}.{member}" in _pages() for base in bases)


@functools.cache
def _pages() -> str:
    """Return the text of all pages."""
    pages = [
        ROOT / "README.md",
        *sorted((ROOT / "docs").glob("*.md")),
        *sorted((ROOT / "docs/theory").glob("*.md")),
    ]
    return "\n".join(page.read_text("utf-8") for page in pages)


def _defined_in(name: str) -> list[str]:
    """Return the public names of a module: those that it exports, or else its own classes and functions."""
    module = importlib.import_module(name)
    if hasattr(module, "__all__"):
        return list(module.__all__)
    return [
        member
        for member, value in vars(module).items()
        if member[0] != "_" and getattr(value, "__module__", None) == name
    ]


def _definition(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield names and lines of a function, or of a class with its constructor and its public members."""
    if not inspect.isclass(value):
        signature = _signature(value) if inspect.isroutine(value) else ""
        yield name, f"{name}{signature}"
        return
    yield name, f"{name}{_constructor(value)}"
    members: dict[str, Any] = {}
    for base in value.__mro__:
        if base.__module__.startswith("kbo."):
            members = {**vars(base), **members}
    if dataclasses.is_dataclass(value):
        members.update({field.name: None for field in dataclasses.fields(value)})
    for member, content in members.items():
        if member[0] == "_":
            continue
        signature = ""
        if isinstance(content, staticmethod):
            signature = _signature(content.__func__)
        elif isinstance(content, classmethod) or inspect.isfunction(content):
            signature = _signature(getattr(content, "__func__", content), leave_out=1)
        path = f"{name}.{member}"
        yield path, f"{path}{signature}"


def _constructor(kind: type) -> str:
    """Return the signature of a constructor that kbo defines; no text if it is that of another library."""
    if getattr(kind, "_is_protocol", False):
        return ""
    definitions = ("__init__", "__new__")
    origin = next(base for base in kind.__mro__ if any(name in vars(base) for name in definitions))
    if not origin.__module__.startswith("kbo."):
        return ""
    return _signature(kind)


def _signature(function: Any, leave_out: int = 0) -> str:
    """Return the parameters with their kinds and defaults; other defaults than plain values are dots.

    Args:
        function: A function or a class.
        leave_out: The number of first parameters that are left out, such as ``self``.
    """
    parameters = list(inspect.signature(function).parameters.values())
    texts = []
    was_positional_only = False
    is_keyword_only = False
    for parameter in parameters[leave_out:]:
        if was_positional_only and parameter.kind is not parameter.POSITIONAL_ONLY:
            texts.append("/")
        was_positional_only = parameter.kind is parameter.POSITIONAL_ONLY
        if parameter.kind is parameter.KEYWORD_ONLY and not is_keyword_only:
            texts.append("*")
        is_keyword_only = (
            is_keyword_only
            or parameter.kind is parameter.KEYWORD_ONLY
            or parameter.kind is parameter.VAR_POSITIONAL
        )
        text = _PREFIX.get(parameter.kind, "") + parameter.name
        if parameter.default is not parameter.empty:
            text += f"={_default(parameter.default)}"
        texts.append(text)
    if was_positional_only:
        texts.append("/")
    return f"({', '.join(texts)})"


def _default(value: Any) -> str:
    plain = value is None or type(value) in (bool, int, float, str)
    plain = plain or (type(value) is tuple and "..." not in map(_default, value))
    return repr(value) if plain else "..."


def main() -> None:
    """Write the file anew."""
    FILE.write_text("\n".join(lines().values()) + "\n", "utf-8")


if __name__ == "__main__":
    main()
