"""Optuna's own tests of samplers, as they are, on KBOSampler; what fails is named in docs/integrations.md."""

import pytest
from gpytorch.kernels import MaternKernel

optuna = pytest.importorskip("optuna")

from optuna.testing.pytest_samplers import (  # noqa: E402
    BasicSamplerTestCase,
    RelativeSamplerTestCase,
    SingleOnlySamplerTestCase,
)

import kbo  # noqa: E402
from kbo.integrations.optuna import KBOSampler  # noqa: E402

pytestmark = pytest.mark.thorough


def practical():
    return KBOSampler(seed=0, n_startup_trials=3)


def certified():
    return KBOSampler(seed=0, setting=kbo.Certified(MaternKernel(nu=2.5).double(), noise_std=1.0, norm_bound=1000.0))


class TestPractical(BasicSamplerTestCase, RelativeSamplerTestCase, SingleOnlySamplerTestCase):
    @pytest.fixture
    def sampler(self):
        return practical


class TestCertified(BasicSamplerTestCase, RelativeSamplerTestCase, SingleOnlySamplerTestCase):
    @pytest.fixture
    def sampler(self):
        return certified
