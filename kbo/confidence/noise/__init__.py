"""Unknown noise: bounds of the noise level, and the confidence bounds that use them.

``energy.py`` bounds the sum of squares of the noise, ``residuals.py`` (Durand et al. 2018) and
``mixture.py`` (Flynn & Reeb 2024) the noise level, ``adaptive.py`` the function.
"""
