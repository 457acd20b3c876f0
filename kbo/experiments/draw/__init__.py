"""Figures and tables of experiments."""

from kbo.extras import require

require("kbo.experiments.draw", "cli", "matplotlib")
