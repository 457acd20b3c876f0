"""Sweeps: independent cells of work, in local processes or on Ray, which can be resumed.

``cells``: a cell, and the folder of finished cells. ``runner``: a sweep of cells. ``threads``: threads of PyTorch.
"""

from kbo._base.extras import require

require("experiments", "experiments", "filelock", "pandas", "pyarrow")
