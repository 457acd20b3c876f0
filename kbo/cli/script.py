"""The target of a command: an example of kbo, or a script that defines ``bounds`` and ``objective(params)``."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import kbo
from kbo._base.lazy import Lazy
from kbo.errors import InvalidInput

if TYPE_CHECKING:
    from kbo.cli import examples
    from kbo.optimize.constraints import constraint
    from kbo.optimize.settings import setting as settings
    from kbo.workers import call
else:
    examples = Lazy("kbo.cli.examples")
    constraint = Lazy("kbo.optimize.constraints.constraint")
    settings = Lazy("kbo.optimize.settings.setting")
    call = Lazy("kbo.workers.call")


class Script(NamedTuple):
    """The names that a script defines.

    Attributes:
        name: The name of the script, without folder and suffix.
        objective: The function that is tuned.
        bounds: The search space.
        constraints: Constraints on parameters and limits on measured quantities.
        was: By name, the value of a parameter in earlier trials that lack it.
        setting: The setting of the run; None for the practical setting.
        objectives: The objectives if there are several, otherwise empty.
        reference: Values of several objectives that are just not acceptable; None for the default.
    """

    name: str
    objective: Any
    bounds: Any
    constraints: Sequence[Any] = ()
    was: Mapping[str, Any] = {}
    setting: Any = None
    objectives: Sequence[Any] = ()
    reference: Any = None

    @property
    def limits(self) -> list[kbo.Constraint]:
        """The limits on measured quantities among the constraints."""
        measured, _ = constraint.measured_only(self.constraints)
        return measured

    @property
    def kernel(self) -> Any:
        """The kernel or the hypotheses of a certified setting; None in another setting."""
        if isinstance(self.setting, kbo.Certified):
            return self.setting.kernel
        return None


def load(target: str) -> Script:
    """Return an example of kbo, or the names that a script defines.

    Raises:
        InvalidInput: There is no such example or script, or the script cannot be loaded or used.
    """
    if target in examples.EXAMPLES:
        objective, bounds = examples.EXAMPLES[target]
        return Script(target, objective, bounds)
    path = Path(target)
    if path.suffix != ".py" or not os.path.isfile(path):  # Path.is_file raises in a closed folder
        names = ", ".join(examples.EXAMPLES)
        advice = ""
        if path.suffix == ".jsonl":
            advice = " Give the script of the run, not its journal."
        elif os.path.isfile(f"{target}.py"):
            advice = f" Did you mean {target}.py?"
        raise InvalidInput(
            f"{target!r} is neither an example ({names}) nor a Python file that exists.{advice}"
        )
    module = _executed(path)
    definitions = {}
    for name in Script._fields:
        if name != "name" and hasattr(module, name):
            definitions[name] = getattr(module, name)
    missing = [name for name in ("bounds", "objective") if name not in definitions]
    if missing:
        raise InvalidInput(
            f"{path} does not define {' and '.join(missing)}: a script must define bounds and objective(params); see "
            "`kbo tune --help`."
        )
    setting = definitions.get("setting")
    if setting is not None and not isinstance(setting, settings.Setting):
        raise InvalidInput(
            f"{path}: setting is to be kbo.Certified(...), kbo.Safe(...) or kbo.Practical(...); rename it."
        )
    return Script(path.stem, **definitions)


def _executed(path: Path) -> Any:
    """Run a script as a module with its own name, so that workers can import it, and return the module.

    Raises:
        InvalidInput: The script has the name of an installed module, or failed.
    """
    owner = _owner_of_module(path.stem)
    if owner:
        raise InvalidInput(
            f"{path} has the name of a module of {owner}, which kbo and its workers need: rename it."
        )
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    sys.path.insert(_after_standard_library(), str(path.parent.resolve()))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise InvalidInput(
            f"{path} failed while it was loaded: {type(error).__name__}: {error}{call.place(error)}"
        ) from error
    return module


def _owner_of_module(name: str) -> str:
    """Return the owner of the module of this name, Python or an installed package; empty if there is none."""
    if name == "kbo" or name in sys.stdlib_module_names:
        return "kbo or Python"
    installed = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    spec = importlib.machinery.PathFinder.find_spec(name, installed)
    if spec is None or spec.origin is None:
        return ""
    return spec.origin


def _after_standard_library() -> int:
    """Return the position in ``sys.path`` between the standard library and installed packages."""
    library = sysconfig.get_path("stdlib")
    folders = (library, os.path.join(library, "lib-dynload"))
    return max((i + 1 for i, path in enumerate(sys.path) if path in folders), default=0)
