"""The words of the command line: what options are called, and what their help says."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

from kbo import recipes
from kbo.problems import BANDITS, TUNING

TARGETS = f"A problem ({', '.join(TUNING)}), or your script: a .py file that defines `bounds` and `objective(params)`."
BOX_METHODS = f"{', '.join(name for name in recipes.names() if name not in ('gp-ucb', 'supk-ucb'))}."
METHODS = f"{', '.join(recipes.names())}; give it several times to compare."
PAPERS = (
    "mixture: Flynn & Reeb (2024); sketching: Zenati et al. (2022), EK-UCB, and Calandriello et al. (2019), BKB; "
    "streaming: Durand et al. (2018), Kernel UCB and TS; chaining: Contal et al. (2015), Chaining-UCB; "
    "tuning: a comparison of our own, kbo against BoTorch, Optuna and random search."
)
PROBLEMS = (
    "rkhs (a function of known norm, fresh arms every round), rkhs-fixed (the same arms), streaming (a known norm, to "
    "be played with unknown noise), or one of unknown norm: "
    f"{', '.join(name for name in BANDITS if name != 'streaming')}."
)
RIDGE = "Ridge of the posterior, for k-ucb, supk-ucb, ay-gp-ucb and the sketched methods; also the mu of ek-ucb."
MULTIPLIER = "Choose by mean + MULTIPLIER sqrt(leverage) instead of the method's bound; that guarantees nothing."
NOISE_UPPER = (
    'What methods that are not told the noise level know of it: "...-fixed" use it, "...-adaptive" begin with it.'
)
FIRST = "Index of an arm that is pulled in one uncounted round before the first."
WORKERS = "Processes at a time; by default one per CPU. 1 works in this process."
ENGINES = ("processes", "ray")
ADDRESS = "With --engine ray: HOST:PORT of a cluster's head, auto to find it, or local to start Ray on this machine."

Out = Annotated[Path, typer.Option("--out", "-o", help="Folder for journals, tables and pictures.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar, results only.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Also a line for every trial or run.")]
Workers = Annotated[int | None, typer.Option("--workers", "-j", min=1, help=WORKERS)]
Engine = Annotated[str, typer.Option("--engine", help=f"Who does the work: {' or '.join(ENGINES)}.")]
Address = Annotated[str | None, typer.Option("--address", help=ADDRESS, show_default="RAY_ADDRESS, or local")]


def apply_verbosity(quiet: bool, verbose: bool) -> None:
    """What --quiet and --verbose mean for the messages of kbo."""
    level = logging.ERROR if quiet else logging.INFO if verbose else logging.WARNING
    logging.basicConfig(format="%(message)s")
    logging.getLogger("kbo").setLevel(level)
