"""Kernels and waits of a step: what a GPU is kept busy with, and the CPU too; a change that adds some is seen here."""

import pytest

from kbo.experiments.bench.device import count
from kbo.experiments.bench.steps import Setup, steps

# The most kernels of a step, and its waits for a device; a search over ridges may take some steps more elsewhere.
MOST = {
    "exact update": (4, 1),
    "sketch update": (16, 2),
    "update and AY bounds": (71, 3),
    "update and CMM bounds": (1200, 7),
    "update and CMM bounds, sketch": (2700, 11),
    "update and chaining": (69, 8),
    "optimize_acqf evaluation, KernelUCB": (90, 1),
    "optimize_acqf evaluation, CMMUCB": (1080, 3),
    "Thompson draw over 500 points": (23, 1),
    "best of 500 points, sketch": (29, 2),
}


def small(device) -> Setup:
    return Setup(device, n=60, m=20, points=50, many=500)


@pytest.mark.parametrize("name", MOST)
def test_a_step_has_few_kernels_and_waits(device, name):
    counted = count(steps(small(device))[name](), device)
    kernels, waits = MOST[name]
    assert len(counted.kernels) <= kernels
    assert counted.syncs.total() <= waits or device.type == "cpu", counted.syncs


def test_every_step_is_held(device):
    assert list(steps(small(device))) == list(MOST)
