"""The target of ``kbo tune``: a problem that comes with kbo, or the user's own script."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

from kbo.errors import InvalidInput
from kbo.optimize.loop import place
from kbo.problems import TUNING


def load(target: str) -> tuple[str, Any, Any]:
    """Return name, objective and bounds of a built-in problem or of a script.

    Args:
        target: The name of a problem, or the path of a Python file that defines ``bounds`` and ``objective``.

    Raises:
        InvalidInput: It is neither, or the file fails or lacks something.
    """
    if target in TUNING:
        problem = TUNING[target]()
        return target, problem, problem.space
    path = Path(target)
    if path.suffix != ".py" or not path.is_file():
        known = ", ".join(TUNING)
        raise InvalidInput(f"{target!r} is neither a problem ({known}) nor a Python file that exists.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InvalidInput(
            f"{path} failed while it was loaded: {type(error).__name__}: {error}{place(error)}"
        ) from error
    missing = [name for name in ("bounds", "objective") if not hasattr(module, name)]
    if missing:
        raise InvalidInput(f"{path} must define {' and '.join(missing)}; see `kbo tune --help`.")
    return path.stem, module.objective, module.bounds
