"""``python -m kbo.cli``."""

from kbo.cli import main

main()
