"""Branin in Ax: a run that kills itself, ``python -m tests.ax_run FOLDER``, and its resumption from the files."""

from __future__ import annotations

import math
import os
import signal
import sys
from pathlib import Path

from ax.api.client import Client
from ax.api.configs import RangeParameterConfig, StorageConfig
from ax.storage.sqa_store.db import create_all_tables, get_engine, init_engine_and_session_factory

import kbo.integrations.ax as kbo_ax

TRIALS, KILLED_AFTER, N_INITIAL = 14, 9, 5
BOX = [
    RangeParameterConfig(name="a", parameter_type="float", bounds=(-5.0, 10.0)),
    RangeParameterConfig(name="b", parameter_type="float", bounds=(0.0, 15.0)),
]


def branin(a: float, b: float) -> float:
    """The function, with three minima of about 0.398."""
    bowl = (b - 5.1 / (4 * math.pi**2) * a**2 + 5 / math.pi * a - 6) ** 2
    return bowl + 10 * (1 - 1 / (8 * math.pi)) * math.cos(a) + 10


def new_client(objective: str = "-loss", storage: StorageConfig | None = None, **options) -> Client:
    """A client with a strategy."""
    client = Client(storage_config=storage, random_seed=0)
    client.configure_experiment(parameters=BOX, name="branin")
    client.configure_optimization(objective=objective)
    client.set_generation_strategy(kbo_ax.generation_strategy(**{"n_initial": N_INITIAL, **options}))
    return client


def advance(client: Client, trials: int) -> list[dict[str, float]]:
    """Points of so many trials, each completed."""
    points = []
    for _ in range(trials):
        ((number, point),) = client.get_next_trials(1).items()
        points.append(point)
        client.complete_trial(number, {"loss": branin(**point)})
    return points


def database(folder: Path) -> StorageConfig:
    """A SQLite file."""
    return StorageConfig(url=f"sqlite:///{folder / 'ax.db'}")


def from_json(folder: Path) -> Client:
    """The killed run from its JSON file."""
    return Client.load_from_json_file(str(folder / "ax.json"))


def from_database(folder: Path) -> Client:
    """The killed run from its database."""
    return Client.load_from_database("branin", storage_config=database(folder))


def main(folder: Path) -> None:
    """Run and kill this process."""
    init_engine_and_session_factory(url=database(folder).url, force_init=True)
    create_all_tables(get_engine())
    client = new_client(storage=database(folder))
    advance(client, KILLED_AFTER)
    client.save_to_json_file(str(folder / "ax.json"))
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
