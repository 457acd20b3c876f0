"""Posteriors: data -> mean, variance, log_det, quad.

``posterior.py`` is the interface at one ridge, with the formulas on paper, and ``all_ridges.py`` at
many ridges. ``exact/`` is kernel ridge regression by a Cholesky factor; ``sketch/`` approximates it
by inducing points; ``views/`` change a few numbers of another posterior (fixed points, hypothetical
observations, a prior mean, a moving ridge). What these share: ``resolvent.py`` and
``spectral_ridges.py`` (many ridges by one eigendecomposition), ``sampling.py`` (draws),
``error.py``, ``definiteness.py`` and ``provenance.py`` (what a bound has to know of the numbers and
of the data), ``numerics.py``.
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
    RidgeSchedule,
)
from kbo.regression.provenance import Provenance
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
from kbo.regression.views.batch import BatchView
from kbo.regression.views.fixed_points import FixedPoints
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
