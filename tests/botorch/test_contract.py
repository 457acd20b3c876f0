"""Checks of BoTorch's own tests of models and searches, over all models, dtypes, shapes and transforms of kbo.

They are those of test/models/test_gp_regression.py and test/optim/test_optimize.py of BoTorch: shapes, dtypes, noise,
samples, gradients, conditioning; values are compared with ``SingleTaskGP`` at equal hyper-parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from botorch.models.transforms.input import (
    AffineInputTransform,
    ChainedInputTransform,
    FilterFeatures,
    InputStandardize,
    Log10,
    Round,
    Warp,
)
from botorch.models.transforms.outcome import Log
from botorch.optim import optimize_acqf, optimize_acqf_cyclic, optimize_acqf_discrete, optimize_acqf_mixed
from botorch.posteriors import GPyTorchPosterior, TransformedPosterior
from botorch.sampling import SobolQMCNormalSampler
from gpytorch.constraints import Positive
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ZeroMean
from torch import Tensor

from kbo.acquisition import (
    AMMUCB,
    CMMUCB,
    DMMUCB,
    ChainingUCB,
    ConstrainedKernelUCB,
    InflatedThompsonSampling,
    KernelUCB,
)
from kbo.confidence import FixedWidth, NoiseBounds, SelfNormalized
from kbo.models import AdaptiveRidgeGP, KernelRidgeGP, NystromGP, PosteriorGP
from kbo.regression import GreedyDictionary, KernelRidge
from tests.dense import close
from tests.test_models import RIDGE, kernel

pytestmark = pytest.mark.filterwarnings("ignore::botorch.exceptions.InputDataWarning")

SHAPES = [(3,), (4, 3), (2, 4, 3)]
DTYPES = {"float32": torch.float32, "float64": torch.float64}
MODELS: dict[str, Callable[..., Any]] = {
    "KernelRidgeGP": lambda X, Y, **more: KernelRidgeGP(X, Y, kernel(), RIDGE, **more),
    "NystromGP": lambda X, Y, **more: NystromGP(X, Y, kernel(), RIDGE, GreedyDictionary(1e-9), **more),
    "AdaptiveRidgeGP": lambda X, Y, **more: AdaptiveRidgeGP(X, Y, kernel(), NoiseBounds(9.0, 0.1, upper=1.0), **more),
    "PosteriorGP": lambda X, Y, **more: PosteriorGP(X, Y, KernelRidge(kernel(), RIDGE), **more),
}
INPUTS: dict[str, Callable[[], Any]] = {
    "Normalize": lambda: Normalize(2),
    "InputStandardize": lambda: InputStandardize(2),
    "AffineInputTransform": lambda: AffineInputTransform(2, torch.tensor([2.0, 3.0]), torch.tensor([0.1, 0.2])),
    "Log10": lambda: Log10(indices=[1]),
    "Warp": lambda: Warp(2, indices=[0, 1]).initialize(concentration0=torch.tensor([[1.5, 0.7]])),
    "Round": lambda: Round(integer_indices=[1]),
    "FilterFeatures": lambda: FilterFeatures(torch.tensor([1, 0])),
    "ChainedInputTransform": lambda: ChainedInputTransform(a=Normalize(2), b=Log10(indices=[0], reverse=True)),
}
TRANSFORMS: dict[str, Callable[[], dict[str, Any]]] = {
    "none": dict,
    **{name: lambda make=make: {"input_transform": make()} for name, make in INPUTS.items()},
    "Standardize": lambda: {"outcome_transform": Standardize(1)},
    "Normalize and Standardize": lambda: {"input_transform": Normalize(2), "outcome_transform": Standardize(1)},
    "Log": lambda: {"outcome_transform": Log()},
}


def inputs(*shape: int, seed: int = 0) -> Tensor:
    return 0.05 + 0.9 * torch.rand(*shape, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


X = inputs(20)
Y = 3 + torch.sin(5 * X).sum(-1, keepdim=True)


def pair(name: str, transforms: Callable[[], dict[str, Any]], dtype: torch.dtype) -> tuple[Any, SingleTaskGP]:
    data = X.to(dtype), Y.to(dtype)
    model = MODELS[name](*data, **transforms())
    likelihood = GaussianLikelihood(noise_constraint=Positive())
    options = {"outcome_transform": None, "covar_module": kernel(), "mean_module": ZeroMean(), **transforms()}
    reference = SingleTaskGP(*data, likelihood=likelihood, **options).to(dtype)
    reference.likelihood.noise = model.likelihood.noise.detach()
    return model, reference.eval()


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("transforms", TRANSFORMS.values(), ids=TRANSFORMS)
@pytest.mark.parametrize("name", MODELS)
def test_posteriors_have_the_shapes_values_samples_and_gradients_of_botorch(name, transforms, dtype):
    both, tolerance = pair(name, transforms, dtype), 1e-4 if dtype == torch.float64 else 2e-2
    for shape in SHAPES:
        Z, noise = inputs(*shape, seed=5).to(dtype), inputs(*shape, seed=6).to(dtype)[..., :1]
        results = []
        for one in both:
            P = Z.clone().requires_grad_()
            posterior = one.posterior(P)
            assert isinstance(posterior, GPyTorchPosterior | TransformedPosterior)
            assert posterior.mean.shape == posterior.variance.shape == (*shape, 1)
            assert posterior.mean.dtype == posterior.variance.dtype == dtype
            draws = SobolQMCNormalSampler(torch.Size([6]), seed=0)(posterior)
            assert draws.shape == (6, *shape, 1)
            slope = torch.autograd.grad(posterior.mean.sum() + posterior.variance.sum(), P, retain_graph=True)[0]
            assert torch.autograd.grad(draws.sum(), P)[0].isfinite().all()
            noisy = [one.posterior(Z, observation_noise=level).variance for level in (True, noise)]
            results.append([posterior.mean, posterior.variance, *noisy, draws, slope / 10])
        for found, expected in zip(*results, strict=True):
            close(found.detach(), expected.detach(), tolerance)


@pytest.mark.parametrize("transforms", ["none", "Warp", "Normalize and Standardize"])
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("name", MODELS)
def test_conditioned_models_and_fantasies_broadcast_as_in_botorch(name, dtype, transforms):
    model, _ = pair(name, TRANSFORMS[transforms], dtype)
    new, Ynew = inputs(2, 3, seed=7).to(dtype), 3 + inputs(2, 3, seed=8).to(dtype)[..., :1]
    for points in (new, new[0]):
        batched = model.condition_on_observations(points, Ynew)
        assert batched.batch_shape == (2,)
        for shape in ((4,), (1, 4), (2, 4), (5, 2, 4)):
            Z = inputs(*shape, seed=5).to(dtype)
            posterior = batched.posterior(Z, observation_noise=True)
            assert posterior.mean.shape == (*shape[:-2], 2, 4, 1)
            assert posterior.mean.dtype == dtype
    fantasy = model.fantasize(new[:, :0], SobolQMCNormalSampler(torch.Size([3]), seed=0))  # of no points
    close(fantasy.posterior(X.to(dtype)).mean.detach(), model.posterior(X.to(dtype)).mean.detach().expand(3, 2, 20, 1))


# Searches

BOUNDS = torch.tensor([[0.05, 0.05], [0.95, 0.95]], dtype=torch.float64)
SHORT = {"maxiter": 4, "seed": 0, "n_burnin": 20, "n_thinning": 2}  # of samples under constraints
OPTIONS: dict[str, Any] = {"num_restarts": 2, "raw_samples": 8, "options": SHORT}
LEVEL = {"noise_std": RIDGE**0.5, "norm_bound": 9.0, "delta": 0.1}
ACQUISITIONS: dict[str, Callable[[Any], Any]] = {
    "KernelUCB": lambda m: KernelUCB(m, SelfNormalized(**LEVEL)),
    "KernelUCB of -f": lambda m: KernelUCB(m, FixedWidth(2.0), ScalarizedPosteriorTransform(-torch.ones(1).double())),
    "AMMUCB": lambda m: AMMUCB(m, **LEVEL),
    "DMMUCB": lambda m: DMMUCB(m, **LEVEL),
    "CMMUCB": lambda m: CMMUCB(m, **LEVEL),
    "ChainingUCB": lambda m: ChainingUCB(m, X, delta=0.1),
    "InflatedThompsonSampling": lambda m: InflatedThompsonSampling(m, SelfNormalized(**LEVEL)),
    "ConstrainedKernelUCB": lambda m: ConstrainedKernelUCB(ModelListGP(m, m), [FixedWidth(2.0)] * 2, 0, {1: (3, 4)}),
}
SUM = (torch.tensor([0, 1]), torch.tensor([-1.0, -1.0]).double(), -0.8)  # x_0 + x_1 <= 0.8
SEARCHES: dict[str, tuple[int, Callable[[Any], Tensor]]] = {
    "q=1": (1, lambda a: optimize_acqf(a, BOUNDS, q=1, **OPTIONS)[0]),
    "joint": (2, lambda a: optimize_acqf(a, BOUNDS, q=2, **OPTIONS)[0]),
    "sequential": (2, lambda a: optimize_acqf(a, BOUNDS, q=2, sequential=True, **OPTIONS)[0]),
    "cyclic": (2, lambda a: optimize_acqf_cyclic(a, BOUNDS, q=2, cyclic_options={"maxiter": 1}, **OPTIONS)[0]),
    "discrete": (1, lambda a: optimize_acqf_discrete(a, q=1, choices=X)[0]),
    "mixed": (1, lambda a: optimize_acqf_mixed(a, BOUNDS, q=1, fixed_features_list=[{1: 0.5}, {1: 0.2}], **OPTIONS)[0]),
    "inequality constraints": (2, lambda a: optimize_acqf(a, BOUNDS, q=2, inequality_constraints=[SUM], **OPTIONS)[0]),
    "fixed features": (1, lambda a: optimize_acqf(a, BOUNDS, q=1, fixed_features={0: 0.25}, **OPTIONS)[0]),
}


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("name", ACQUISITIONS)
def test_every_acquisition_function_is_searched_in_every_way(name, search):
    acqf = ACQUISITIONS[name](MODELS["KernelRidgeGP"](X, Y))
    q, run = SEARCHES[search]
    found = run(acqf)
    assert found.shape == (q, 2)
    assert ((found >= BOUNDS[0]) & (found <= BOUNDS[1])).all()
    assert acqf.X_pending is None
    if search == "discrete":
        assert torch.equal(found[0], X[acqf(X.unsqueeze(-2)).argmax()])
    elif search == "mixed":
        assert found[0, 1] in (0.5, 0.2)
    elif search == "inequality constraints":
        assert (found.sum(-1) <= 0.8 + 1e-6).all()
    elif search == "fixed features":
        assert found[0, 0] == 0.25
    elif search == "q=1":
        assert acqf(found) >= acqf(inputs(4, 1, seed=3)).max()


ROWS = [
    f"mean, variance, noise, samples, gradients: {len(MODELS)} models x {len(DTYPES)} dtypes x {len(TRANSFORMS)} "
    f"transforms x {len(SHAPES)} shapes ({len(MODELS) * len(DTYPES) * len(TRANSFORMS) * len(SHAPES)} cases)",
    f"searches: {len(ACQUISITIONS)} acquisition functions of kbo x {len(SEARCHES)} ways "
    f"({len(ACQUISITIONS) * len(SEARCHES)} cases)",
]
"""Lines of the table in docs/integrations.md."""
