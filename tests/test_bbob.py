"""COCO's functions and learners on data as tuning problems: known optima, noise of the promised size, whole numbers."""

import cocoex
import numpy as np
import pytest
import torch
from scipy import stats

from experiments.problems import BBOB
from kbo.space import Float, Int


@pytest.mark.parametrize("integers", [False, True])
def test_no_value_is_below_the_one_at_cocos_best_point(integers, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # COCO writes the point into the current folder
    name, dim, instance = ("bbob-mixint", 5, 1) if integers else ("bbob", 10, 7)
    for function in range(1, 25):
        problem = BBOB(function, dim, instance, integers=integers)
        options = f"dimensions: {dim} function_indices: {function}"
        cocoex.Suite(name, f"instances: {instance}", options)[0]._best_parameter("print")
        words = (tmp_path / "._bbob_problem_best_parameter.txt").read_text().split()
        best = [float(word) for word in words]
        if integers:
            best = dict(zip(problem.space.parameters, best, strict=True))
        assert problem(best) == problem.noiseless(best) == pytest.approx(problem.optimum, rel=1e-9)
        for u in torch.rand(20, dim, dtype=torch.float64):
            assert problem.noiseless(problem.space.params(u)) >= problem.optimum
    kinds = [type(p) for p in BBOB(1, 10, integers=True).space.parameters.values()]
    assert kinds == [Int] * 8 + [Float] * 2


@pytest.mark.parametrize(("noise", "law"), [("gauss", stats.norm), ("heavy", stats.t(3))])
def test_noise_has_the_promised_quartiles_and_follows_the_seed(noise, law):
    free = BBOB(8, 2, 3)
    X = np.random.default_rng(0).uniform(-5, 5, (5_000, 2))
    spread = np.subtract(*np.quantile([free.noiseless(list(x)) for x in X], [0.75, 0.25]))
    problem, same = (BBOB(8, 2, 3, noise, seed=5) for _ in range(2))
    assert problem.noise_scale == pytest.approx(0.05 * spread, rel=0.1)
    x = [1.0, 1.0]
    z = np.array([problem(x) for _ in range(10_000)]) - free.noiseless(x)
    assert same(x) - free.noiseless(x) == z[0]
    z /= problem.noise_scale
    assert np.quantile(z, [0.25, 0.5, 0.75]) == pytest.approx([-0.6745, 0, 0.6745], abs=0.03)
    far = 2 * law.sf(3 * law.ppf(0.75) / stats.norm.ppf(0.75))
    assert np.mean(abs(z) > 3) == pytest.approx(far, rel=0.3)
