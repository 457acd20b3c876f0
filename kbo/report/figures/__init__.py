"""Figures of a tuning run, each drawn on given axes.

``axes``: empty figures and limits of axes. ``trials``: values, measurements and learning curves.
``slices``: the objective along one or two parameters. ``importance``: shares of the parameters. ``front``: several
objectives.
"""

from kbo._base.extras import require

require("kbo.report", "cli", "matplotlib")
