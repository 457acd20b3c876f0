"""Expected gain: the improvement on the recommended parameters that a batch of further trials brings.

From joint draws of the objective without noise, at trials and at other points where an optimum may be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kbo.optimize.feasibility import ConstraintSurrogate, probably_feasible
from kbo.optimize.insight.comparison import N_DRAWS, Estimate, estimate
from kbo.optimize.run.trials import Trial
from kbo.optimize.search.subspace import Subspace
from kbo.optimize.surrogates.surrogate import Surrogate
from kbo.space import Space

N_MORE = 20
"""Number of further trials whose expected gain is reported."""

_N_TRIALS = 64
"""Trials with the best means, where an optimum may be."""

_N_RANDOM = 256
_N_NEAR = 128
"""Random points, and points near the recommended one, where an optimum may be."""


@dataclass(frozen=True)
class Draws:
    """Joint draws of the objective at the recommended point, at the first trial, at the best trials, and elsewhere.

    Attributes:
        proposing: ``N_MORE`` draws [N_MORE m] whose best points are the further trials.
        judging: Other draws [s m], which judge these.
        feasible: Whether each point keeps all constraints with a probability of a half, [m]; True at the recommended.
        n_evaluated: The number of points of trials, which come first.
    """

    proposing: Tensor
    judging: Tensor
    feasible: Tensor
    n_evaluated: int

    @property
    def at_recommended(self) -> Tensor:
        """The draws [s] at the recommended point."""
        return self.judging[:, 0]

    @property
    def at_first_trial(self) -> Tensor:
        """The draws [s] at the first trial."""
        return self.judging[:, 1]

    @property
    def at_random(self) -> Tensor:
        """The draws [s r] at random points."""
        return self.judging[:, self.n_evaluated : self.n_evaluated + _N_RANDOM]


def joint_draws(
    space: Space,
    surrogate: Surrogate,
    constraints: Sequence[ConstraintSurrogate],
    trials: Sequence[Trial],
    best: Trial,
    generator: torch.Generator,
) -> Draws | None:
    """Return joint draws at trials and where an optimum may be; None where there is no prior to draw from.

    Args:
        space: The search space.
        surrogate: The surrogate of its objective, larger values better.
        constraints: The constraints with their surrogates.
        trials: The completed trials that keep all constraints.
        best: The recommended one.
        generator: Source of randomness.
    """
    units = space.units([trial.params for trial in trials])
    means = surrogate.posterior.predict(space.features(units))[0].cpu()
    best_means = means.topk(min(_N_TRIALS, len(means))).indices
    evaluated = units[torch.cat([torch.tensor([trials.index(best), 0]), best_means])]
    points = torch.cat([evaluated, _candidates(space, evaluated[0], generator)])
    values = surrogate.draws(space.features(points), N_MORE + N_DRAWS, generator)
    if values is None:
        return None
    values = values.cpu()
    feasible = probably_feasible(space, constraints, points)
    feasible[0] = True
    return Draws(values[:N_MORE], values[N_MORE:], feasible, len(evaluated))


def _candidates(space: Space, best: Tensor, generator: torch.Generator) -> Tensor:
    """Return points [n P] where an optimum may be: random ones first, then points near the best one [P]."""
    whole = Subspace(space)
    if whole.choices is not None:
        rows = torch.randperm(len(whole.choices), generator=generator)
        return whole.choices[rows[: _N_RANDOM + _N_NEAR]]
    scales = torch.logspace(-2.5, -0.5, _N_NEAR, dtype=torch.float64).unsqueeze(1)
    steps = torch.randn(_N_NEAR, len(best), generator=generator, dtype=torch.float64)
    near = whole.place((best + scales * steps).clamp(0, 1))
    return torch.cat([whole.draw(_N_RANDOM, generator), near[whole.satisfies(near)]])


def expected_gain(draws: Draws, noise_std: float, generator: torch.Generator) -> Estimate:
    """Return the gain of ``N_MORE`` trials, each evaluated once, with noise.

    They are chosen by Thompson sampling (Kandasamy et al. 2018, for a batch); other draws judge them.
    """
    feasible = draws.feasible
    proposed = draws.proposing.masked_fill(~feasible, -torch.inf).argmax(1)
    n_evaluated = int(feasible[: draws.n_evaluated].sum())
    position = feasible.cumsum(0) - 1  # among the feasible points
    values = draws.judging[:, feasible]
    return knowledge_gradient(values, n_evaluated, position[proposed], noise_std, generator)


def knowledge_gradient(
    values: Tensor, n: int, proposed: Tensor, noise_std: float, generator: torch.Generator
) -> Estimate:
    """Return the improvement of the point with the largest mean, after one evaluation of each of some points.

    This is the knowledge gradient of a batch (Wu & Frazier 2016), with means and covariances of draws.

    Args:
        values: Draws of the objective [s m]; the recommended point is the first one.
        n: The number of points that have been evaluated, which come first.
        proposed: The points [k] that are evaluated, with noise.
        noise_std: Its level.
        generator: Source of randomness.
    """
    scale = float(values.abs().max()) or 1.0  # squares of very large values would overflow
    values = values / scale
    noise_std = noise_std / scale
    s = len(values)
    k = len(proposed)
    points = torch.cat([torch.arange(n), proposed])
    mean = values.mean(0)
    covariance = (values - mean)[:, points].T @ (values - mean)[:, proposed] / s
    of_proposed = covariance[n:]
    variance = noise_std**2 + 1e-6 * float(of_proposed.diagonal().mean())
    of_observations = of_proposed + variance * torch.eye(k, dtype=covariance.dtype)
    noise = noise_std * torch.randn(s, k, generator=generator, dtype=values.dtype)
    residual = values[:, proposed] + noise - mean[proposed]
    weights = torch.linalg.pinv(of_observations, hermitian=True) @ covariance.T
    posterior_mean = mean[points] + residual @ weights
    chosen = points[posterior_mean.argmax(1)].unsqueeze(1)
    gain = values.gather(1, chosen).squeeze(1) - values[:, 0]
    value, lower, upper = estimate(gain)
    return Estimate(scale * value, scale * lower, scale * upper)
