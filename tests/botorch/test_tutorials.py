"""BoTorch's notebooks as clients: every loop runs with either model."""

from __future__ import annotations

import math

import pytest

from tests.botorch import tutorials


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("model", tutorials.MODELS)
@pytest.mark.parametrize("loop", tutorials.LOOPS)
def test_a_loop_of_a_notebook_runs(loop, model, monkeypatch):
    monkeypatch.setattr(tutorials, "EFFORT", {"num_restarts": 1, "raw_samples": 4, "options": {"maxiter": 3}})
    end, _ = tutorials.run(loop, model, seed=0, rounds=2)
    assert 0 < end.gap < math.inf
