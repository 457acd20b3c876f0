"""Random graphs as arms (Contal et al. 2015, Sec. 4), compared by their shortest paths (Borgwardt & Kriegel 2005)."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from gpytorch.kernels import Kernel, LinearKernel
from torch import Tensor

from experiments.problems.base import FixedArms, streams
from kbo._base import checks
from kbo._base.extras import require
from kbo.errors import InvalidInput

if TYPE_CHECKING:
    import networkx

_FEWEST_NODES = 5
_MOST_NODES = 19
_SPARSEST = 0.05
_DENSEST = 0.5
"""Smallest and largest number of nodes, and probability of an edge, of a random graph."""

_LENGTHS = _MOST_NODES - 1
"""Lengths of paths that are counted: a shortest path visits no node twice."""

_NORM_BOUND = 8.0


def shortest_path_features(graph: networkx.Graph[Any]) -> Tensor:
    """The numbers of shortest paths of length 1, 2, ..., 18, scaled to a unit vector [18].

    A path from every node to every other node it can reach counts; its length is its number of edges, whatever their
    weights. The inner product of two graphs counts their pairs of equally long paths, the shortest-path kernel with the
    delta kernel on lengths, normalised to 1 for a graph and itself. Different graphs may have the same features.

    Args:
        graph: A graph of networkx, directed or not, of at most 19 nodes.

    Raises:
        InvalidInput: No such graph, too many nodes, or no path at all.
    """
    networkx = _networkx()
    if not isinstance(graph, networkx.Graph):
        raise InvalidInput(
            f"graph must be a networkx.Graph or DiGraph, got {type(graph).__name__}."
        )
    if len(graph) > _MOST_NODES:
        raise InvalidInput(
            f"graph must have at most {_MOST_NODES} nodes, got {len(graph)}: features end at paths of 18 edges."
        )
    lengths = []
    for _, lengths_to in networkx.all_pairs_shortest_path_length(graph):
        lengths += [length for length in lengths_to.values() if length > 0]
    if not lengths:
        raise InvalidInput(
            "graph has no edge between different nodes, so no path to describe it by; leave it out."
        )
    counts = torch.bincount(torch.tensor(lengths, device="cpu"), minlength=_LENGTHS + 1)
    positive = counts[1:].double()
    return positive / positive.norm()


def random_graphs(count: int, seed: int) -> list[networkx.DiGraph[Any]]:
    """Directed graphs of 5 to 19 nodes, each with its own probability of an edge, between 0.05 and 0.5.

    Every graph has an edge: a graph without an edge is drawn again. A larger ``count`` only adds graphs at the end.

    Raises:
        InvalidInput: ``count`` is no whole number of at least 1.
    """
    count = checks.whole("count", count, 1, 10**6)
    return [_graph(edges) for edges in _adjacencies(count, checks.seed(seed))]


class GraphBandit(FixedArms):
    """Every arm is a random directed graph; rewards are a draw of a Gaussian process with the shortest-path kernel.

    Points are ``shortest_path_features``, so the kernel is linear, and a draw is ``<theta, x>`` with standard normal
    theta [18]. Some graphs have equal features, and so equal rewards. ``PrecomputedKernel(arms @ arms.T)`` is the same
    kernel, with row numbers as points; any kernel of graphs can be used in this form.

    ``norm_bound`` is nominal: theta is longer in about one draw of two million.

    All graphs are drawn when the first problem of a size is made (some seconds) and kept for the process.

    Args:
        n_graphs: Arms.
        noise_std: Standard deviation of the Gaussian noise.
        graph_seed: Seed of the graphs.
        seed: Seed of theta and the noise.

    Attributes:
        theta: Coordinates [18] of the function.
    """

    def __init__(
        self, n_graphs: int = 10_000, noise_std: float = 0.05, graph_seed: int = 0, seed: int = 0
    ) -> None:
        self.n_arms: int = checks.whole("n_graphs", n_graphs, 1, 10**6)
        self.noise_std: float = checks.positive("noise_std", noise_std)
        self.norm_bound = _NORM_BOUND
        graph_seed = checks.seed(graph_seed, "graph_seed")
        self._edges = _adjacencies(self.n_arms, graph_seed)
        self.fixed_arms: Tensor = _features(self.n_arms, graph_seed).clone()
        self.kernel: Kernel = LinearKernel().double().requires_grad_(False)
        self.kernel.initialize(variance=torch.ones((), dtype=torch.float64, device="cpu"))
        _, function, noise_rng = streams(seed)
        self.noise_rng: torch.Generator = noise_rng
        self.theta: Tensor = torch.randn(
            _LENGTHS, generator=function, dtype=torch.float64, device="cpu"
        )

    def graph(self, index: int) -> networkx.DiGraph[Any]:
        """The graph of an arm, a new object: changing it changes no arm."""
        return _graph(self._edges[self.checked(index)])

    def mean(self, X: Tensor) -> Tensor:
        checks.rows("X", X, self.fixed_arms, _LENGTHS)
        # Column by column: a matrix product rounds one row differently from many rows, but equal arms need equal means.
        value = torch.zeros_like(X[:, 0])
        for column, weight in zip(X.unbind(-1), self.theta, strict=True):
            value = value + weight * column
        return value


@functools.cache
def _adjacencies(count: int, seed: int) -> list[Tensor]:
    """Adjacency matrices, true where an edge goes from the row's node to the column's."""
    rng, _, _ = streams(seed)
    drawn = []
    while len(drawn) < count:
        nodes = int(torch.randint(_FEWEST_NODES, _MOST_NODES + 1, (), generator=rng, device="cpu"))
        uniform = float(torch.rand((), generator=rng, device="cpu"))
        density = _SPARSEST + (_DENSEST - _SPARSEST) * uniform
        edges = torch.rand(nodes, nodes, generator=rng, device="cpu") < density
        edges.fill_diagonal_(False)
        if bool(edges.any()):
            drawn.append(edges)
    return drawn


@functools.cache
def _features(count: int, seed: int) -> Tensor:
    """Features [count 18] of the random graphs."""
    graphs = [_graph(edges) for edges in _adjacencies(count, seed)]
    return torch.stack([shortest_path_features(graph) for graph in graphs])


def _graph(edges: Tensor) -> networkx.DiGraph[Any]:
    """The graph of an adjacency matrix [n n]."""
    graph = _networkx().DiGraph()
    graph.add_nodes_from(range(len(edges)))
    graph.add_edges_from(edges.nonzero().tolist())
    return graph


def _networkx() -> ModuleType:
    require("experiments.problems.graphs", "experiments", "networkx")
    import networkx

    return networkx
