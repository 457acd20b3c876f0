"""Optuna's own tests of samplers, as they are, on KBOSampler; what fails is named in docs/integrations.md."""

import pytest
from gpytorch.kernels import MaternKernel

optuna = pytest.importorskip("optuna")

from optuna.testing.pytest_samplers import (  # noqa: E402
    BasicSamplerTestCase,
    MultiObjectiveSamplerTestCase,
    RelativeSamplerTestCase,
    SingleOnlySamplerTestCase,
)

import kbo  # noqa: E402
from kbo.errors import InvalidInput  # noqa: E402
from kbo.integrations.optuna import KBOSampler  # noqa: E402

pytestmark = pytest.mark.thorough


def practical():
    return KBOSampler(seed=0, n_startup_trials=3)


def certified():
    setting = kbo.Certified(MaternKernel(nu=2.5).double(), noise_std=1.0, norm_bound=1000.0)
    return KBOSampler(seed=0, setting=setting)


class TestPractical(BasicSamplerTestCase, RelativeSamplerTestCase, MultiObjectiveSamplerTestCase):
    @pytest.fixture
    def sampler(self):
        return practical


class TestCertified(BasicSamplerTestCase, RelativeSamplerTestCase, SingleOnlySamplerTestCase):
    """The certified setting refuses parameters that some trials lack, ranges that grow, and several objectives."""

    @pytest.fixture
    def sampler(self):
        return certified

    def test_conditional_sample_independent(self, sampler):
        with pytest.raises(InvalidInput, match="same parameters in every trial"):
            super().test_conditional_sample_independent(sampler)

    def test_conditional_parameter_objective(self, sampler):
        with pytest.raises(InvalidInput, match="same parameters in every trial"):
            super().test_conditional_parameter_objective(sampler)

    @pytest.mark.parametrize(("second_low", "second_high"), [(0, 5), (0, 20), (20, 30)])
    def test_dynamic_range_objective(self, sampler, second_low, second_high):
        if second_high > 10:
            words = "whole range of each parameter from the first trial on"
            with pytest.raises(InvalidInput, match=words):
                super().test_dynamic_range_objective(sampler, second_low, second_high)
        else:
            super().test_dynamic_range_objective(sampler, second_low, second_high)
