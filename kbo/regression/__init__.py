"""data -> mean, variance, log_det, quad: the posterior of kbo's one idea, posterior x confidence x rule."""

from kbo.regression.all_ridges import AllRidges, Moments
from kbo.regression.exact import KernelRidge
from kbo.regression.numerics import clamped, warn_below_precision
from kbo.regression.posterior import (
    MOST_JOINT,
    Followed,
    LowRankPosteriorAt,
    Posterior,
    PosteriorAt,
    PriorAt,
    RidgeSchedule,
)
from kbo.regression.provenance import Error, Provenance, Rounding
from kbo.regression.sampling import Function, SamplePath
from kbo.regression.sketch.dictionary import (
    MOST_ANCHORS,
    Candidate,
    Dictionary,
    FixedDictionary,
    GreedyDictionary,
)
from kbo.regression.sketch.leverage import (
    BatchedResampling,
    LeverageResampling,
    OnlineRowSampling,
)
from kbo.regression.sketch.state import NystromRidge
from kbo.regression.views.adaptive_ridge import AdaptiveRidge
from kbo.regression.views.batch import BatchView
from kbo.regression.views.hypothetical import Hypothetical
from kbo.regression.views.prior_mean import PriorMean
from kbo.regression.views.tracked import Tracked
from kbo.regression.views.view import View

__all__ = [
    "MOST_ANCHORS",
    "MOST_JOINT",
    "AdaptiveRidge",
    "AllRidges",
    "BatchView",
    "BatchedResampling",
    "Candidate",
    "Dictionary",
    "Error",
    "FixedDictionary",
    "Followed",
    "Function",
    "GreedyDictionary",
    "Hypothetical",
    "KernelRidge",
    "LeverageResampling",
    "LowRankPosteriorAt",
    "Moments",
    "NystromRidge",
    "OnlineRowSampling",
    "Posterior",
    "PosteriorAt",
    "PriorAt",
    "PriorMean",
    "Provenance",
    "RidgeSchedule",
    "Rounding",
    "SamplePath",
    "Tracked",
    "View",
    "clamped",
    "warn_below_precision",
]
