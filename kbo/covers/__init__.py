"""Covers of finite sets: sets of points such that every other one is within a radius of one of them."""

from kbo.covers.chain import Chain
from kbo.covers.greedy import covers, first_fit_net, greedy_cover
from kbo.covers.metric import DistanceMatrix, Metric, PosteriorMetric

__all__ = [
    "Chain",
    "DistanceMatrix",
    "Metric",
    "PosteriorMetric",
    "covers",
    "first_fit_net",
    "greedy_cover",
]
