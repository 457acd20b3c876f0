"""Optional libraries, and the extras of kbo that install them."""

from importlib.util import find_spec

from kbo.errors import MissingExtra


def require(user: str, extra: str, *libraries: str) -> None:
    """Check that the libraries of an extra are installed, without importing them.

    Args:
        user: What needs them, for the message.
        extra: The extra.
        libraries: Names of modules.

    Raises:
        MissingExtra: Some are not installed.
    """
    missing = [name for name in libraries if find_spec(name) is None]
    if missing:
        raise MissingExtra(f"{user} needs {', '.join(missing)}: pip install 'kbo[{extra}]'")
