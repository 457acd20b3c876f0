"""Commands in this process."""

import logging
from typing import Any

import typer.testing


class CliRunner(typer.testing.CliRunner):
    """Runs commands, and puts back the level of kbo's log that they have set for the process."""

    def invoke(self, *arguments: Any, **options: Any) -> Any:
        level = logging.getLogger("kbo").level
        try:
            return super().invoke(*arguments, **options)
        finally:
            logging.getLogger("kbo").setLevel(level)
