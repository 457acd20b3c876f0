"""Posteriors: data -> mean, variance, log_det, quad.

* ``posterior.py``: the interface of a posterior, at one ridge, with the formulas on paper
* ``all_ridges.py``: the interface at many ridges
* ``exact/``: kernel ridge regression by a Cholesky factor
* ``sketch/``: its approximation by inducing points
* ``views/``: posteriors derived from another one: fixed points, pending points, prior mean, ridge
* ``spectral_ridges.py``: many ridges from one eigendecomposition
* ``sampling.py``: draws of functions
* ``error.py``: errors of the numbers; a test of whether k is a kernel
* ``numerics.py``: blocks of points, kernel columns, rounding
"""

from kbo.regression.all_ridges import AllRidges, Moments
from kbo.regression.error import Error, Rounding
from kbo.regression.exact.kernel_ridge import KernelRidge
from kbo.regression.numerics import clamped, warn_below_precision
from kbo.regression.posterior import (
    MOST_JOINT,
    Columns,
    LeastSquares,
    LowRankPosteriorAt,
    Posterior,
    PosteriorAt,
    PriorAt,
    Provenance,
    RidgeSchedule,
)
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
from kbo.regression.sketch.nystrom import NystromRidge
from kbo.regression.views.adaptive_ridge import AdaptiveRidge
from kbo.regression.views.fixed_points import BatchView, FixedPoints
from kbo.regression.views.hypothetical import Hypothetical
from kbo.regression.views.prior_mean import PriorMean
from kbo.regression.views.view import View

__all__ = [
    "MOST_ANCHORS",
    "MOST_JOINT",
    "AdaptiveRidge",
    "AllRidges",
    "BatchView",
    "BatchedResampling",
    "Candidate",
    "Columns",
    "Dictionary",
    "Error",
    "FixedDictionary",
    "FixedPoints",
    "Function",
    "GreedyDictionary",
    "Hypothetical",
    "KernelRidge",
    "LeastSquares",
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
    "View",
    "clamped",
    "warn_below_precision",
]
