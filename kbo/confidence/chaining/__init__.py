"""Chaining bounds, and the covers of finite sets on which they rest.

A cover is a subset of points such that every point of the set is within a radius of one of them.

* ``metric.py``: the distance of two points under a posterior
* ``cover.py``: covers, also of very large sets
* ``chain.py``: covers of decreasing radii, and their reuse for more data
* ``bonus.py``: the bonus of Algorithm 1, and the proved one
* ``bound.py``: ``Chaining``, the confidence
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
