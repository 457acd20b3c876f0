"""Commands in this process, which saves the start of another one and the import of PyTorch."""

import io
import logging
import sys
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
    out, err, level = io.StringIO(), io.StringIO(), logging.getLogger("kbo").level
    changed = patch.multiple(sys, argv=["kbo", *map(str, arguments)], path=[*sys.path])
    try:
        with changed, redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as ended:
            main()
    finally:
        logging.getLogger("kbo").setLevel(level)
    assert ended.value.code == code, out.getvalue() + err.getvalue()
    return SimpleNamespace(stdout=out.getvalue(), stderr=err.getvalue())
