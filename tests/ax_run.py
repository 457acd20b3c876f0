"""Branin in Ax, run until it kills itself, or resumed from what it left: ``python -m tests.ax_run HOW FOLDER``."""

from __future__ import annotations

import json
import math
import os
import signal
import sys
from pathlib import Path

from ax.api.client import Client
from ax.api.configs import RangeParameterConfig, StorageConfig
from ax.storage.sqa_store.db import create_all_tables, get_engine, init_engine_and_session_factory

import kbo.integrations.ax as kbo_ax

TRIALS, KILLED_AFTER, N_INITIAL = 15, 8, 5
BOX = [
    RangeParameterConfig(name="a", parameter_type="float", bounds=(-5.0, 10.0)),
    RangeParameterConfig(name="b", parameter_type="float", bounds=(0.0, 15.0)),
]


def branin(a: float, b: float) -> float:
    """The function, with three minima of about 0.398."""
    bowl = (b - 5.1 / (4 * math.pi**2) * a**2 + 5 / math.pi * a - 6) ** 2
    return bowl + 10 * (1 - 1 / (8 * math.pi)) * math.cos(a) + 10


def new_client(objective: str = "-loss", storage: StorageConfig | None = None, **options) -> Client:
    """A client that is ready to ask."""
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


def main(how: str, folder: Path) -> None:
    """Run or resume."""
    if how == "killed":
        init_engine_and_session_factory(url=database(folder).url, force_init=True)
        create_all_tables(get_engine())
        client = new_client(storage=database(folder))
        advance(client, KILLED_AFTER)
        client.save_to_json_file(str(folder / "ax.json"))
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "json":
        client = Client.load_from_json_file(str(folder / "ax.json"))
    else:
        client = Client.load_from_database("branin", storage_config=database(folder))
    print(json.dumps(advance(client, TRIALS - KILLED_AFTER if how == "json" else 3)))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
