"""Covers of finite sets: sets of points such that every other one is within a radius of one of them."""

from kbo.confidence.chaining.chain import Chain
from kbo.confidence.chaining.greedy import covers, first_fit_net, greedy_cover
from kbo.confidence.chaining.metric import DistanceMatrix, Metric, PosteriorMetric

__all__ = [
    "Chain",
    "DistanceMatrix",
    "Metric",
    "PosteriorMetric",
    "covers",
    "first_fit_net",
    "greedy_cover",
]
