"""data -> mean, variance, log_det, quad: the posterior of kbo's one idea, posterior x confidence x rule."""

from kbo.regression.base import Regression
from kbo.regression.dictionaries import FixedDictionary
from kbo.regression.exact import KernelRidge
from kbo.regression.hypothetical import Hypothetical
from kbo.regression.path import Moments, RidgePath
from kbo.regression.sketched import NystromRidge
from kbo.regression.tracked import Tracked

__all__ = [
    "FixedDictionary",
    "Hypothetical",
    "KernelRidge",
    "Moments",
    "NystromRidge",
    "Regression",
    "RidgePath",
    "Tracked",
]
