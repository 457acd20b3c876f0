"""data -> mean, variance, log_det, quad: the posterior of kbo's one idea, posterior x confidence x rule."""

from kbo.regression.exact.state import KernelRidge
from kbo.regression.numerics import clamped, warn_below_precision
from kbo.regression.posterior import (
    MOST_JOINT,
    AllRidges,
    Answers,
    Followed,
    LowRankAnswers,
    Posterior,
    PriorAnswers,
    RidgeSchedule,
)
from kbo.regression.provenance import Error, Provenance
from kbo.regression.ridge_path import Moments, RidgePath
from kbo.regression.sampling import Function, SamplePath, centred_draws, draw_path
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
from kbo.regression.views.tracked import Tracked, track
from kbo.regression.views.view import View

__all__ = [
    "MOST_ANCHORS",
    "MOST_JOINT",
    "AdaptiveRidge",
    "AllRidges",
    "Answers",
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
    "LowRankAnswers",
    "Moments",
    "NystromRidge",
    "OnlineRowSampling",
    "Posterior",
    "PriorAnswers",
    "Provenance",
    "RidgePath",
    "RidgeSchedule",
    "SamplePath",
    "Tracked",
    "View",
    "centred_draws",
    "clamped",
    "draw_path",
    "track",
    "warn_below_precision",
]
