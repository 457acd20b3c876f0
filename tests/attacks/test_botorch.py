"""BoTorch's side: transforms of outcomes, bounds that wrap others, fits of sketches, and the pages about them."""

from __future__ import annotations

import pytest
import torch
from botorch.models import ModelListGP
from botorch.models.transforms import Log, Standardize
from botorch.models.transforms.outcome import ChainedOutcomeTransform, OutcomeTransform
from gpytorch.kernels import MaternKernel

from kbo.acquisition import ConstrainedKernelUCB, SafeUCB
from kbo.confidence import FixedWidth
from kbo.errors import InvalidInput
from kbo.models import KernelRidgeGP

# Outcome transforms of constraints


class Pointwise(OutcomeTransform):
    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, Y, Yvar=None, X=None):
        return self.function(Y), Yvar


def minus(Y):
    return -Y


MONOTONE = {
    "none": lambda: None,
    "standardised": lambda: Standardize(1),
    "log": Log,
    "minus": lambda: Pointwise(minus),
    "minus, standardised": lambda: ChainedOutcomeTransform(first=Pointwise(minus), second=Standardize(1)),
    "one over": lambda: Pointwise(lambda Y: 1 / Y.where(Y > 0, torch.nan)),
}
OTHERS = {
    "square": lambda: Pointwise(lambda Y: (Y - 8.0).square()),
    "wave": lambda: Pointwise(lambda Y: (Y / 3).sin()),
    "clamped at the limit": lambda: Pointwise(lambda Y: Y.clamp_max(8.0)),
    "constant": lambda: Pointwise(torch.zeros_like),
    "log of another": lambda: Pointwise(lambda Y: (Y - 9.0).log()),
}


def limited(kind, transform, limit):
    X = torch.linspace(0, 1, 9, dtype=torch.float64).unsqueeze(-1)
    cost = 2.0 + 10 * X
    kernel = MaternKernel(nu=2.5).double()
    model = KernelRidgeGP(X, cost, kernel, 1e-4, outcome_transform=transform)
    return kind(ModelListGP(KernelRidgeGP(X, X, kernel, 1e-4), model), [FixedWidth(1.0)] * 2, 0, {1: limit})


@pytest.mark.parametrize("limit", [(None, 8.0), (5.0, None), (5.0, 8.0)], ids=str)
@pytest.mark.parametrize("kind", [SafeUCB, ConstrainedKernelUCB])
@pytest.mark.parametrize("name", MONOTONE)
def test_limits_are_those_of_the_data_under_every_monotone_transform(name, kind, limit):
    points = torch.tensor([[0.0], [0.2], [0.4], [0.5], [0.7], [1.0]], dtype=torch.float64)
    cost = 2.0 + 10 * points.squeeze(-1)
    kept = (cost >= (limit[0] or 0.0)) & (cost <= (limit[1] or 100.0))
    assert torch.equal(limited(kind, MONOTONE[name](), limit).slack(points) >= 0, kept)


@pytest.mark.parametrize("name", OTHERS)
def test_a_transform_that_is_not_monotone_is_refused(name):
    with pytest.raises(InvalidInput, match="not monotone"):
        limited(SafeUCB, OTHERS[name](), (None, 8.0))
