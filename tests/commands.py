"""Commands in this process, which saves the start of another one and the import of PyTorch."""

import io
import logging
import runpy
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import typer.testing

from kbo.__main__ import main


class CliRunner(typer.testing.CliRunner):
    """Runs commands, and puts back the level of kbo's log that they have set for the process."""

    def invoke(self, *arguments: Any, **options: Any) -> Any:
        level = logging.getLogger("kbo").level
        try:
            return super().invoke(*arguments, **options)
        finally:
            logging.getLogger("kbo").setLevel(level)


def kbo(*arguments: Any, code: int = 0) -> SimpleNamespace:
    """Run ``kbo *arguments`` as a person does, errors included; it must end with this code. The log is pytest's."""
    return ended(main, "kbo", arguments, code)


def experiment(module: str, *arguments: Any, code: int = 0) -> SimpleNamespace:
    """Run ``python -m experiments.MODULE *arguments`` likewise."""

    def run() -> None:
        with warnings.catch_warnings(
            action="ignore", category=RuntimeWarning
        ):  # the module may be imported already
            runpy.run_module(f"experiments.{module}", run_name="__main__")

    return ended(run, module, arguments, code)


def ended(
    run: Callable[[], None], name: str, arguments: Sequence[Any], code: int
) -> SimpleNamespace:
    """Return the output of a command that runs in this process and must end with this code."""
    out, err = io.StringIO(), io.StringIO()
    logs = [logging.getLogger(name) for name in ("kbo", "experiments")]
    levels = [log.level for log in logs]
    changed = patch.multiple(sys, argv=[name, *map(str, arguments)], path=[*sys.path])
    try:
        with changed, redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as end:
            run()
    finally:
        for log, level in zip(logs, levels, strict=True):
            log.setLevel(level)
    assert end.value.code == code, out.getvalue() + err.getvalue()
    return SimpleNamespace(stdout=out.getvalue(), stderr=err.getvalue())
