"""Drawing, of reports and of experiments."""

from kbo.extras import require

require("kbo.draw", "cli", "matplotlib")
