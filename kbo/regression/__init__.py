"""data -> mean, variance, log_det, quad: the posterior of kbo's one idea, posterior x confidence x rule."""

from kbo.regression.adaptive import AdaptiveRidge
from kbo.regression.base import Regression, RidgeSchedule
from kbo.regression.dictionaries import (
    BatchedResampling,
    FixedDictionary,
    GreedyDictionary,
    LeverageResampling,
    OnlineRowSampling,
)
from kbo.regression.dictionary import MOST_ANCHORS, Dictionary, Newcomer
from kbo.regression.draws import MOST_JOINT, centred_draws
from kbo.regression.exact import KernelRidge
from kbo.regression.frozen import FrozenMean
from kbo.regression.hypothetical import Hypothetical
from kbo.regression.path import Moments, RidgePath
from kbo.regression.sample_path import SamplePath, draw_path
from kbo.regression.sketched import NystromRidge
from kbo.regression.tracked import Tracked
from kbo.regression.tracked_sketch import TrackedSketch, track

__all__ = [
    "MOST_ANCHORS",
    "MOST_JOINT",
    "AdaptiveRidge",
    "BatchedResampling",
    "Dictionary",
    "FixedDictionary",
    "FrozenMean",
    "GreedyDictionary",
    "Hypothetical",
    "KernelRidge",
    "LeverageResampling",
    "Moments",
    "Newcomer",
    "NystromRidge",
    "OnlineRowSampling",
    "Regression",
    "RidgePath",
    "RidgeSchedule",
    "SamplePath",
    "Tracked",
    "TrackedSketch",
    "centred_draws",
    "draw_path",
    "track",
]
