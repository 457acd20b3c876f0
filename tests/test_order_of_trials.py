"""Completion that depends on the noise: what a run with trials in flight, lost or failed ones may certify.

``python -m tests.test_order_of_trials 400`` prints how often the truth is outside, for docs/reliability.md.
"""

from __future__ import annotations

import dataclasses
import sys
import tempfile
from pathlib import Path

import torch
from gpytorch.kernels import RBFKernel

import kbo
from kbo.optimize.result import result_of
from kbo.optimize.surrogates.evaluation import Evaluation
from kbo.optimize.surrogates.order import usable_prefix

SETTING = kbo.Certified(RBFKernel().double(), noise_std=0.1, norm_bound=1.0, delta=0.1)
DECLARED = dataclasses.replace(SETTING, completion_independent_of_noise=True)
POINT = [0.5]


def noise(n: int, seed: int) -> list[float]:
    generator = torch.Generator().manual_seed(seed)
    return (0.1 * torch.randn(n, generator=generator, dtype=torch.float64)).tolist()


def optimizer(setting: kbo.Certified = SETTING, journal=None) -> kbo.Optimizer:
    return kbo.Optimizer([(0.0, 1.0)], setting=setting, method="cmm-ucb", journal=journal)


def certified_and_outside(run: kbo.Optimizer) -> tuple[bool, bool]:
    """Whether the run keeps its guarantee, and whether f = 0 is outside its interval at the point."""
    belief = run.insight.surrogate()
    assert belief is not None
    lower, _, upper = run.interval(POINT)
    return bool(belief.guarantee()), not lower <= 0 <= upper


def late(q: int, seed: int, setting: kbo.Certified = SETTING) -> kbo.Optimizer:
    """Half of q trials at one point have reported, the largest values first."""
    run = optimizer(setting)
    for _ in range(q):
        run.run.begin(POINT)
    for value in sorted(noise(q, seed), reverse=True)[: q // 2]:
        run.tell(POINT, value)
    return run


def killed(seed: int, path, n: int = 30, setting: kbo.Certified = SETTING) -> kbo.Optimizer:
    """A run that is killed whenever its noise is negative, and resumed from its journal; twice in a trial at most."""
    run, values = optimizer(setting, journal=path), iter(noise(100 * n, seed))
    while len(run.completed()) < n:
        params = run.ask()
        value = next(values)
        if value < 0:
            run.close()
            run = optimizer(setting, journal=path)
        else:
            run.tell(params, value)
    return run


def test_values_that_overtook_others_enter_no_certified_bound():
    run = late(64, seed=0)
    assert certified_and_outside(run) == (True, False)
    assert run.insight.surrogate().posterior.n == 0  # the first trial has not reported
    assert "has not reported: 32" in result_of(run, "", None).guarantee
    assert certified_and_outside(late(64, 0, DECLARED))[1]  # what the rule is for


def test_a_run_that_was_killed_until_it_survived_certifies_nothing(tmp_path):
    run = killed(0, tmp_path / "run.jsonl", n=3)
    said = result_of(run, "", None).guarantee
    assert said.startswith("not certified: trials failed: ")
    assert "; trials lost and started again: " in said


def test_what_overtook_counts_once_the_gap_is_closed_and_steers_the_search_before():
    run, in_order, trials = optimizer(), optimizer(), [([0.1], 0.0), ([0.5], 0.5), ([0.9], -0.5)]
    for x, value in trials:
        run.run.begin(x)
        in_order.run.begin(x)
        in_order.tell(x, value)
    for x, value in trials[1:]:
        run.tell(x, value)
    before = run.insight.surrogate()
    assert before.posterior.n == 0
    X = run.space.features(torch.tensor([[0.5], [0.9]], dtype=torch.float64))
    mean = before.searched.predict(X)[0]
    assert float(mean.min()) < -0.1
    assert float(mean.max()) > 0.1
    run.tell(*trials[0])
    assert run.interval([0.3]) == in_order.interval([0.3])


PREFIXES = [
    (0, "", 0),
    (0, "ab", 2),
    (0, "-b", 0),  # the first has not reported
    (1, " bc-e", 3),
    (0, "xxb", 3),  # x failed, and has no value
    (0, "aa", 2),  # trials at one point, all of them have reported
    (0, "a-a", 0),  # one of them waits behind another trial, so none enters
    (0, "ba-a", 1),
    (0, "abab-b", 0),  # without b no a may enter
    (0, "xx-x", 2),  # failures exchange no values
    (0, "abx-xc", 3),
]


def test_a_bound_may_use_trials_up_to_the_first_that_has_not_reported_and_all_of_a_point_or_none():
    """Letters are points, x is a failure, and - a trial that has not reported."""
    for first, reported, end in PREFIXES:
        waiting = {
            i: Evaluation(i, (float(ord(point)),), None if point == "x" else 0.0)
            for i, point in enumerate(reported)
            if point not in "- "
        }
        assert usable_prefix(first, waiting) == end


def test_a_declared_assumption_is_named_with_the_number_of_trials_that_need_it():
    run = optimizer(setting=DECLARED)
    for x in (0.1, 0.5, 0.9):
        run.run.begin([x])
    run.tell([0.9], 0.0)
    run.tell([0.1], 0.0)
    run.tell([0.2], 0.0)  # which was never asked for
    said = result_of(run, "", None).guarantee
    assert "if completion does not depend on the noise (trials with a value at parameters" in said
    assert "trials that ended after later ones: 2" in said


if __name__ == "__main__":
    runs = int(sys.argv[1])
    for q in (16, 32, 64, 128):
        for name, setting in (("by start", SETTING), ("all reported", DECLARED)):
            found = [certified_and_outside(late(q, seed, setting)) for seed in range(runs)]
            kept, outside = (sum(column) for column in zip(*found, strict=True))
            print(f"q = {q:3d}, {name:12}: guarantee kept {kept} of {runs}, outside {outside}")
    with tempfile.TemporaryDirectory() as folder:
        for name, setting in (("by start", SETTING), ("all reported", DECLARED)):
            paths = [Path(folder) / f"{name} {seed}.jsonl" for seed in range(runs)]
            found = [
                certified_and_outside(killed(seed, path, setting=setting))
                for seed, path in enumerate(paths)
            ]
            kept, outside = (sum(column) for column in zip(*found, strict=True))
            both = sum(proved and wrong for proved, wrong in found)
            print(
                f"killed, {name:12}: guarantee kept {kept} of {runs}, outside {outside}, both {both}"
            )
