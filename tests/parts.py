"""The parts of the tests: what ``pytest`` leaves out, and why, in its header."""

import importlib.util
import os
import shutil
from collections.abc import Iterable
from typing import Any

import pytest
import torch


def once(values: Iterable[Any]) -> list[Any]:
    """Return parameters of which only the first is a part of ``make test``; the others are thorough."""
    first, *others = values
    return [first, *(pytest.param(other, marks=pytest.mark.thorough) for other in others)]


def pytest_report_header(config) -> list[str]:
    found = {
        "a compiler (g++): the stand-in for a device": shutil.which("g++"),
        "a GPU: tests on it": torch.cuda.is_available(),
        "Chromium: the pages in a browser": shutil.which("chromium")
        or shutil.which("chromium-browser")
        or shutil.which("google-chrome"),
        "a user who may mount file systems (root): full disks": os.geteuid() == 0,
    }
    for library in ("ray", "ax", "optuna", "mlflow", "wandb"):
        found[f"{library}: its tests"] = importlib.util.find_spec(library)
    chosen = config.getoption("markexpr") or "all tests"
    lines = [f"part of the tests: {chosen}; the others by name: make help"]
    return lines + [
        f"left out, since this machine lacks {what}" for what in found if not found[what]
    ]
