"""Chaining bounds (``bound.py``) and the covers of finite sets on which they rest.

A cover is a set of points such that every other one is within a radius of one of them.
"""

from kbo.confidence.chaining.chain import Chain
from kbo.confidence.chaining.cover import covers, first_fit_net, greedy_cover
from kbo.confidence.chaining.metric import PosteriorMetric

__all__ = [
    "Chain",
    "PosteriorMetric",
    "covers",
    "first_fit_net",
    "greedy_cover",
]
