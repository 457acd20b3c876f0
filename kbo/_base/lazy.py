"""Modules that are imported when they are first used."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any


class Lazy:
    """A module that is imported when one of its attributes is read.

    Before that it is not in ``sys.modules``, in which other libraries look for the libraries of a program.
    ``lazy_loader.load`` would put it there at once.

    Args:
        name: The full name of the module.

    Example:
        >>> pd = Lazy("pandas")
        >>> pd.DataFrame({"x": [1.0]})
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._module: ModuleType | None = None

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):  # looked up by copy, pickle and doctest: imports nothing
            raise AttributeError(f"{self!r} has no attribute {attribute!r}")
        if self._module is None:
            self._module = importlib.import_module(self._name)
        return getattr(self._module, attribute)

    def __repr__(self) -> str:
        return f"Lazy({self._name!r})"
