"""Unknown noise: bounds of the noise level, and the confidence bounds that use them.

* ``level.py``: ``NoiseLevel``, the base of bounds of the noise level
* ``residuals.py``: ``NoiseBounds``, from the residuals of one fit (Durand et al. 2018)
* ``mixture.py``: ``MixtureNoiseBounds``, from a martingale mixture (Flynn & Reeb 2024)
* ``adaptive.py``: bounds of the function that use them

They use bounds of the sum of squares of the noise, ``kbo.confidence.energy``.
"""
