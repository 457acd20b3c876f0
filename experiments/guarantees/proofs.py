"""Random proofs over spaces, each compared with the truth at legal params.

``python -m experiments.guarantees.proofs 2000 500`` makes so many proofs and certificates.

A space has one to three parameters of any kind, with every option of it, and perhaps a linear constraint and a quantity
with a limit. The points that a proof is compared with are params as a user writes them, all of them if the space is
small and finite, encoded by ``Space.units`` alone.
"""

from __future__ import annotations

import itertools
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
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
from kbo.optimize.insight.branch_and_bound import CellBound, bound_maximum
from kbo.optimize.surrogates.surrogate import Bound
from kbo.regression import KernelRidge

NORM = 2.0
"""Norm of the functions, and the norm bound."""

MOST_LISTED = 3000
"""Points of a finite space that are all compared."""

WITNESSES = 100
"""Points at which a proof itself is asked for the reason why the function is not as large as its bounds there."""

N_RANDOM = 1500
"""Random params that are compared in other spaces."""

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
"""Parameters of every kind with every option, drawn at random."""


def some_value(parameter: Any, rng: random.Random) -> Any:
    """Return a value of a parameter: often one of the first or last options, or an end."""
    if isinstance(parameter, kbo.Fixed):
        return parameter.constant
    if parameter.options:
        last = len(parameter.options) - 1
        position = rng.choice(
            [0, last, min(1, last), max(last - 1, 0), rng.randint(0, last), rng.randint(0, last)]
        )
        return parameter.options[position]
    u = rng.choice([0.0, 1.0, *(rng.random() for _ in range(8))])
    if parameter.log:
        return min(
            max(parameter.low * (parameter.high / parameter.low) ** u, parameter.low),
            parameter.high,
        )
    return min(
        max(parameter.low + u * (parameter.high - parameter.low), parameter.low), parameter.high
    )


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
        upper, slack_upper: Upper bounds of both at them [n].
        bound, slack_bound: The bounds.
        consistent: Whether the upper bounds change by no more than the norm allows, so that no proof can be below them.
    """

    space: kbo.Space
    features: Tensor
    units: Tensor
    values: Tensor
    slack: Tensor
    upper: Tensor
    slack_upper: Tensor
    bound: Bound
    slack_bound: Bound
    consistent: bool


class Cone(Confidence):
    """The bounds ``f(x_i) ± B |x - x_i|_k`` after values without noise: all that norm and single values say.

    Args:
        kernel: The kernel.
        X: The points [m D].
        y: The values of the function there [m].
    """

    guarantee = "certain"
    delta = 1e-9

    def __init__(self, kernel: DenseKernel, X: Tensor, y: Tensor) -> None:
        self._kernel, self._X, self._y = kernel, X, y

    def interval(self, state: Any, X: Tensor) -> tuple[Tensor, Tensor]:
        constant = float(self._kernel.constant or 0.0)
        far = NORM * (2 * (constant - self._kernel(X, self._X)).clamp_min(0.0)).sqrt()
        most = NORM * constant**0.5
        return (self._y - far).amax(-1).clamp_min(-most), (self._y + far).amin(-1).clamp_max(most)


def random_kernel(columns: int, rng: random.Random) -> Kernel:
    """Return a kernel of the kinds for which something is proved."""
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


def random_space(rng: random.Random) -> tuple[kbo.Space, list[Any], list[str]]:
    """Return a space, its linear constraints and the kinds of its parameters."""
    while True:
        kinds = rng.choices(list(KINDS), k=rng.choice([1, 1, 1, 2, 2, 3]))
        parameters = {f"p{i}": KINDS[kind](rng) for i, kind in enumerate(kinds)}
        numbers = [
            name for name, kind in zip(parameters, kinds, strict=True) if kind not in _NO_NUMBERS
        ]
        limits = []
        if numbers and rng.random() < 0.4:
            points = [
                {name: some_value(p, rng) for name, p in parameters.items()} for _ in range(40)
            ]
            sizes = {
                name: max(abs(float(point[name])) for point in points) or 1.0 for name in numbers
            }
            weights = {
                name: rng.choice([-1.0, 1.0]) * rng.uniform(0.2, 1.0) / sizes[name]
                for name in numbers
            }
            sums = sorted(
                sum(weights[name] * float(point[name]) for name in numbers) for point in points
            )
            limits = [kbo.Linear(weights, upper=sums[rng.randint(8, 36)] + 1e-9)]
        try:
            return kbo.Space(parameters, limits), limits, kinds
        except kbo.InvalidInput:  # only fixed parameters, or a limit without room
            continue


_NO_NUMBERS = ("choice", "ordinal")


def legal(space: kbo.Space, limits: list[Any], rng: random.Random) -> list[dict[str, Any]]:
    """Return all params of a small finite space that satisfy its constraints, or random ones."""
    parameters = space.parameters
    sizes = [len(p.options) for p in parameters.values()]
    count = 1
    for size in sizes:
        count *= size
    if 0 < count <= MOST_LISTED:
        rows = itertools.product(*(p.options for p in parameters.values()))
        points = [dict(zip(parameters, row, strict=True)) for row in rows]
    else:
        points = [
            {name: some_value(p, rng) for name, p in parameters.items()} for _ in range(N_RANDOM)
        ]
    return [point for point in points if holds(limits, point)]


def random_case(seed: int) -> tuple[Case, list[str]]:
    """Return a case and the kinds of its parameters."""
    rng = random.Random(seed)
    space, limits, kinds = random_space(rng)
    points = legal(space, limits, rng)
    while len(points) < 2:
        space, limits, kinds = random_space(rng)
        points = legal(space, limits, rng)
    units = space.units(points)
    features = space.features(units)
    kernel = random_kernel(space.columns, rng)
    dense = freeze(kernel, features)
    generator = torch.Generator().manual_seed(seed)
    consistent = rng.random() < 0.7
    zero = consistent and rng.random() < 0.7  # bounds that are large away from the data alone
    kind = rng.choice([MartingaleMixture, SelfNormalized])

    def function() -> Tensor:
        Z = features[torch.randint(len(features), (4,), generator=generator)]
        weights = torch.randn(4, generator=generator, dtype=torch.float64)
        norm = float((weights @ dense(Z, Z) @ weights).sqrt())
        return dense(features, Z) @ weights * (NORM / max(norm, 1e-9))

    # One value of one parameter has no data: the bounds are largest there, and a proof that leaves it out is wrong.
    name = rng.choice([name for name, p in space.parameters.items() if p.columns])
    left_out = rng.choice(sorted({point[name] for point in points}, key=str))
    observed = torch.tensor([i for i, point in enumerate(points) if point[name] != left_out] or [0])

    def bound(values: Tensor) -> Bound:
        most = 1000 if zero else rng.choice([1, 5, 20, 80])
        rows = observed[torch.randperm(len(observed), generator=generator)[:most]]
        noise = torch.randn(len(rows), generator=generator, dtype=torch.float64)
        state = KernelRidge(kernel, 0.01)
        state.update(features[rows[:80]], (values[rows] + 0.1 * noise)[:80])
        confidence = (
            Cone(dense, features[rows], values[rows]) if consistent else kind(0.1, NORM, 0.01)
        )
        return Bound(confidence, state, NORM)

    values, slack = function(), function()
    if zero:
        values, slack = 0.0 * values, 0.0 * slack
    objective, limit = bound(values), bound(slack)
    upper = objective.confidence.upper(objective.posterior, features)
    slack_upper = limit.confidence.upper(limit.posterior, features)
    case = Case(
        space, features, units, values, slack, upper, slack_upper, objective, limit, consistent
    )
    return case, kinds


def largest_of(values: Tensor) -> float:
    """Return the largest of values [n]; minus infinity if there are none."""
    return float(values.max()) if len(values) else -torch.inf


def checked_proof(case: Case, seed: int) -> str:
    """Return a fault of the proof of a largest value, with or without a limit; an empty text without one."""
    rng = random.Random(seed)
    within = []
    kept = torch.ones(len(case.values), dtype=torch.bool)
    possible = kept
    if rng.random() < 0.4:
        level = float(case.slack.quantile(rng.uniform(0.3, 0.9)))
        within = [CellBound([case.slack_bound], level)]
        kept = case.slack >= level
        possible = case.slack_upper >= level + 1e-6
    lower = float(case.values.quantile(0.9))
    evaluations = rng.choice([1, 30, 300, 3000])
    proof = bound_maximum(
        [CellBound([case.bound])],
        case.space,
        evaluations,
        lower=lower,
        slacks=within,
        witnesses=case.units[:WITNESSES],
    )
    assert proof is not None
    largest = proof.largest
    bands_hold = bool((case.upper >= case.values).all() & (case.slack_upper >= case.slack).all())
    if bands_hold and largest_of(case.values[kept]) > largest + 1e-9:
        return f"proved {largest:.6g}, the function reaches {largest_of(case.values[kept]):.6g}"
    if case.consistent and largest_of(case.upper[possible]) > largest + 1e-6:
        return f"proved {largest:.6g}, the bounds reach {largest_of(case.upper[possible]):.6g}"
    return ""


def checked_certificate(case: Case, seed: int) -> str | None:
    """Return a fault of a certificate that no point keeps a limit, an empty text without one; None without either."""
    rng = random.Random(seed)
    if case.consistent:
        level = float(case.slack_upper.max()) + rng.uniform(-0.05, 0.3)
    else:
        level = min(
            float(case.slack_upper.max()),
            NORM * float(case.slack_bound.posterior.prior_variance(case.features)[0]) ** 0.5,
        )
        level += rng.uniform(-0.5, 0.1)
    proof = bound_maximum(
        [CellBound([case.slack_bound], level)],
        case.space,
        2000,
        until=0.0,
        witnesses=case.units[:WITNESSES],
    )
    assert proof is not None
    if proof.largest >= 0:
        return None
    bands_hold = bool((case.slack_upper >= case.slack).all())
    if bands_hold and float(case.slack.max()) >= level:
        return f"no point above {level:.6g} is certified, the function reaches {float(case.slack.max()):.6g}"
    if case.consistent and float(case.slack_upper.max()) >= level + 1e-6:
        return f"no point above {level:.6g} is certified, the bounds reach {float(case.slack_upper.max()):.6g}"
    return ""


def faults(proofs: int, certificates: int, start: int = 0) -> Iterator[tuple[str, list[str], str]]:
    """Yield the name, the kinds of parameters and the fault (or an empty text) of so many proofs and certificates."""
    seed, left = start, {"proof": proofs, "certificate": certificates}
    while any(left.values()):
        case, kinds = random_case(seed)
        for name, check in (("proof", checked_proof), ("certificate", checked_certificate)):
            if left[name]:
                fault = check(case, seed)
                if fault is not None:
                    left[name] -= 1
                    yield name, kinds, fault
        seed += 1


def main(proofs: int, certificates: int) -> int:
    """Print the numbers of proofs, certificates and faults; return the number of faults."""
    done, wrong, kinds_seen = Counter(), Counter(), Counter()
    for name, kinds, fault in faults(proofs, certificates):
        done[name] += 1
        kinds_seen.update(kinds)
        if fault:
            wrong[name] += 1
            print(f"{name} over {', '.join(kinds)}: {fault}")
    print(
        "; ".join(f"{done[name]} {name}s, {wrong[name]} wrong" for name in ("proof", "certificate"))
    )
    print("; ".join(f"{kind}: {count}" for kind, count in sorted(kinds_seen.items())))
    return wrong.total()


if __name__ == "__main__":
    sys.exit(min(main(int(sys.argv[1]), int(sys.argv[2])), 1))
