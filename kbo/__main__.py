"""The command ``kbo``, also as ``python -m kbo``."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from kbo._base.lazy import Lazy
from kbo._base.streams import lasting_output
from kbo.errors import KboError

if TYPE_CHECKING:
    from kbo._base import terminal
    from kbo.cli import app as cli
else:
    cli = Lazy("kbo.cli.app")  # which needs an extra: its message is shown without a traceback
    terminal = Lazy("kbo._base.terminal")


def main() -> None:
    """Run the command line."""
    run(_command_line)


def _command_line() -> None:
    cli.app()


def run(command: Callable[[], object]) -> None:
    """Run a command and end the process; errors of kbo are shown without a traceback.

    The exit code is 1, and a message on standard error says so, if the output could not be written.
    That its reader has ended, as `head`, changes neither.
    """
    with lasting_output() as output:
        code = _exit_code(command)
        if output is not None:
            output.flush()
            if output.lost and not code:
                code = 1
    raise SystemExit(code)


def _exit_code(command: Callable[[], object]) -> int | str | None:
    """Run a command, and return its exit code."""
    try:
        command()
    except SystemExit as end:
        return end.code
    except KboError as error:
        print(terminal.printable(f"error: {error}"), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    main()
