"""Parts of BoTorch with kbo's models beside ``SingleTaskGP`` on equal hyper-parameters.

The table in docs/integrations.md lists these cases: what works as in BoTorch, what differs, and what is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from botorch.acquisition import (
    LogExpectedImprovement,
    PosteriorMean,
    ProbabilityOfImprovement,
    UpperConfidenceBound,
    qKnowledgeGradient,
    qLowerBoundMaxValueEntropy,
    qMaxValueEntropy,
    qNegIntegratedPosteriorVariance,
    qSimpleRegret,
    qUpperConfidenceBound,
)
from botorch.acquisition.analytic import LogConstrainedExpectedImprovement
from botorch.acquisition.input_constructors import get_acqf_input_constructor
from botorch.acquisition.joint_entropy_search import qJointEntropySearch
from botorch.acquisition.logei import qLogExpectedImprovement, qLogNoisyExpectedImprovement
from botorch.acquisition.objective import GenericMCObjective, ScalarizedPosteriorTransform
from botorch.acquisition.thompson_sampling import PathwiseThompsonSampling
from botorch.cross_validation import batch_cross_validation, gen_loo_cv_folds, loo_cv
from botorch.fit import fit_gpytorch_mll
from botorch.generation import MaxPosteriorSampling
from botorch.models import ModelListGP
from botorch.models.transforms import Normalize
from botorch.optim import optimize_acqf, optimize_acqf_cyclic, optimize_acqf_discrete, optimize_acqf_mixed
from botorch.sampling import SobolQMCNormalSampler
from botorch.sampling.pathwise import draw_matheron_paths, get_matheron_path_model
from botorch.utils.datasets import SupervisedDataset
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from kbo.acquisition import KernelUCB
from kbo.confidence import FixedWidth, NoiseBounds
from kbo.errors import InvalidInput
from kbo.models import AdaptiveRidgeGP, KernelRidgeGP, NystromGP, PosteriorGP
from kbo.regression import KernelRidge
from tests.botorch import test_contract
from tests.dense import close
from tests.test_models import BOUNDS, RIDGE, TRANSFORMS, data, kernel, model_and_reference, points

X, Y = data(25, torch.device("cpu"))
NEW, Z = points(3, 2, seed=9), points(3, 2, 2, seed=5)
ONE, LEVEL = Z[:, :1], float(Y.max())
OPTIONS = {"num_restarts": 2, "raw_samples": 8, "options": {"maxiter": 15, "seed": 0}}


def sampler(n: int = 8) -> SobolQMCNormalSampler:
    return SobolQMCNormalSampler(torch.Size([n]), seed=0)


def seeded(make: Callable[[], Any], points: Tensor) -> Tensor:
    torch.manual_seed(0)
    return make()(points)


def moments(posterior: Any) -> Tensor:
    return torch.stack([posterior.mean, posterior.variance])


def listed(model: Any) -> ModelListGP:
    both = ModelListGP(model, model)
    both.posterior(Z)
    return both


WORKS: dict[str, Callable[[Any], Tensor]] = {
    "`posterior`, of batches, with observation noise": lambda m: moments(m.posterior(Z, observation_noise=True)),
    "`posterior_transform`": lambda m: moments(
        m.posterior(Z, posterior_transform=ScalarizedPosteriorTransform(torch.tensor([-2.0]).double(), 1.0))
    ),
    "`model(X)`, of transformed points": lambda m: m.eval()(Z).mean,
    "`condition_on_observations`, plain": lambda m: moments(
        (m.posterior(Z), m)[1].condition_on_observations(NEW, Y[:3]).posterior(Z)
    ),
    "`condition_on_observations`, of batches": lambda m: moments(
        (m.posterior(Z), m)[1].condition_on_observations(Z, Z[..., :1]).posterior(ONE)
    ),
    "`fantasize`": lambda m: moments(m.fantasize(Z, sampler(4)).posterior(ONE)),
    "`posterior`, with observation noise, and `fantasize` of a fantasy": lambda m: moments(
        m.fantasize(Z, sampler(4)).fantasize(ONE.expand(4, 3, 1, 2), sampler(2)).posterior(ONE, observation_noise=True)
    ),
    "`posterior` and `fantasize` at float32 points of a float64 model": lambda m: moments(
        m.fantasize(Z.float(), sampler(4)).posterior(ONE.float())
    ),
    "`loo_cv`": lambda m: moments(loo_cv(m).posterior),
    "`ExactMarginalLogLikelihood` (`fit_gpytorch_mll`)": lambda m: ExactMarginalLogLikelihood(m.likelihood, m.train())(
        m(*m.train_inputs), m.train_targets
    ),
    "`subset_output([0])`, `output_indices=[0]`": lambda m: m.posterior(Z, output_indices=[0]).mean,
    "`ModelListGP`": lambda m: listed(m).posterior(Z).mean,
    "`LogExpectedImprovement`": lambda m: LogExpectedImprovement(m, LEVEL)(ONE),
    "`ProbabilityOfImprovement`": lambda m: ProbabilityOfImprovement(m, LEVEL)(ONE),
    "`UpperConfidenceBound`": lambda m: UpperConfidenceBound(m, 4.0)(ONE),
    "`PosteriorMean`": lambda m: PosteriorMean(m)(ONE),
    "`qLogExpectedImprovement`": lambda m: qLogExpectedImprovement(m, LEVEL, sampler())(Z),
    "`qLogNoisyExpectedImprovement`": lambda m: qLogNoisyExpectedImprovement(m, X, sampler(), prune_baseline=False)(Z),
    "`qUpperConfidenceBound`": lambda m: qUpperConfidenceBound(m, 4.0, sampler())(Z),
    "`LogConstrainedExpectedImprovement` of a `ModelListGP`": lambda m: LogConstrainedExpectedImprovement(
        listed(m), LEVEL, 0, {1: (None, LEVEL / 2)}
    )(ONE),
    "`qLogNoisyExpectedImprovement` of a `ModelListGP` with `constraints`": lambda m: qLogNoisyExpectedImprovement(
        listed(m),
        X,
        sampler(),
        objective=GenericMCObjective(lambda samples, X=None: samples[..., 0]),
        constraints=[lambda samples: samples[..., 1] - LEVEL / 2],
        prune_baseline=False,
    )(Z),
    "`qSimpleRegret`": lambda m: qSimpleRegret(m, sampler())(Z),
    "`qKnowledgeGradient`": lambda m: qKnowledgeGradient(m, 4, sampler(4))(points(3, 5, 2, seed=5)),
    "`qNegIntegratedPosteriorVariance`": lambda m: qNegIntegratedPosteriorVariance(m, X)(Z),
    "`qMaxValueEntropy`": lambda m: seeded(lambda: qMaxValueEntropy(m, X), ONE),
    "`qMaxValueEntropy` with `X_pending`": lambda m: seeded(lambda: qMaxValueEntropy(m, X, X_pending=NEW), ONE),
    "`qLowerBoundMaxValueEntropy` (GIBBON) with `X_pending`": lambda m: seeded(
        lambda: qLowerBoundMaxValueEntropy(m, X, X_pending=NEW), ONE
    ),
    "`MaxPosteriorSampling`": lambda m: seeded(lambda: MaxPosteriorSampling(m), X),
}

UNTRANSFORMED: dict[str, Callable[[Any], Tensor]] = {
    "`ModelListGP.condition_on_observations`, without transforms": lambda m: (
        listed(m).condition_on_observations([NEW] * 2, Y[:6].view(3, 2)).posterior(Z).mean
    ),
    "`qJointEntropySearch(condition_noiseless=False)`": lambda m: seeded(
        lambda: qJointEntropySearch(m, X[:2], Y[:2] + 3, condition_noiseless=False), ONE
    ),
}


@pytest.mark.parametrize("transforms", TRANSFORMS.values(), ids=TRANSFORMS)
@pytest.mark.parametrize("name", WORKS)
def test_it_works_as_in_botorch(name, transforms):
    found, expected = (WORKS[name](one).detach() for one in model_and_reference(transforms, torch.device("cpu")))
    close(found, expected, 1e-4)


# The same with train_Yvar
WITH_NOISE = ("`posterior`, ", "`fantasize`", "`loo_cv`", "`Exact", "`qKnow", "`qMaxValueEntropy` with")
KNOWN = {name: case for name, case in WORKS.items() if name.startswith(WITH_NOISE)}
KNOWN["`qJointEntropySearch`"] = lambda m: seeded(lambda: qJointEntropySearch(m, X[:2] + 0.1, Y[:2] + 3), ONE)


@pytest.mark.parametrize("name", KNOWN)
def test_it_works_as_in_botorch_with_known_variances(name):
    transforms = TRANSFORMS["both"] if name in WORKS else dict
    pair = model_and_reference(transforms, torch.device("cpu"), known=True)
    found, expected = (KNOWN[name](one).detach() for one in pair)
    close(found, expected, 1e-4)


@pytest.mark.parametrize("build", ["KernelRidgeGP", "NystromGP", "PosteriorGP"])
def test_each_batch_of_fantasies_has_the_noise_of_its_own_observations(build):
    known = torch.linspace(0.1, 0.5, 25).double().unsqueeze(-1)
    noise = torch.tensor([0.1, 1.0, 9.0]).double().view(3, 1, 1).expand(3, 2, 1)
    model = MODELS[build](train_Yvar=known).condition_on_observations(Z, Z[..., :1], noise=noise)
    added = model.posterior(ONE, observation_noise=True).variance - model.posterior(ONE).variance
    close(added.view(3), torch.cat([known.expand(3, 25, 1), noise], -2).mean((-2, -1)), 1e-12)


@pytest.mark.parametrize("name", UNTRANSFORMED)
def test_it_works_as_in_botorch_without_transforms(name):
    found, expected = (UNTRANSFORMED[name](one).detach() for one in model_and_reference(dict, torch.device("cpu")))
    close(found, expected, 1e-4)


MODELS: dict[str, Callable[..., Any]] = {
    "KernelRidgeGP": lambda **more: KernelRidgeGP(X, Y, kernel(), RIDGE, **more),
    "NystromGP": lambda **more: NystromGP(X, Y, kernel(), RIDGE, **more),
    "AdaptiveRidgeGP": lambda **more: AdaptiveRidgeGP(X, Y, kernel(), NoiseBounds(20.0, 0.1, upper=1.0), **more),
    "PosteriorGP": lambda **more: PosteriorGP(X, Y, KernelRidge(kernel(), RIDGE), **more),
}
SEARCHES: dict[str, Callable[[Any], tuple[Tensor, Tensor]]] = {
    "`optimize_acqf`": lambda a: optimize_acqf(a, BOUNDS, q=1, **OPTIONS),
    "`optimize_acqf` with float32 bounds of a float64 model": lambda a: optimize_acqf(
        a, BOUNDS.float(), q=1, **OPTIONS
    ),
    "`optimize_acqf(sequential=True)`": lambda a: optimize_acqf(a, BOUNDS, q=2, sequential=True, **OPTIONS),
    "`optimize_acqf_cyclic`": lambda a: optimize_acqf_cyclic(a, BOUNDS, q=2, cyclic_options={"maxiter": 1}, **OPTIONS),
    "`optimize_acqf_discrete`": lambda a: optimize_acqf_discrete(a, q=2, choices=X),
    "`optimize_acqf_mixed`": lambda a: optimize_acqf_mixed(a, BOUNDS, q=1, fixed_features_list=[{1: 0.5}], **OPTIONS),
}


@pytest.mark.parametrize("build", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_every_model_is_searched_by_every_optimiser(build, search):
    model = build(input_transform=Normalize(2))
    for acqf in (KernelUCB(model, FixedWidth(2.0)), qLogExpectedImprovement(model, LEVEL, sampler())):
        found, value = search(acqf)
        assert value.isfinite().all()
        assert ((found >= BOUNDS[0]) & (found <= BOUNDS[1])).all()


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_searches_find_the_points_that_they_find_with_botorch(search):
    pair = model_and_reference(TRANSFORMS["both"], torch.device("cpu"))
    found, expected = (search(qLogExpectedImprovement(one, LEVEL, sampler()))[0] for one in pair)
    close(found, expected, 1e-3)


@pytest.mark.parametrize("transforms", ["plain", "both"])
@pytest.mark.parametrize("name", ["KernelRidgeGP", "NystromGP"])
def test_paths_are_functions_drawn_by_kbo_with_the_moments_of_the_posterior(name, transforms):
    model = MODELS[name](**TRANSFORMS[transforms]())
    paths, P = draw_matheron_paths(model, torch.Size([400])), X[:4] + 0.1
    values, posterior = paths(P), model.posterior(P)
    assert paths(P.expand(5, 1, 4, 2)).shape == (5, 400, 4)
    spread = posterior.variance.sqrt().squeeze(-1)
    assert ((values.mean(0) - posterior.mean.squeeze(-1)).abs() < 0.3 * spread).all()
    assert ((values.std(0) / spread - 1).abs() < 0.25).all()
    one = get_matheron_path_model(model)
    assert one.posterior(Z).mean.shape == (3, 2, 1)
    close(one(Z)[:, :1], one(ONE), 1e-10)
    assert torch.autograd.gradcheck(PathwiseThompsonSampling(model), Z.clone().requires_grad_())


DIFFERS = {
    "`draw_matheron_paths`, `PathwiseThompsonSampling`": "kbo's own draws of functions",
    "`fit_gpytorch_mll` of a `NystromGP`": "with more than 500 points maximises the collapsed bound of "
    "Titsias, with fixed anchors",
    "noise of `condition_on_observations` and `fantasize`, as in `qJointEntropySearch`": "of mean and variance; in "
    "BoTorch of the variance alone, unless there is `train_Yvar`",
    "analytic acquisition functions at float32 points of a float64 model": "move the model to float32; BoTorch raises",
    "prior mean": "zero; `from_gp` keeps a constant",
}


def test_observations_of_a_noise_of_their_own_give_the_dense_formulas():
    model, noise = plain(), 0.1 + NEW[:, :1].square()
    variances = torch.cat([torch.full_like(Y, RIDGE), noise]).squeeze(-1)
    K_AA, K_AZ = (kernel()(torch.cat([X, NEW]), P).to_dense().detach() for P in (torch.cat([X, NEW]), X))
    weights = torch.linalg.solve(K_AA + variances.diag(), K_AZ)
    variance = (kernel()(X).to_dense() - K_AZ.mT @ weights).diagonal().detach()
    for extra in ((), (4,)):  # fantasies share their noise
        found = model.condition_on_observations(NEW, Y[:3].expand(*extra, 3, 1), noise=noise).posterior(X)
        close(found.mean, (weights.mT @ torch.cat([Y, Y[:3]])).expand(found.mean.shape), 1e-8)
        close(found.variance.squeeze(-1), variance.expand(*extra, -1), 1e-6)


def test_joint_entropy_search_is_searched_and_knows_its_optima():
    acqf = qJointEntropySearch(plain(), X[:2] + 0.1, Y[:2] + 3)
    found = acqf.conditional_model.posterior(X[:2].unsqueeze(1) + 0.1)
    close(found.mean.squeeze(1), Y[:2] + 3, 1e-3)
    assert optimize_acqf(acqf, BOUNDS, q=1, **OPTIONS)[1].isfinite()
    model, box = MODELS["KernelRidgeGP"](input_transform=Normalize(2)), BOUNDS.T.tolist()
    dataset = SupervisedDataset(X, Y, feature_names=["a", "b"], outcome_names=["y"])
    construct = get_acqf_input_constructor(qJointEntropySearch)
    made = qJointEntropySearch(**construct(model, training_data=dataset, bounds=box, num_optima=2))
    assert made(ONE).isfinite().all()


def test_an_analytic_acquisition_function_moves_the_model_to_the_dtype_of_its_points():
    model = plain()
    close(LogExpectedImprovement(model, LEVEL)(ONE.float()).double(), LogExpectedImprovement(plain(), LEVEL)(ONE), 1e-2)
    assert model.train_targets.dtype == torch.float32


def test_known_variances_in_a_model_of_any_posterior_are_those_of_its_regression():
    found, expected = (MODELS[name](train_Yvar=Y.square() + 0.1) for name in ("PosteriorGP", "KernelRidgeGP"))
    close(moments(found.posterior(Z)), moments(expected.posterior(Z)), 1e-12)


def plain() -> KernelRidgeGP:
    return MODELS["KernelRidgeGP"]()


def folds(**given: Any) -> Any:
    return batch_cross_validation(
        KernelRidgeGP, ExactMarginalLogLikelihood, gen_loo_cv_folds(X, Y), model_init_kwargs=given
    )


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "batched models: `batch_cross_validation`": (
        lambda: folds(kernel=kernel(), ridge=RIDGE),
        r"one model of each batch.*loo_cv",
    ),
    "several outputs in one model": (
        lambda: KernelRidgeGP(X, Y.expand(-1, 2), kernel(), RIDGE),
        "ModelListGP of one model",
    ),
    "`ModelListGP` in bounds and draws of kbo, but for `ConstrainedKernelUCB`, `SafeUCB` and `SafeExpander`": (
        lambda: KernelUCB(listed(plain()), FixedWidth(2.0)),
        "one of its models, or take ConstrainedKernelUCB",
    ),
    "`ModelListGP.condition_on_observations`, with transforms": (
        lambda: listed(MODELS["NystromGP"](input_transform=Normalize(2))).condition_on_observations([NEW] * 2, X[:3]),
        "condition each",
    ),
    "`loo_cv` of other models than `KernelRidgeGP`": (lambda: loo_cv(MODELS["NystromGP"]()), "NystromGP has no leave"),
    "fits of fantasies, `AdaptiveRidgeGP` and `PosteriorGP`": (
        lambda: fit_gpytorch_mll(ExactMarginalLogLikelihood((m := MODELS["PosteriorGP"]()).likelihood, m)),
        "^PosteriorGP cannot be fitted and has no leave-one-out formula: take a KernelRidgeGP",
    ),
    "other samplers of paths": (
        lambda: draw_matheron_paths(plain(), torch.Size(), prior_sampler=lambda **_: None),
        "leave out",
    ),
    "one point without its row": (lambda: plain().posterior(X[0]), r"\(2,\): use X\.unsqueeze"),
    "`observation_noise` as a number": (
        lambda: plain().posterior(X, observation_noise=0.1),  # pyright: ignore
        r"a tensor of variances",
    ),
    "another output": (lambda: plain().posterior(X, output_indices=[1]), r"output_indices must be \[0\]"),
    "batches that do not fit": (
        lambda: plain().condition_on_observations(Z, Z[..., :1]).posterior(points(5, 4, 2)),
        r"\(5,\), must broadcast",
    ),
    "targets that do not fit": (lambda: plain().condition_on_observations(Z, Y[:3]), r"\[\.\.\. 2 1\]"),
    "searches before there are data": (
        lambda: optimize_acqf(
            KernelUCB(KernelRidgeGP(X[:0], Y[:0], kernel(), 1.0), FixedWidth(2.0)), BOUNDS, q=1, **OPTIONS
        ),
        "no data",
    ),
}


@pytest.mark.parametrize("build", MODELS)
def test_batched_data_are_refused_by_every_model(monkeypatch, build):
    model = MODELS[build]()
    with pytest.raises(InvalidInput, match=r"inputs.*\(2, 25, 2\).*one model of each batch"):
        model.set_train_data(X.expand(2, 25, 2), Y.squeeze(-1).expand(2, 25))
    monkeypatch.setitem(globals(), "X", X.expand(2, 25, 2))
    with pytest.raises(InvalidInput, match=r"train_X.*\(2, 25, 2\).*one model of each batch"):
        MODELS[build]()


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_says_so(name):
    call, message = REFUSED[name]
    with pytest.raises(InvalidInput, match=message):
        call()


def test_a_level_that_is_unknown_is_not_given_for_single_targets():
    with pytest.raises(TypeError, match=r"AdaptiveRidgeGP.*train_Yvar"):
        MODELS["AdaptiveRidgeGP"](train_Yvar=Y.square() + 1)


def test_the_table_in_the_docs_lists_these_cases():
    page = (Path(__file__).parents[2] / "docs" / "integrations.md").read_text("utf-8")
    works = (*WORKS, *(f"{name} with `train_Yvar`" for name in KNOWN), *UNTRANSFORMED, *SEARCHES, *test_contract.ROWS)
    rows = [f"| {name} | works as BoTorch |" for name in works]
    rows += [f"| {name} | differs on purpose: {how} |" for name, how in DIFFERS.items()]
    rows += [f"| {name} | refused |" for name in REFUSED]
    part = page[page.index("## BoTorch") :].split("\n## ")[0]
    assert [line for line in part.splitlines() if line.startswith("| ")][1:] == rows, "\n".join(rows)
    for count in (f"{len(works)} parts work", f"{len(DIFFERS)} differ on purpose", f"{len(REFUSED)} are refused"):
        assert count in part, count
