"""Faults on purpose, and what must be true after them: ``make test-faults``, with ``N=100`` a hundred times as many."""

import os

REPEATS = int(os.environ.get("FAULTS", "1"))
