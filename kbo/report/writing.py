"""``write``: the page of a run as a file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from gpytorch.kernels import Kernel

from kbo._base import checks
from kbo._base.files import replacing
from kbo._base.surroundings import fixed
from kbo.errors import InvalidInput
from kbo.optimize import Constraint, Hypothesis
from kbo.report import tuning
from kbo.report.record import Record, Run


@fixed
def write(
    run: Run,
    page: str | os.PathLike[str] | None = None,
    *,
    kernel: Kernel | Sequence[Hypothesis] | None = None,
    constraints: Sequence[Constraint] = (),
    title: str | None = None,
) -> Path:
    """Write the results of a run and the assumptions of its bounds as one HTML page that needs no other file.

    Args:
        run: A result, an optimiser, or a journal (.jsonl).
        page: Path of the page, a .html file; by default beside the run.
        kernel: The kernel or the hypotheses of a journal in the certified setting, of which the journal holds
            fingerprints only. Without them the page shows what the journal holds and says that bounds are missing.
        constraints: Limits of such a journal that have kernels of their own, with these.
        title: Title of the page; by default from the name of the file.

    Returns:
        Path of the page.

    Raises:
        InvalidInput: There is no such run, or the page cannot be written.
        JournalError: The journal cannot be read, is damaged, or was made with another kernel.

    Example:
        >>> result = kbo.minimize(objective, {"x": (0.0, 1.0)}, 20)
        >>> kbo.report.write(result, "run.html")
    """
    record = Record.of(run, kernel, constraints)
    target, name = _target(record.path, page)
    text = tuning.page(record, title or name.removeprefix("tune-"))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target) as file:
            file.write(text.encode())
    except OSError as error:
        raise InvalidInput(
            f"cannot write the page {target}: {error.strerror}. Choose another place (--to)."
        ) from error
    return target


def _target(path: Path | None, page: str | os.PathLike[str] | None) -> tuple[Path, str]:
    """Return the path of the page, and the name of the run."""
    name = "A run of kbo" if path is None else path.stem
    if page is None:
        if path is None:
            raise InvalidInput(
                "a run without a journal has no file beside which the page could go: pass its path, "
                "write(run, 'run.html')."
            )
        return path.with_name(f"{name}.html"), name
    target = checks.path("page", page)
    if target.suffix not in (".html", ".htm"):
        raise InvalidInput(f"page must be a .html file, got {checks.shown(page)}.")
    return target, name
