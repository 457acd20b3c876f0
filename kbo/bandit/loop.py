"""The rounds of a method on a bandit problem, with its regret."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from kbo._base import checks
from kbo._base.isolation import isolated
from kbo.bandit.method import Method
from kbo.bandit.problem import Bandit
from kbo.confidence import candidate_gap
from kbo.errors import InvalidInput
from kbo.regression import Posterior

# Added to seeds, so that the random choices of a method and a problem of equal seed are independent.
_CHOICES = 2_500_000_000
_INITIAL = 3_000_000_000  # for arms that are chosen before the first round


def play(
    method: Method,
    problem: Bandit,
    rounds: int,
    seed: int = 0,
    *,
    gap_every: int = 0,
    first: int | None = None,
    initial: int = 0,
) -> Iterator[dict[str, Any]]:
    """Play ``rounds`` rounds of a bandit problem, and yield one row per round.

    The function, arms and noise of the problem come from its own seed, so they are the same for
    every method. The posterior is on the device of the arms.

    Args:
        method: The method, such as one of ``kbo.bandit.make``.
        problem: The problem, which gives the arms of each round and their noisy rewards.
        rounds: Number of rounds T.
        seed: Seed of the method's own random choices.
        gap_every: Rounds between reports of the optimality gap of the recommended arm; 0 for none.
            It needs fixed arms and a method with bounds.
        first: Index of an arm that is pulled before round 1 and not counted, as in published
            protocols.
        initial: Number of random arms that are pulled before round 1 and not counted; the same arms
            for all methods with this seed.

    Yields:
        A row with ``round`` (from 1); ``arm``, the index of the choice; ``regret`` of the round
        against the best arm offered, without noise; ``cumulative`` regret; ``best``, the least
        regret of a round so far, uncounted rounds included; ``cpu_seconds`` of the method so far;
        ``m``, the number of inducing points of a sketched posterior after the round. Every
        ``gap_every`` rounds also ``gap`` after the round, and ``simple_regret`` of the recommended
        arm, which is at most the gap if the bounds hold.

    Raises:
        InvalidInput: A gap is requested although there is none, ``first`` is no arm, or a number is
            out of range.
        RefutedAssumptions: No function satisfies the method's assumptions and fits the data.
    """
    checks.instance("method", method, Method)
    checks.instance("problem", problem, Bandit)
    rounds = checks.whole("rounds", rounds, 1)
    initial = checks.whole("initial", initial, 0)
    seed = checks.seed(seed)
    gap_every = checks.whole("gap_every", gap_every, 0)
    first = checks.maybe(checks.whole, "first", first, 0)
    rows = _rows(method, problem, rounds, seed, gap_every, first, initial)
    next_row = isolated(lambda: next(rows, None))  # with the settings of a fresh program
    while (row := next_row()) is not None:
        yield row


def _rows(
    method: Method,
    problem: Bandit,
    rounds: int,
    seed: int,
    gap_every: int,
    first: int | None,
    initial: int,
) -> Iterator[dict[str, Any]]:
    """Yield the rows of ``play``, which has checked the types of all arguments."""
    if gap_every and (problem.fixed_arms is None or method.confidence is None):
        raise InvalidInput(
            "an optimality gap needs the same arms in every round, and a method with bounds."
        )
    generator = torch.Generator().manual_seed(_CHOICES + seed)
    state = method.state(problem.fixed_arms)
    best = _pull_uncounted(state, problem, seed, first, initial)
    cumulative = 0.0
    seconds = 0.0
    for t in range(1, rounds + 1):
        arms, values = _offered(problem)
        index, cpu_seconds = _pull(method, state, problem, arms, generator)
        seconds += cpu_seconds
        regret = float(values.max() - values[index])
        cumulative += regret
        best = min(best, regret)
        row = {
            "round": t,
            "arm": index,
            "regret": regret,
            "cumulative": cumulative,
            "best": best,
            "cpu_seconds": seconds,
        }
        if state.anchors is not None:
            row["m"] = len(state.anchors)
        if gap_every and t % gap_every == 0:
            gap = candidate_gap(method.bound, state, arms)
            row["gap"] = gap.value
            row["simple_regret"] = float(values.max() - values[gap.recommended])
        yield row


def _pull(
    method: Method, state: Posterior, problem: Bandit, arms: Tensor, generator: torch.Generator
) -> tuple[int, float]:
    """Choose an arm, and update the posterior by its reward.

    Returns:
        The index of the arm among ``arms`` [A d], and the CPU seconds of the method.
    """
    start = time.process_time()
    index = method.choose(state, arms, generator)
    seconds = time.process_time() - start
    arm = arms[index : index + 1]
    reward = problem.observe(arm)
    start = time.process_time()
    state.update(arm, reward)
    seconds += time.process_time() - start
    return index, seconds


def _pull_uncounted(
    state: Posterior,
    problem: Bandit,
    seed: int,
    first: int | None,
    initial: int,
) -> float:
    """Pull the arm ``first``, if any, and ``initial`` random ones.

    Returns:
        Their least regret, infinite if there are none.
    """
    rng = torch.Generator().manual_seed(_INITIAL + seed)
    best = math.inf
    pulls: list[int | None] = [None] * initial  # None for a random arm
    if first is not None:
        pulls.insert(0, first)
    for index in pulls:
        arms, values = _offered(problem)
        if index is None:
            index = int(torch.randint(len(arms), (), generator=rng))
        if not 0 <= index < len(arms):
            raise InvalidInput(
                f"first must be the index of an arm, 0 to {len(arms) - 1}, got {index}."
            )
        arm = arms[index : index + 1]
        state.update(arm, problem.observe(arm))
        best = min(best, float(values.max() - values[index]))
    return best


def _offered(problem: Bandit) -> tuple[Tensor, Tensor]:
    """Return the arms [A d] of the next round and their mean rewards [A], after a check of both."""
    name = type(problem).__name__
    arms = problem.arms()
    if not len(checks.rows(f"{name}.arms()", arms)):
        raise InvalidInput(
            f"{name}.arms() must return arms [A d], at least one, got {tuple(arms.shape)}."
        )
    values = checks.tensor(f"{name}.mean(arms)", problem.mean(arms))
    if values.shape != arms.shape[:1] or not bool(values.isfinite().all()):
        raise InvalidInput(
            f"{name}.mean must return [{len(arms)}] mean rewards, finite and one for each arm, got "
            f"{checks.shown(values)}."
        )
    return arms, values
