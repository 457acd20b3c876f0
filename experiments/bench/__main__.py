"""``python -m experiments.bench``: all benchmarks, as a table."""

from __future__ import annotations

from typing import Annotated

import typer

from experiments import commands
from experiments.bench import race, suite
from experiments.commands import Device
from kbo._base import devices


def bench(
    device: Device = "cpu",
    quick: Annotated[
        bool, typer.Option("--quick", help="Small sizes, to see that it works.")
    ] = False,
) -> None:
    """Measure speed as ratios, against straight-line code, BoTorch and half the size, in one process."""
    results = suite.run(device, quick)
    typer.echo(f"{race.table(results)}\n{race.machine(devices.device('device', device))}")


def main() -> None:
    """Run the command."""
    commands.run(bench)


if __name__ == "__main__":
    main()
