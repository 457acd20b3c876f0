"""Public names and their modules, from which ``__init__.py`` imports them when they are first used."""

from .any_posterior import AdaptiveRidgeGP as AdaptiveRidgeGP
from .any_posterior import PosteriorGP as PosteriorGP
from .base import FantasyGP as FantasyGP
from .base import PosteriorModel as PosteriorModel
from .kernel_ridge import KernelRidgeGP as KernelRidgeGP
from .nystrom import NystromGP as NystromGP
from .streaming import StreamingGP as StreamingGP
