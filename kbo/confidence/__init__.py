"""Confidence bounds from the numbers of a posterior."""

from kbo.confidence.any_of import AnyOf
from kbo.confidence.base import Confidence, SubGaussian, WidthConfidence
from kbo.confidence.bkb import BKB, EKUCB
from kbo.confidence.chaining.bound import Chaining
from kbo.confidence.gap import Gap, optimality_gap
from kbo.confidence.gaussian import AlternatingWidth, FiniteSet, FixedWidth
from kbo.confidence.limit import Limit
from kbo.confidence.mixture.bound import MartingaleMixture
from kbo.confidence.mixture.certificate import Certificate, certify, cone_program
from kbo.confidence.mixture.radius import (
    MIXED_SCALES,
    norm_lower_bound,
    refuse_if_refuted,
    squared_radius,
)
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
    "AnyOf",
    "Certificate",
    "Chaining",
    "Confidence",
    "FiniteSet",
    "FixedWidth",
    "Gap",
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
    "certify",
    "cone_program",
    "norm_lower_bound",
    "optimality_gap",
    "refuse_if_refuted",
    "squared_radius",
]
