"""mean, variance, log_det, quad -> upper and lower bounds: the confidence of posterior x confidence x rule."""

from kbo.confidence import widths
from kbo.confidence.adaptive import AdaptiveMixture, AdaptiveSelfNormalized
from kbo.confidence.base import Confidence, WidthConfidence
from kbo.confidence.chaining import Chaining
from kbo.confidence.cone import Certificate, certify, cone_program
from kbo.confidence.gap import Gap, optimality_gap
from kbo.confidence.mixture import MartingaleMixture
from kbo.confidence.noise import NoiseBounds
from kbo.confidence.prior import AlternatingWidth, FiniteSet, FixedWidth, WangDeFreitas
from kbo.confidence.radius import norm_lower_bound, refuse_if_refuted, squared_radius
from kbo.confidence.self_normalized import ImprovedGPUCB, SelfNormalized
from kbo.confidence.sketching import BKB, EKUCB, KUCB
from kbo.confidence.unknown_norm import PRACTICAL_MULTIPLE, UnknownNorm

__all__ = [
    "BKB",
    "EKUCB",
    "KUCB",
    "PRACTICAL_MULTIPLE",
    "AdaptiveMixture",
    "AdaptiveSelfNormalized",
    "AlternatingWidth",
    "Certificate",
    "Chaining",
    "Confidence",
    "FiniteSet",
    "FixedWidth",
    "Gap",
    "ImprovedGPUCB",
    "MartingaleMixture",
    "NoiseBounds",
    "SelfNormalized",
    "UnknownNorm",
    "WangDeFreitas",
    "WidthConfidence",
    "certify",
    "cone_program",
    "norm_lower_bound",
    "optimality_gap",
    "refuse_if_refuted",
    "squared_radius",
    "widths",
]
