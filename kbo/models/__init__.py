"""BoTorch models over the regressions of kbo."""

from kbo.models.adaptive import AdaptiveRidgeGP
from kbo.models.any import PosteriorGP
from kbo.models.base import FantasyGP, PosteriorModel
from kbo.models.exact import KernelRidgeGP
from kbo.models.sketched import NystromGP
from kbo.models.streaming import StreamingGP

__all__ = ["AdaptiveRidgeGP", "FantasyGP", "KernelRidgeGP", "NystromGP", "PosteriorGP", "PosteriorModel", "StreamingGP"]
