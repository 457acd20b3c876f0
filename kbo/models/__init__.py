"""BoTorch models over the regressions of kbo."""

from kbo.models import paths  # registers with BoTorch
from kbo.models.base import FantasyGP, PosteriorModel
from kbo.models.gps import AdaptiveRidgeGP, KernelRidgeGP, NystromGP, PosteriorGP
from kbo.models.streaming import StreamingGP

__all__ = [
    "AdaptiveRidgeGP",
    "FantasyGP",
    "KernelRidgeGP",
    "NystromGP",
    "PosteriorGP",
    "PosteriorModel",
    "StreamingGP",
    "paths",
]
