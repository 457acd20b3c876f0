"""The parts of the tests: what ``pytest`` leaves out, and why, in its header."""

import importlib.util
import os
import shutil
from collections.abc import Iterable
from typing import Any

import pytest
import torch

MISSING = {
    "a compiler (g++): the stand-in for a device": lambda: shutil.which("g++"),
    "a GPU: tests on it": torch.cuda.is_available,
    "Chromium: the pages in a browser": lambda: any(
        map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))
    ),
    "a user who may mount file systems (root): full disks": lambda: os.geteuid() == 0,
    **{
        f"{library}: its tests": lambda name=name: importlib.util.find_spec(name)
        for library, name in {
            "Ray": "ray",
            "Ax": "ax",
            "Optuna": "optuna",
            "MLflow": "mlflow",
            "W&B": "wandb",
        }.items()
    },
}
"""What this machine may lack and the tests that are then left out, with a function that finds it."""


def once(values: Iterable[Any]) -> list[Any]:
    """Return parameters of which only the first is a part of ``make test``; the others are thorough."""
    first, *others = values
    return [first, *(pytest.param(other, marks=pytest.mark.thorough) for other in others)]


def pytest_report_header(config) -> list[str]:
    chosen = config.getoption("markexpr") or "all tests"
    missing = [what for what, found in MISSING.items() if not found()]
    lines = [f"part of the tests: {chosen}; the others by name: make help"]
    return [*lines, *(f"left out, since this machine lacks {what}" for what in missing)]
