"""Random proofs over spaces, each compared with the truth at legal params.

``python -m experiments.guarantees.proofs 2000 500`` makes 2000 proofs and 500 certificates.

A space has one to three parameters of any kind with any options, and perhaps a linear constraint and a quantity with a
limit. A proof is compared with the truth at params as a user writes them, at all params if the space is small and
finite. They are encoded by ``Space.units`` alone.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from gpytorch.kernels import (
    AdditiveKernel,
    Kernel,
    MaternKernel,
    ProductKernel,
    RBFKernel,
    ScaleKernel,
)
from torch import Tensor

import kbo
from kbo.confidence import MartingaleMixture, SelfNormalized
from kbo.confidence.base import Confidence
from kbo.kernels import DenseKernel, freeze
from kbo.optimize.insight.gap.branch_and_bound import BoundedScore, Proof, bound_maximum
from kbo.optimize.insight.gap.cells import CellBound
from kbo.optimize.surrogates.surrogate import Bound
from kbo.regression import KernelRidge

NORM = 2.0
"""Norm of the functions, and the norm bound."""

MOST_LISTED = 3000
"""Largest number of points of a finite space at which all are compared."""

WITNESSES = 100
"""Number of points at which a proof must give the reason why the function is below its bound."""

N_RANDOM = 1500
"""Number of random params that are compared in other spaces."""

KINDS: dict[str, Callable[[random.Random], Any]] = {
    "real": lambda r: kbo.Float(-1.0, r.uniform(0.0, 5.0)),
    "real, log": lambda r: kbo.Float(10.0 ** r.uniform(-9, -1), 1.0, log=True),
    "real, steps": lambda r: kbo.Float(0.0, 0.1 * r.randint(1, 9), step=0.1),
    "real, 10^6 steps": lambda r: kbo.Float(-0.5, 0.5, step=1e-6),
    "whole": lambda r: kbo.Int(-2, r.randint(-1, 9)),
    "whole, log": lambda r: kbo.Int(r.choice([1, 1, 1, 2, 5]), r.randint(6, 20), log=True),
    "whole, log, few": lambda r: kbo.Int(1, r.randint(2, 6), log=True),
    "whole, log, 10^6": lambda r: kbo.Int(1, 10 ** r.randint(2, 6), log=True),
    "whole, steps": lambda r: kbo.Int(-3, -3 + 4 * r.randint(1, 5), step=4),
    "whole, 10^6": lambda r: kbo.Int(0, 10**6 - 1),
    "whole, huge": lambda r: kbo.Int(-(2**50), 2**50),
    "two values": lambda r: r.choice(
        [kbo.Int(7, 8), kbo.Int(1, 2, log=True), kbo.Float(0, 1, step=1)]
    ),
    "choice": lambda r: kbo.Choice(["a", "b", "c", "d"][: r.randint(2, 4)]),
    "choice of numbers": lambda r: kbo.Choice([4, 1.5, -1][: r.randint(2, 3)]),
    "bool": lambda r: kbo.Choice([False, True]),
    "ordinal": lambda r: kbo.Ordinal(["low", "middle", "high"]),
    "ordinal of numbers": lambda r: kbo.Ordinal(r.sample([1, 2, 4, 8, 16], r.randint(2, 5))),
    "fixed": lambda r: kbo.Fixed(3),
}
"""Functions by kind that draw a random parameter with random options."""

WITHOUT_NUMBERS = ("choice", "ordinal")
"""Kinds whose values may be no numbers, so that they are in no linear constraint."""


def some_value(parameter: Any, rng: random.Random) -> Any:
    """Return a value of a parameter: often one of the first or last options, or an end."""
    if isinstance(parameter, kbo.Fixed):
        return parameter.constant
    if parameter.options:
        last = len(parameter.options) - 1
        ends = [0, last, min(1, last), max(last - 1, 0)]
        position = rng.choice([*ends, rng.randint(0, last), rng.randint(0, last)])
        return parameter.options[position]
    low = parameter.low
    high = parameter.high
    u = rng.choice([0.0, 1.0, *(rng.random() for _ in range(8))])
    if parameter.log:
        value = low * (high / low) ** u
    else:
        value = low + u * (high - low)
    return min(max(value, low), high)


def holds(limits: list[Any], params: dict[str, Any]) -> bool:
    """Return whether params satisfy linear constraints, computed from the values alone."""
    for limit in limits:
        total = sum(weight * float(params[name]) for name, weight in limit.weights.items())
        if total > limit.upper:
            return False
    return True


@dataclass
class Case:
    """A space, its legal points as features [n D], and two functions of norm ``NORM`` there.

    Attributes:
        space: The space.
        features: Features of legal params.
        units: The same points in the unit cube.
        values: The objective at them [n].
        slack: Another function at them [n].
        bound, slack_bound: The bounds of both.
        is_consistent: Whether the upper bounds change no faster than the norm allows; then no proof can be below them.
    """

    space: kbo.Space
    features: Tensor
    units: Tensor
    values: Tensor
    slack: Tensor
    bound: Bound
    slack_bound: Bound
    is_consistent: bool

    @functools.cached_property
    def upper(self) -> Tensor:
        """Upper bounds of the objective at the points [n]."""
        return self.bound.confidence.upper(self.bound.posterior, self.features)

    @functools.cached_property
    def slack_upper(self) -> Tensor:
        """Upper bounds of the other function at the points [n]."""
        return self.slack_bound.confidence.upper(self.slack_bound.posterior, self.features)


class Cone(Confidence):
    """The bounds ``f(x_i) ± B |x - x_i|_k``, which follow from the norm and from each value without noise alone.

    Args:
        kernel: The kernel.
        X: The points [m D].
        y: The values of the function there [m].
    """

    guarantee = "certain"
    delta = 1e-9

    def __init__(self, kernel: DenseKernel, X: Tensor, y: Tensor) -> None:
        self._kernel = kernel
        self._X = X
        self._y = y

    def interval(self, state: Any, X: Tensor) -> tuple[Tensor, Tensor]:
        constant = float(self._kernel.constant or 0.0)
        distance = (2 * (constant - self._kernel(X, self._X)).clamp_min(0.0)).sqrt()
        lower = (self._y - NORM * distance).amax(-1)
        upper = (self._y + NORM * distance).amin(-1)
        most = NORM * constant**0.5
        return lower.clamp_min(-most), upper.clamp_max(most)


def random_kernel(columns: int, rng: random.Random) -> Kernel:
    """Return a random kernel of a kind for which proofs exist."""
    lengths = torch.tensor(
        [[rng.choice([0.2, 0.5, 1.0]) * rng.uniform(0.5, 2.0) for _ in range(columns)]],
        dtype=torch.float64,
    )
    first = MaternKernel(nu=rng.choice([0.5, 1.5, 2.5]), ard_num_dims=columns).double()
    first.lengthscale = lengths
    second = RBFKernel(ard_num_dims=columns).double()
    second.lengthscale = lengths.flip(1)
    kernels = [
        first,
        second,
        ScaleKernel(second).double(),
        ProductKernel(first, second),
        AdditiveKernel(first, second),
    ]
    return rng.choice(kernels).requires_grad_(False)


def random_space(rng: random.Random) -> tuple[kbo.Space, list[kbo.Linear], list[str]]:
    """Return a space, its linear constraints and the kinds of its parameters."""
    while True:
        n = rng.choice([1, 1, 1, 2, 2, 3])
        kinds = rng.choices(list(KINDS), k=n)
        parameters = {f"p{i}": KINDS[kind](rng) for i, kind in enumerate(kinds)}
        pairs = zip(parameters, kinds, strict=True)
        numbers = [name for name, kind in pairs if kind not in WITHOUT_NUMBERS]
        limits = []
        if numbers and rng.random() < 0.4:
            limits = [random_limit(parameters, numbers, rng)]
        try:
            return kbo.Space(parameters, limits), limits, kinds
        except kbo.InvalidInput:  # only fixed parameters, or a limit without room
            continue


def random_limit(parameters: dict[str, Any], numbers: list[str], rng: random.Random) -> kbo.Linear:
    """Return a linear constraint on numeric parameters that some of 40 random points satisfy."""
    points = [some_params(parameters, rng) for _ in range(40)]
    weights = {}
    for name in numbers:
        size = max(abs(float(point[name])) for point in points) or 1.0
        weights[name] = rng.choice([-1.0, 1.0]) * rng.uniform(0.2, 1.0) / size

    def total(point: dict[str, Any]) -> float:
        return sum(weights[name] * float(point[name]) for name in numbers)

    totals = sorted(map(total, points))
    return kbo.Linear(weights, upper=totals[rng.randint(8, 36)] + 1e-9)


def some_params(parameters: Mapping[str, Any], rng: random.Random) -> dict[str, Any]:
    """Return a value of each parameter."""
    return {name: some_value(parameter, rng) for name, parameter in parameters.items()}


def legal_params(
    space: kbo.Space, limits: list[kbo.Linear], rng: random.Random
) -> list[dict[str, Any]]:
    """Return all params of a small finite space that satisfy its constraints, or random ones."""
    parameters = space.parameters
    n_points = math.prod(len(parameter.options) for parameter in parameters.values())
    if 0 < n_points <= MOST_LISTED:
        rows = itertools.product(*(parameter.options for parameter in parameters.values()))
        points = [dict(zip(parameters, row, strict=True)) for row in rows]
    else:
        points = [some_params(parameters, rng) for _ in range(N_RANDOM)]
    return [point for point in points if holds(limits, point)]


def space_with_points(
    rng: random.Random,
) -> tuple[kbo.Space, list[str], list[dict[str, Any]]]:
    """Return a space, the kinds of its parameters, and two or more of its legal params."""
    while True:
        space, limits, kinds = random_space(rng)
        points = legal_params(space, limits, rng)
        if len(points) >= 2:
            return space, kinds, points


def random_function(kernel: DenseKernel, features: Tensor, generator: torch.Generator) -> Tensor:
    """Return the values [n] at features [n D] of a function of norm ``NORM`` with four centres among them."""
    centres = features[torch.randint(len(features), (4,), generator=generator)]
    weights = torch.randn(4, generator=generator, dtype=torch.float64)
    norm = float((weights @ kernel(centres, centres) @ weights).sqrt())
    return kernel(features, centres) @ weights * (NORM / max(norm, 1e-9))


def rows_with_data(space: kbo.Space, points: list[dict[str, Any]], rng: random.Random) -> Tensor:
    """Return the indices of the points that may have data: all points except those with one value of one parameter.

    The bounds are largest at this value, so a proof that leaves it out is wrong.
    """
    name = rng.choice([name for name, p in space.parameters.items() if p.columns])
    left_out = rng.choice(sorted({point[name] for point in points}, key=str))
    rows = [i for i, point in enumerate(points) if point[name] != left_out]
    return torch.tensor(rows or [0])


def random_case(seed: int) -> tuple[Case, list[str]]:
    """Return a case and the kinds of its parameters."""
    rng = random.Random(seed)
    space, kinds, points = space_with_points(rng)
    units = space.units(points)
    features = space.features(units)
    kernel = random_kernel(space.columns, rng)
    dense = freeze(kernel, features)
    generator = torch.Generator().manual_seed(seed)
    is_consistent = rng.random() < 0.7
    is_zero = is_consistent and rng.random() < 0.7  # bounds are then large only far from the data
    family = rng.choice([MartingaleMixture, SelfNormalized])
    observed = rows_with_data(space, points, rng)

    def bound(values: Tensor) -> Bound:
        n = 1000
        if not is_zero:
            n = rng.choice([1, 5, 20, 80])
        rows = observed[torch.randperm(len(observed), generator=generator)[:n]]
        noise = torch.randn(len(rows), generator=generator, dtype=torch.float64)
        state = KernelRidge(kernel, 0.01)
        state.update(features[rows[:80]], (values[rows] + 0.1 * noise)[:80])
        confidence: Confidence = family(0.1, NORM, 0.01)
        if is_consistent:
            confidence = Cone(dense, features[rows], values[rows])
        return Bound(confidence, state, NORM)

    values = random_function(dense, features, generator)
    slack = random_function(dense, features, generator)
    if is_zero:
        values = torch.zeros_like(values)
        slack = torch.zeros_like(slack)
    case = Case(space, features, units, values, slack, bound(values), bound(slack), is_consistent)
    return case, kinds


def largest_of(values: Tensor) -> float:
    """Return the largest of values [n]; minus infinity if there are none."""
    return float(values.max()) if len(values) else -torch.inf


def proof_of(
    case: Case, bound: CellBound, evaluations: int, slacks: Sequence[CellBound] = (), **options: Any
) -> Proof:
    """Return a proof of the largest upper bound on the space of a case; other arguments as for ``bound_maximum``."""
    problem = BoundedScore([bound], case.space, slacks)
    proof = bound_maximum(problem, evaluations, witnesses=case.units[:WITNESSES], **options)
    assert proof is not None
    return proof


def checked_proof(case: Case, seed: int) -> str:
    """Return a fault of a proof of the largest value, with or without a limit; empty if there is no fault."""
    rng = random.Random(seed)
    limits = []
    keeps_limit = torch.ones(len(case.values), dtype=torch.bool)
    may_keep_limit = keeps_limit
    if rng.random() < 0.4:
        level = float(case.slack.quantile(rng.uniform(0.3, 0.9)))
        limits = [CellBound([case.slack_bound], level)]
        keeps_limit = case.slack >= level
        may_keep_limit = case.slack_upper >= level + 1e-6
    lower = float(case.values.quantile(0.9))
    evaluations = rng.choice([1, 30, 300, 3000])
    objective = CellBound([case.bound])
    proved = proof_of(case, objective, evaluations, limits, lower=lower).largest
    bounds_hold = bool((case.upper >= case.values).all() & (case.slack_upper >= case.slack).all())
    largest = largest_of(case.values[keeps_limit])
    if bounds_hold and largest > proved + 1e-9:
        return f"proved {proved:.6g}, the function reaches {largest:.6g}"
    largest_bound = largest_of(case.upper[may_keep_limit])
    if case.is_consistent and largest_bound > proved + 1e-6:
        return f"proved {proved:.6g}, the bounds reach {largest_bound:.6g}"
    return ""


def checked_certificate(case: Case, seed: int) -> str | None:
    """Return a fault of a certificate that no point keeps a limit; empty if it is right, None without a certificate."""
    rng = random.Random(seed)
    largest = float(case.slack.max())
    largest_bound = float(case.slack_upper.max())
    if case.is_consistent:
        level = largest_bound + rng.uniform(-0.05, 0.3)
    else:
        prior_variance = case.slack_bound.posterior.prior_variance(case.features)
        level = min(largest_bound, NORM * float(prior_variance[0]) ** 0.5) + rng.uniform(-0.5, 0.1)
    proof = proof_of(case, CellBound([case.slack_bound], level), 2000, until=0.0)
    if proof.largest >= 0:
        return None
    bounds_hold = bool((case.slack_upper >= case.slack).all())
    if bounds_hold and largest >= level:
        return f"no point above {level:.6g} is certified, the function reaches {largest:.6g}"
    if case.is_consistent and largest_bound >= level + 1e-6:
        return f"no point above {level:.6g} is certified, the bounds reach {largest_bound:.6g}"
    return ""


def faults(proofs: int, certificates: int, start: int = 0) -> Iterator[tuple[str, list[str], str]]:
    """Yield for each proof and certificate its name, the kinds of parameters, and the fault or an empty text."""
    checked = {"proof": checked_proof, "certificate": checked_certificate}
    left = {"proof": proofs, "certificate": certificates}
    seed = start
    while any(left.values()):
        case, kinds = random_case(seed)
        for name, check in checked.items():
            if left[name] == 0:
                continue
            fault = check(case, seed)
            if fault is not None:
                left[name] -= 1
                yield name, kinds, fault
        seed += 1


def main(proofs: int, certificates: int) -> int:
    """Print the numbers of proofs, certificates and faults; return the number of faults."""
    counts: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    kind_counts: Counter[str] = Counter()
    for name, kinds, fault in faults(proofs, certificates):
        counts[name] += 1
        kind_counts.update(kinds)
        if fault:
            wrong[name] += 1
            print(f"{name} over {', '.join(kinds)}: {fault}")
    totals = [f"{counts[name]} {name}s, {wrong[name]} wrong" for name in ("proof", "certificate")]
    print("; ".join(totals))
    print("; ".join(f"{kind}: {count}" for kind, count in sorted(kind_counts.items())))
    return wrong.total()


if __name__ == "__main__":
    n_faults = main(int(sys.argv[1]), int(sys.argv[2]))
    sys.exit(min(n_faults, 1))
