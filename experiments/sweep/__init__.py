"""Sweeps: cells of work, run in local processes or on Ray, resumed where they stopped."""

from kbo._base.extras import require

require("experiments", "experiments", "filelock", "pandas", "pyarrow")
