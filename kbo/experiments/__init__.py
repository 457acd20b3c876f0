"""Experiments of ``kbo run``, ``kbo reproduce`` and ``kbo bench``.

``papers`` has one file per paper, ``compare`` is ``kbo run``, ``tuning`` compares tuners and ``bench`` measures speed.
They share ``sweep`` (cells of work and the engines that run them), ``bandits`` (bandit runs as cells) and ``draw``.
"""

from kbo.extras import require

require("kbo.experiments", "cli", "pandas", "pyarrow")
