"""BoTorch's notebooks as clients: with equal prior means, loops begin with the same step with either model."""

from __future__ import annotations

import functools

import pytest
from gpytorch.means import ZeroMean

from experiments.bench import notebooks
from tests.dense import close


@pytest.fixture(autouse=True)
def _nothing_compiled(monkeypatch):
    """BoTorch compiles a kernel at the first use of qLogNEHVI, and waits for ever if another process died over it."""
    monkeypatch.setattr("botorch.acquisition.multi_objective.logei._load_attempted", True)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "loop",
    [
        pytest.param(name, marks=() if name == "cost_aware" else pytest.mark.botorch)
        for name in notebooks.LOOPS
    ],
)
def test_a_loop_of_a_notebook_takes_the_same_step(loop, monkeypatch):
    monkeypatch.setattr(
        notebooks, "EFFORT", {"num_restarts": 1, "raw_samples": 4, "options": {"maxiter": 3}}
    )
    zero = functools.partial(notebooks.single_task_gp, mean_module=ZeroMean())
    found, expected = (
        notebooks.run(loop, make, 0, rounds=1)[0] for make in (notebooks.kernel_ridge_gp, zero)
    )
    if loop != "thompson_paths":  # draws of functions are kbo's own
        close(found.X, expected.X, 1e-3)
    assert notebooks.run(loop, notebooks.kernel_ridge_gp, 0, rounds=2)[0].gap > 0
