"""BoTorch models over the regressions of kbo."""

from kbo.models.base import RegressionModel
from kbo.models.exact import KernelRidgeGP
from kbo.models.fantasy import FantasyGP

__all__ = ["FantasyGP", "KernelRidgeGP", "RegressionModel"]
