"""Confidence bounds of an unknown function, from the numbers of a posterior.

* ``base.py``: the interface, ``Confidence``, and bounds of one width, ``WidthConfidence``
* ``fixed_width.py``: multiples of the standard deviation, without a guarantee
* ``rounding.py``: how bounds account for rounding errors
* ``conclusions.py``: optimality gaps, and points that keep a limit, from any bound

For functions of known norm

* ``self_normalized.py``: ``SubGaussian``, the base; AY-GP-UCB, IGP-UCB, BKB and EK-UCB
* ``mixture.py``: ``MartingaleMixture``, the bounds AMM, DMM and CMM of Flynn & Reeb (2024)
* ``confidence_set.py``: its radius R and its set F, eq. 8, Lemma 4.2 and Cor. 4.3
* ``exact.py``, ``ridge_search.py``: the exact maximum over F, Theorems 4.4 and 4.5
* ``certificate.py``: certificates of the maximum, and the cone program of Theorem 4.4
* ``least_norm.py``: the least norm that fits the data, Cor. 4.3, and a test of the norm bound

For unknown norm or noise

* ``adaptive.py``: ``UnknownNorm``, and the bounds of Durand et al. (2018), Cor. 1, and AMM, DMM and
  CMM for noise of unknown level
* ``noise_level.py``, ``noise_residuals.py``, ``noise_mixture.py``: bounds of the noise level: the
  base; Durand et al. (2018), Theorem 3; from a martingale mixture
* ``energy.py``: bounds of the sum of squares of the noise

For draws of a Gaussian process, over finite sets

* ``gaussian.py``: GP-UCB, Srinivas et al. (2010), Theorem 1
* ``chaining/``: Chaining-UCB, Contal et al. (2015)

Of repeated evaluations at one point

* ``repeated.py``: their mean and their median
"""

from kbo.confidence.adaptive import (
    PRACTICAL_MULTIPLE,
    AdaptiveMixture,
    AdaptiveSelfNormalized,
    UnknownNorm,
)
from kbo.confidence.base import Confidence, WidthConfidence
from kbo.confidence.certificate import Certificate, certify, cone_program
from kbo.confidence.chaining.bound import Chaining
from kbo.confidence.conclusions import CandidateGap, Limit, candidate_gap
from kbo.confidence.confidence_set import MIXED_SCALES, squared_radius
from kbo.confidence.fixed_width import AlternatingWidth, FixedWidth
from kbo.confidence.gaussian import FiniteSet
from kbo.confidence.least_norm import norm_lower_bound, refuse_if_refuted
from kbo.confidence.mixture import MartingaleMixture
from kbo.confidence.noise_level import NoiseLevel
from kbo.confidence.noise_mixture import MixtureNoiseBounds
from kbo.confidence.noise_residuals import NoiseBounds
from kbo.confidence.self_normalized import BKB, EKUCB, ImprovedGPUCB, SelfNormalized, SubGaussian

__all__ = [
    "BKB",
    "EKUCB",
    "MIXED_SCALES",
    "PRACTICAL_MULTIPLE",
    "AdaptiveMixture",
    "AdaptiveSelfNormalized",
    "AlternatingWidth",
    "CandidateGap",
    "Certificate",
    "Chaining",
    "Confidence",
    "FiniteSet",
    "FixedWidth",
    "ImprovedGPUCB",
    "Limit",
    "MartingaleMixture",
    "MixtureNoiseBounds",
    "NoiseBounds",
    "NoiseLevel",
    "SelfNormalized",
    "SubGaussian",
    "UnknownNorm",
    "WidthConfidence",
    "candidate_gap",
    "certify",
    "cone_program",
    "norm_lower_bound",
    "refuse_if_refuted",
    "squared_radius",
]
