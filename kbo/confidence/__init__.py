"""Confidence bounds of an unknown function, from the numbers of a posterior.

* ``base.py``: the interface of a bound, ``Confidence``, and bounds of one width, ``WidthConfidence``
* ``self_normalized.py``: AY-GP-UCB and IGP-UCB, for a known norm
* ``mixture/``: ``SubGaussian``, bounds of functions of bounded norm; AMM, DMM, CMM; the least norm
* ``noise/``: the noise level, and bounds while it is unknown
* ``chaining/``, ``gaussian.py``: under a Gaussian-process prior, over finite sets
* ``bkb.py``: the widths of BKB and EK-UCB, for sketches
* ``fixed_width.py``: multiples of the standard deviation, without a guarantee
* ``candidates.py``, ``limit.py``: optimality gaps and limits, from any bound
* ``unexplained.py``: values that no function of the norm explains
* ``energy.py``: bounds of the sum of squares of the noise
* ``repeated/``: means and medians of repeated evaluations
* ``delegated.py``: bounds of another confidence, which the data choose
* ``rounding.py``: what rounding may do to bounds
"""

from kbo.confidence.base import Confidence, WidthConfidence
from kbo.confidence.bkb import BKB, EKUCB
from kbo.confidence.candidates import CandidateGap, candidate_gap
from kbo.confidence.chaining.bound import Chaining
from kbo.confidence.fixed_width import AlternatingWidth, FixedWidth
from kbo.confidence.gaussian import FiniteSet
from kbo.confidence.limit import Limit
from kbo.confidence.mixture.bound import MartingaleMixture
from kbo.confidence.mixture.certificate import Certificate, certify, cone_program
from kbo.confidence.mixture.least_norm import norm_lower_bound, refuse_if_refuted
from kbo.confidence.mixture.radius import MIXED_SCALES, squared_radius
from kbo.confidence.mixture.sub_gaussian import SubGaussian
from kbo.confidence.mixture.unknown_norm import PRACTICAL_MULTIPLE, UnknownNorm
from kbo.confidence.noise.adaptive import AdaptiveMixture, AdaptiveSelfNormalized
from kbo.confidence.noise.level import NoiseLevel
from kbo.confidence.noise.mixture import MixtureNoiseBounds
from kbo.confidence.noise.residuals import NoiseBounds
from kbo.confidence.self_normalized import ImprovedGPUCB, SelfNormalized

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
