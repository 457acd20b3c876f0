"""Code of a user, checked by ``make lint`` in pyright's strict mode: no public call gives Any."""

# pyright: strict, reportMissingTypeStubs=false

from __future__ import annotations

from typing import Any, assert_type

from gpytorch.kernels import MaternKernel
from torch import Tensor

import kbo
from kbo import confidence
from kbo.optimize.run.trials import Trial
from kbo.regression import FixedDictionary, KernelRidge, NystromRidge
from kbo.space import Params


def objective(params: Params) -> float:
    return float(len(params))


def tuning() -> None:
    result = kbo.minimize(
        objective, {"rate": kbo.Float(1e-4, 1.0, log=True)}, n_trials=3, setting=kbo.Practical()
    )
    assert_type(result, kbo.Result)
    assert_type(result.params, Params | None)
    assert_type(result.value, float | None)
    assert_type(result.trials, list[Trial])
    assert_type(kbo.maximize(objective, [(0.0, 1.0)], n_trials=3), kbo.Result)
    space = kbo.Space([{"deep": bool}, kbo.When("deep", True, {"layers": (2, 8)})])
    assert_type(space.to_dict(), dict[str, dict[str, Any]])
    assert_type(kbo.minimize(objective, space, n_trials=3), kbo.Result)
    optimizer = kbo.Optimizer({"rate": kbo.Float(0.0, 1.0)}, seed=1)
    assert_type(params := optimizer.ask(), Params)
    assert_type(optimizer.ask(2), list[Params])
    assert_type(optimizer.tell(params, 1.0), Trial)
    assert_type(optimizer.interval(params), tuple[float, float, float] | None)


def posteriors(X: Tensor, y: Tensor) -> None:
    state = KernelRidge(MaternKernel(), ridge=0.1)
    state.update(X, y)
    assert_type(state.predict(X), tuple[Tensor, Tensor])
    assert_type(state.at().log_det(), Tensor)
    assert_type(NystromRidge(MaternKernel(), 0.1, FixedDictionary(X)).anchors, Tensor | None)
    bound = confidence.MartingaleMixture(noise_std=0.1, norm_bound=1.0, delta=0.1)
    assert_type(bound.interval(state, X), tuple[Tensor, Tensor])
    assert_type(bound.upper(state, X), Tensor)
    assert_type(bound.objections(state), list[str])
    assert_type(bound.guarantee, str | None)
