"""Intersections over time; ``python -m tests.test_running`` prints the gain on paired data."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch import Tensor

from kbo import KernelRidge
from kbo.confidence import BKB, FiniteSet, FixedWidth, MartingaleMixture, RunningIntersection, SelfNormalized
from kbo.errors import InvalidInput, RefutedAssumptions
from kbo.problems import RKHSBandit
from kbo.regression import GreedyDictionary, Hypothetical, NystromRidge, track

MAKE = {
    "ay": lambda: SelfNormalized(0.1, 5.0, 0.1),
    "cmm": lambda: MartingaleMixture(0.1, 5.0, 0.1),
    "finite set": lambda: FiniteSet(40, 0.1),
}


def problem(seed: int = 0) -> tuple[RKHSBandit, Tensor]:
    rng = torch.Generator().manual_seed(seed)
    return RKHSBandit("rbf", 0.3, dim=2, norm=5.0, seed=seed), torch.rand(40, 2, generator=rng, dtype=torch.float64)


def rounds(state, bandit: RKHSBandit, pieces: int = 5, size: int = 6, seed: int = 1, device="cpu"):
    rng = torch.Generator().manual_seed(seed)
    for _ in range(pieces):
        X = torch.rand(size, 2, generator=rng, dtype=torch.float64)
        state.update(X.to(device), bandit.observe(X).to(device))
        yield state


@pytest.mark.parametrize("name", MAKE)
def test_it_is_the_intersection_of_the_intervals_so_far(name, device):
    bandit, Z = problem()
    Z = Z.to(device)
    confidence, state = MAKE[name](), KernelRidge(bandit.kernel, 0.01)
    running, tracked = RunningIntersection(confidence, Z), track(state, Z)
    lowers, uppers = [], []
    for one in rounds(tracked, bandit, device=device):
        lower, upper = confidence.interval(state, Z)
        lowers.append(lower)
        uppers.append(upper)
        running.interval(Hypothetical(state, Z[:3]), Z)  # does not enter
        for state_or_view in (one, state):
            found = running.interval(state_or_view, Z)
            torch.testing.assert_close(found, (torch.stack(lowers).amax(0), torch.stack(uppers).amin(0)))
        assert running.guarantee_on(state).startswith(confidence.guarantee)
    some = Z[[7, 3, 3]].reshape(3, 1, 2)
    assert torch.equal(running.upper(state, some), found[1][[7, 3, 3]].reshape(3, 1))
    torch.testing.assert_close(pickle.loads(pickle.dumps(running)).upper(state, Z), found[1])
    with pytest.raises(InvalidInput, match="not among"):
        running.interval(state, Z + 1e-9)


def test_hypothetical_observations_give_no_guarantee_and_the_bounds_of_the_confidence():
    bandit, Z = problem()
    state, running = KernelRidge(bandit.kernel, 0.01), RunningIntersection(MAKE["ay"](), Z)
    list(rounds(state, bandit))
    running.update(state)
    view = Hypothetical(state, Z[:3])
    assert torch.equal(running.upper(view, Z), MAKE["ay"]().upper(view, Z))
    assert running.guarantee_on(view) is None
    with pytest.raises(InvalidInput, match="hypothetical"):
        running.update(view)


def test_a_state_that_went_back_or_is_another_one_is_refused():
    bandit, Z = problem()
    state, running = KernelRidge(bandit.kernel, 0.01), RunningIntersection(MAKE["ay"](), Z)
    early = state.fork()
    *_, _last = rounds(state, bandit)
    running.update(state)
    list(rounds(early, bandit, pieces=6, seed=2))  # a fork with more data, but not these
    other = KernelRidge(bandit.kernel, 0.01)
    list(rounds(other, bandit))  # a state with a kernel of its own
    for wrong in (early, other, KernelRidge(bandit.kernel, 0.01)):
        with pytest.raises(InvalidInput, match="rest on 30 observations"):
            running.interval(wrong, Z)
    running.update(state)


def test_only_rounds_in_which_the_theorem_holds_enter():
    bandit, Z = problem()
    state = NystromRidge(bandit.kernel, 0.01, GreedyDictionary(0.03))
    list(rounds(state, bandit))
    error = float(state.residual_norm()) / 0.01
    short, enough = (BKB(0.1, 5.0, 0.1, eps=1 - factor / error) for factor in (1.001, 0.999))
    nothing = RunningIntersection(short, Z)
    assert nothing.objections(state) == short.objections(state) != []
    assert not nothing.finite_on(state)
    running = RunningIntersection(enough, Z)
    before = running.interval(state, Z)
    assert running.guarantee_on(state)
    list(rounds(state, bandit, size=30, seed=3))
    assert enough.objections(state)  # the dictionary misses more now
    assert torch.equal(running.interval(state, Z)[1], before[1])
    assert running.guarantee_on(state)
    assert RunningIntersection(FixedWidth(2.0), Z).guarantee_on(state) is None


def test_intervals_that_do_not_intersect_refute_the_assumptions():
    Z = torch.zeros(1, 1, dtype=torch.float64)
    state = KernelRidge(problem()[0].kernel, 0.01)
    running = RunningIntersection(SelfNormalized(0.01, 1.0, 0.1), Z)
    for value in (0.5, -0.5):  # an effect that drifts
        state.update(Z.expand(200, 1), value + torch.linspace(0, 1e-6, 200, dtype=torch.float64))
        if value > 0:
            running.update(state)
    for _ in range(2):
        with pytest.raises(RefutedAssumptions, match="row 0"):
            running.interval(state, Z)


if __name__ == "__main__":
    from tests.test_gaussian import KERNELS

    for name, (_, options, lengthscale) in KERNELS.items():
        kind = "rbf" if not options else f"matern{int(2 * options['nu'])}2"
        for bound in MAKE:
            shares: dict[int, list[float]] = {20: [], 100: [], 400: []}
            for seed in range(2):
                bandit = RKHSBandit(kind, lengthscale, dim=2, norm=5.0, seed=seed)
                rng = torch.Generator().manual_seed(seed)
                Z = torch.rand(40, 2, generator=rng, dtype=torch.float64)
                state, confidence = KernelRidge(bandit.kernel, 0.01), MAKE[bound]()
                running = RunningIntersection(confidence, Z)
                for n in range(2, 401, 2):
                    X = torch.cat([Z[n % 40 :][:1], torch.rand(1, 2, generator=rng, dtype=torch.float64)])
                    state.update(X, bandit.observe(X))
                    if n % 4 == 0:
                        running.update(state)
                    if n in shares:
                        (low, high), (least, most) = running.interval(state, Z), confidence.interval(state, Z)
                        shares[n].append(float((high - low).mean() / (most - least).mean()))
            print(f"{name:15} {bound:10}", {n: round(sum(share) / len(share), 4) for n, share in shares.items()})
