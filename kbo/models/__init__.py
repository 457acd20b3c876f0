"""BoTorch models over the regressions of kbo."""

from kbo.models.base import FantasyGP, RegressionModel
from kbo.models.exact import KernelRidgeGP

__all__ = ["FantasyGP", "KernelRidgeGP", "RegressionModel"]
