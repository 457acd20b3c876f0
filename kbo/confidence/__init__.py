"""Confidence bounds of an unknown function, from the numbers of a posterior.

* ``base.py``: the interface, ``Confidence``, and bounds of one width, ``WidthConfidence``
* ``self_normalized.py``: AY-GP-UCB and IGP-UCB, for a known norm
* ``mixture/``: ``SubGaussian``, the base of bounds for a known norm; AMM, DMM, CMM; the least norm
* ``noise/``: bounds of an unknown noise level, and bounds of the function that use them
* ``gaussian.py``, ``chaining/``: for draws of a Gaussian process, over finite sets
* ``bkb.py``: the widths of BKB and EK-UCB, for sketches
* ``fixed_width.py``: multiples of the standard deviation, without a guarantee
* ``delegated.py``: the bounds of another confidence, which is chosen from the data
* ``candidates.py``, ``limit.py``: optimality gaps, and limits on functions, from any bound
* ``unexplained.py``: a test of whether a function of the assumed norm explains the data
* ``energy.py``: bounds of the sum of squares of the noise
* ``repeated/``: mean and median of repeated evaluations
* ``rounding.py``: how bounds account for rounding errors
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
