"""Options that several commands share, the texts of their help, and the names that a help lists."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

import kbo
from kbo._base.lazy import Lazy
from kbo.errors import InvalidInput

if TYPE_CHECKING:
    from kbo.bandit import methods
    from kbo.cli import examples
    from kbo.optimize import pruning
    from kbo.workers import ray
else:
    methods = Lazy("kbo.bandit.methods")
    examples = Lazy("kbo.cli.examples")
    pruning = Lazy("kbo.optimize.pruning")
    ray = Lazy("kbo.workers.ray")

TARGETS = "An example ({examples}), or your script: a .py file that defines `bounds` and `objective(params)`."
BOX_METHODS = "{box_methods}."
PRUNERS = "Stop bad trials early by what they report: {pruners}."
ENGINES = ("processes", "ray")
ADDRESS = "With --engine ray: HOST:PORT of a cluster's head, auto to find it, or local to start Ray on this machine."
JOURNAL = "A journal (.jsonl) of `kbo tune` or `kbo.minimize`."

Out = Annotated[Path, typer.Option("--out", "-o", help="Folder for journals, tables and pictures.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar, results only.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Also a line for every trial or run.")
]
Engine = Annotated[
    str, typer.Option("--engine", help=f"How the work is run: {' or '.join(ENGINES)}.")
]
Address = Annotated[
    str | None, typer.Option("--address", help=ADDRESS, show_default="RAY_ADDRESS, or local")
]
Device = Annotated[
    str, typer.Option(help="Where the computing is done: cpu, or an accelerator such as cuda.")
]


def engine_of(
    name: str, address: str | None, workers: int | None, resources: str | None = None
) -> Any:
    """Return the ``workers`` that --engine, --address, --workers and --resources mean."""
    if name not in ENGINES:
        raise InvalidInput(f"--engine must be {' or '.join(ENGINES)}, got {name!r}.")
    if name == "processes":
        for option, value in {"--address": address, "--resources": resources}.items():
            if value is not None:
                raise InvalidInput(f"{option} {value} is for a Ray cluster: add --engine ray.")
        return kbo.Processes() if workers == 0 else workers
    given = {} if resources is None else {"resources": _amounts(resources)}
    return ray.Ray(address, workers or None, **given)


def _amounts(text: str) -> dict[str, float]:
    """Return the amounts in "cpu=2,gpu=0.5" by name."""
    try:
        return {
            name.strip(): float(amount)
            for name, amount in (part.split("=") for part in text.split(","))
        }
    except ValueError as error:
        raise InvalidInput(f"--resources must look like cpu=2,gpu=0.5, got {text!r}.") from error


def constraint(text: str) -> kbo.Constraint:
    """Return the constraint that --constraint means."""
    sign = ">=" if ">=" in text else "<="
    name, found, limit = map(str.strip, text.partition(sign))
    try:
        number = float(limit) if found and name else None
    except ValueError:
        number = None
    if number is None:
        raise InvalidInput(
            f'--constraint must look like "memory<=8" or "accuracy>=0.9", got {text!r}.'
        )
    if sign == "<=":
        return kbo.Constraint(name, upper=number)
    return kbo.Constraint(name, lower=number)


class CommandWithNames(TyperCommand):
    """Command whose help lists methods, examples and pruners in place of ``{box_methods}`` and so on.

    The names are those of the definitions, which import PyTorch for seconds: they are looked up when the help is shown.
    """

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help with the names in it."""
        lists = {
            "box_methods": [
                name for name in methods.names() if not methods.get(name).needs_finite_set
            ],
            "examples": examples.EXAMPLES,
            "pruners": pruning.NAMES,
        }
        names = {placeholder: ", ".join(listed) for placeholder, listed in lists.items()}
        for parameter in self.params:
            text = getattr(parameter, "help", None)
            if text:
                setattr(parameter, "help", text.format_map(names))  # noqa: B010  (typer declares no such attribute)
        super().format_help(ctx, formatter)


def apply_verbosity(quiet: bool, verbose: bool) -> None:
    """Set the level of kbo's log from --quiet and --verbose."""
    level = logging.ERROR if quiet else logging.INFO if verbose else logging.WARNING
    logging.basicConfig(format="%(message)s")
    logging.getLogger("kbo").setLevel(level)
