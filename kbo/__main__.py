"""The command ``kbo``, also as ``python -m kbo``."""

import sys
from collections.abc import Callable

from kbo.errors import KboError


def main() -> None:
    """Run the command line."""
    run(_command_line)


def _command_line() -> None:
    from kbo.cli import app

    app()


def run(command: Callable[[], object]) -> None:
    """Run a command and end the process; errors of kbo are shown without a traceback."""
    try:
        command()
    except KboError as error:
        from kbo.terminal import printable

        print(printable(f"error: {error}"), file=sys.stderr)
        raise SystemExit(1) from error
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
