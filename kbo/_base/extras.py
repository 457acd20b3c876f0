"""A check that an optional library is installed; the message names the extra of kbo that installs it."""

from importlib.util import find_spec

from kbo.errors import MissingExtra


def require(user: str, extra: str, *libraries: str) -> None:
    """Check that the libraries of an extra are installed, without importing them.

    Args:
        user: The part of kbo that needs them, for the message.
        extra: The name of the extra.
        libraries: The names of the modules.

    Raises:
        MissingExtra: A library is not installed.
    """
    missing = [name for name in libraries if find_spec(name) is None]
    if missing:
        raise MissingExtra(f"{user} needs {', '.join(missing)}: pip install 'kbo[{extra}]'")
