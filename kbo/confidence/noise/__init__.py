"""Unknown noise: bounds of the noise level, and the confidence bounds that use them.

``residuals.py`` (Durand et al. 2018) and ``mixture.py`` (Flynn & Reeb 2024) bound the noise level,
with ``level.py`` as common part, and ``adaptive.py`` bounds the function. The sum of squares of the
noise is bounded in ``kbo.confidence.energy``.
"""
