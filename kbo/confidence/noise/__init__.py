"""Unknown noise: bounds of the noise level, and the confidence bounds that use them.

``residuals.py`` (Durand et al. 2018) and ``mixture.py`` (Flynn & Reeb 2024) bound the noise level,
``adaptive.py`` the function. ``confidence/energy.py`` bounds the sum of squares of the noise.
"""
