"""BoTorch with kbo's models beside ``SingleTaskGP`` on equal hyper-parameters.

The table in docs/integrations.md lists these cases: what works as in BoTorch, what differs, what is refused. Shapes,
dtypes and searches are those of BoTorch's own tests (test/models/test_gp_regression.py, test/optim/test_optimize.py).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from botorch.acquisition import (
    LogExpectedImprovement,
    UpperConfidenceBound,
    qKnowledgeGradient,
    qLowerBoundMaxValueEntropy,
    qMaxValueEntropy,
    qNegIntegratedPosteriorVariance,
    qNoisyExpectedImprovement,
)
from botorch.acquisition.analytic import LogConstrainedExpectedImprovement
from botorch.acquisition.joint_entropy_search import qJointEntropySearch
from botorch.acquisition.logei import qLogExpectedImprovement, qLogNoisyExpectedImprovement
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.acquisition.risk_measures import VaR
from botorch.acquisition.thompson_sampling import PathwiseThompsonSampling
from botorch.cross_validation import batch_cross_validation, gen_loo_cv_folds, loo_cv
from botorch.fit import fit_gpytorch_mll
from botorch.generation import MaxPosteriorSampling
from botorch.models import ModelListGP
from botorch.models.transforms import Normalize, Standardize
from botorch.models.transforms import input as of_inputs
from botorch.models.transforms.outcome import Log
from botorch.optim import (
    optimize_acqf,
    optimize_acqf_cyclic,
    optimize_acqf_discrete,
    optimize_acqf_mixed,
)
from botorch.posteriors import GPyTorchPosterior, TransformedPosterior
from botorch.sampling import SobolQMCNormalSampler
from botorch.sampling.pathwise import draw_matheron_paths, get_matheron_path_model
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from kbo import acquisition
from kbo.acquisition import (
    ConstrainedKernelUCB,
    InflatedPosteriorSampling,
    InflatedThompsonSampling,
    KernelUCB,
)
from kbo.confidence import FixedWidth, SelfNormalized
from kbo.errors import InvalidInput
from kbo.models import KernelRidgeGP
from tests.dense import close
from tests.test_models import (
    BOTH,
    BOUNDS,
    MODELS,
    RIDGE,
    beside,
    data,
    kernel,
    model_and_reference,
    points,
    same,
)

X, Y = data(25)
NEW, Z = points(3, 2, seed=9), points(3, 2, 2, seed=5)
ONE, LEVEL = Z[:, :1], float(Y.max())


def made(name: str = "KernelRidgeGP", **more: Any) -> Any:
    return MODELS[name](X, Y, **more)


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
    "`posterior`, of batches, with observation noise": lambda m: moments(
        m.posterior(Z, observation_noise=True)
    ),
    "`posterior_transform`": lambda m: moments(
        m.posterior(
            Z, posterior_transform=ScalarizedPosteriorTransform(torch.tensor([-2.0]).double(), 1.0)
        )
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
        m.fantasize(Z, sampler(4))
        .fantasize(ONE.expand(4, 3, 1, 2), sampler(2))
        .posterior(ONE, observation_noise=True)
    ),
    "`posterior` and `fantasize` at float32 points of a float64 model": lambda m: moments(
        m.fantasize(Z.float(), sampler(4)).posterior(ONE.float())
    ),
    "`loo_cv`": lambda m: moments(loo_cv(m).posterior),
    "`ExactMarginalLogLikelihood` (`fit_gpytorch_mll`)": lambda m: ExactMarginalLogLikelihood(
        m.likelihood, m.train()
    )(m(*m.train_inputs), m.train_targets),
    "`subset_output([0])`, `output_indices=[0]`": lambda m: m.posterior(Z, output_indices=[0]).mean,
    "`ModelListGP`": lambda m: listed(m).posterior(Z).mean,
    "`LogExpectedImprovement`": lambda m: LogExpectedImprovement(m, LEVEL)(ONE),
    "`UpperConfidenceBound`": lambda m: UpperConfidenceBound(m, 4.0)(ONE),
    "`qLogExpectedImprovement`": lambda m: qLogExpectedImprovement(m, LEVEL, sampler())(Z),
    "`qLogNoisyExpectedImprovement`": lambda m: qLogNoisyExpectedImprovement(
        m, X, sampler(), prune_baseline=False
    )(Z),
    "`LogConstrainedExpectedImprovement` of a `ModelListGP`": lambda m: (
        LogConstrainedExpectedImprovement(listed(m), LEVEL, 0, {1: (None, LEVEL / 2)})(ONE)
    ),
    "`qKnowledgeGradient`": lambda m: qKnowledgeGradient(m, 4, sampler(4))(points(3, 5, 2, seed=5)),
    "`qNegIntegratedPosteriorVariance`": lambda m: qNegIntegratedPosteriorVariance(m, X)(Z),
    "`qMaxValueEntropy`": lambda m: seeded(lambda: qMaxValueEntropy(m, X), ONE),
    "`qMaxValueEntropy` with `X_pending`": lambda m: seeded(
        lambda: qMaxValueEntropy(m, X, X_pending=NEW), ONE
    ),
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


WITH_NOISE = (
    "`posterior`, ",
    "`fantasize`",
    "`loo_cv`",
    "`Exact",
    "`qKnow",
    "`qMaxValueEntropy` with",
)
KNOWN = {name: case for name, case in WORKS.items() if name.startswith(WITH_NOISE)}
KNOWN["`qJointEntropySearch`"] = lambda m: seeded(
    lambda: qJointEntropySearch(m, X[:2] + 0.1, Y[:2] + 3), ONE
)


def agree(case: Callable[[Any], Tensor], pair: tuple[Any, Any]) -> None:
    close(*(case(one).detach() for one in pair), 1e-4)


@pytest.mark.parametrize("name", WORKS)
def test_it_works_as_in_botorch(name):
    agree(WORKS[name], model_and_reference(BOTH))


@pytest.mark.parametrize(
    "name", [*UNTRANSFORMED, *(pytest.param(name, marks=pytest.mark.botorch) for name in WORKS)]
)
def test_it_works_as_in_botorch_without_transforms(name):
    agree((UNTRANSFORMED | WORKS)[name], model_and_reference(dict))


@pytest.mark.parametrize("name", KNOWN)
def test_it_works_as_in_botorch_with_known_variances(name):
    agree(KNOWN[name], model_and_reference(BOTH if name in WORKS else dict, known=True))


# Models, transforms, dtypes and shapes

SHAPES = [(3,), (4, 3), (2, 4, 3)]
DTYPES = {"float32": torch.float32, "float64": torch.float64}
INPUTS: dict[str, Callable[[], Any]] = {
    "Normalize": lambda: Normalize(2),
    "InputStandardize": lambda: of_inputs.InputStandardize(2),
    "AffineInputTransform": lambda: of_inputs.AffineInputTransform(
        2, torch.tensor([2.0, 3]), torch.tensor([0.1, 0.2])
    ),
    "Log10": lambda: of_inputs.Log10(indices=[1]),
    "Warp": lambda: of_inputs.Warp(2, indices=[0, 1]).initialize(
        concentration0=torch.tensor([[1.5, 0.7]])
    ),
    "Round": lambda: of_inputs.Round(integer_indices=[1]),
    "FilterFeatures": lambda: of_inputs.FilterFeatures(torch.tensor([1, 0])),
    "ChainedInputTransform": lambda: of_inputs.ChainedInputTransform(
        a=Normalize(2), b=of_inputs.Log10(indices=[0], reverse=True)
    ),
}
TRANSFORMS: dict[str, Callable[[], dict[str, Any]]] = {
    "none": dict,
    **{name: lambda make=make: {"input_transform": make()} for name, make in INPUTS.items()},
    "Standardize": lambda: {"outcome_transform": Standardize(1)},
    "Normalize and Standardize": BOTH,
    "Log": lambda: {"outcome_transform": Log()},
}


EVERY_TRANSFORM = [
    name if name in ("Warp", "Log") else pytest.param(name, marks=pytest.mark.botorch)
    for name in TRANSFORMS
]


@pytest.mark.filterwarnings("ignore::botorch.exceptions.InputDataWarning")
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("transforms", EVERY_TRANSFORM)
@pytest.mark.parametrize("name", MODELS)
def test_posteriors_have_the_shapes_values_samples_and_gradients_of_botorch(
    name, transforms, dtype
):
    def unit(*shape: int, seed: int = 0) -> Tensor:
        uniform = torch.rand(*shape, 2, generator=torch.Generator().manual_seed(seed))
        return (0.05 + 0.9 * uniform.double()).to(dtype)

    inside = unit(20)
    targets = 3 + torch.sin(5 * inside).sum(-1, keepdim=True)
    both = beside(name, inside, targets, None, TRANSFORMS[transforms])
    for shape in SHAPES:
        noise = unit(*shape, seed=6)[..., :1]
        results = []
        for one in both:
            P = unit(*shape, seed=5).requires_grad_()
            posterior = one.posterior(P)
            assert isinstance(posterior, GPyTorchPosterior | TransformedPosterior)
            draws = sampler(6)(posterior)
            assert torch.autograd.grad(draws.sum(), P, retain_graph=True)[0].isfinite().all()
            slope = torch.autograd.grad(posterior.mean.sum() + posterior.variance.sum(), P)[0]
            noisy = [one.posterior(P, observation_noise=level).variance for level in (True, noise)]
            results.append([posterior.mean, posterior.variance, *noisy, draws, slope / 10])
        for found, expected in zip(*results, strict=True):
            assert found.dtype == dtype
            close(found.detach(), expected.detach(), 1e-4 if dtype == torch.float64 else 2e-2)


@pytest.mark.parametrize("name", ["KernelRidgeGP", "NystromGP", "PosteriorGP"])
def test_each_batch_of_fantasies_has_the_noise_of_its_own_observations(name):
    known = torch.linspace(0.1, 0.5, 25).double().unsqueeze(-1)
    noise = torch.tensor([0.1, 1.0, 9.0]).double().view(3, 1, 1).expand(3, 2, 1)
    model = made(name, train_Yvar=known).condition_on_observations(Z, Z[..., :1], noise=noise)
    added = model.posterior(ONE, observation_noise=True).variance - model.posterior(ONE).variance
    close(added.view(3), torch.cat([known.expand(3, 25, 1), noise], -2).mean((-2, -1)), 1e-12)


def test_a_transform_learns_anew_for_every_model():
    used = Standardize(1)
    expected = 50 + made(outcome_transform=used).posterior(X).mean
    for transform in (used, used.eval(), Standardize(1).eval()):
        model = KernelRidgeGP(X, 50 + Y, kernel(), RIDGE, outcome_transform=transform)
        close(model.posterior(X).mean, expected)


def perturbed() -> dict[str, Any]:
    return {"input_transform": of_inputs.InputPerturbation(0.1 * points(3, 2, seed=4))}


def test_perturbed_inputs_give_the_values_of_botorch_and_no_bounds_or_draws():
    pair = model_and_reference(perturbed)
    same(*(one.posterior(Z) for one in pair))
    options = {"prune_baseline": False, "cache_root": False}
    risk = VaR(alpha=0.5, n_w=3)
    agree(lambda m: qNoisyExpectedImprovement(m, NEW, sampler(), risk, **options)(Z), pair)
    new = NEW + 0.1, Y[:3]  # observations are where they were made
    moved = Z + perturbed()["input_transform"].perturbation_set[0]
    expected = made().condition_on_observations(*new).posterior(moved).mean
    close(pair[0].condition_on_observations(*new).posterior(Z).mean[:, ::3], expected)
    for rule in (KernelUCB, InflatedThompsonSampling, InflatedPosteriorSampling):
        with pytest.raises(InvalidInput, match=r"InputPerturbation.*one point.*model\.posterior"):
            rule(pair[0], FixedWidth(2.0))


# Searches

SHORT = {"maxiter": 15, "seed": 0, "n_burnin": 20, "n_thinning": 2}  # of samples under constraints
OPTIONS: dict[str, Any] = {"num_restarts": 2, "raw_samples": 8, "options": SHORT}
NUMBERS = {"noise_std": RIDGE**0.5, "norm_bound": 9.0, "delta": 0.1}
RULES: dict[str, Callable[[Any], Any]] = {
    "KernelUCB": lambda m: KernelUCB(m, SelfNormalized(**NUMBERS)),
    "KernelUCB of -f": lambda m: KernelUCB(
        m, FixedWidth(2.0), ScalarizedPosteriorTransform(-torch.ones(1).double())
    ),
    "AMMUCB": lambda m: acquisition.AMMUCB(m, **NUMBERS),
    "DMMUCB": lambda m: acquisition.DMMUCB(m, **NUMBERS),
    "CMMUCB": lambda m: acquisition.CMMUCB(m, **NUMBERS),
    "ChainingUCB": lambda m: acquisition.ChainingUCB(m, X, delta=0.1),
    "InflatedThompsonSampling": lambda m: InflatedThompsonSampling(m, SelfNormalized(**NUMBERS)),
    "ConstrainedKernelUCB": lambda m: ConstrainedKernelUCB(
        ModelListGP(m, m), [FixedWidth(2.0)] * 2, 0, {1: (3, 4)}
    ),
}
SUM = (torch.tensor([0, 1]), torch.tensor([-1.0, -1.0]).double(), -0.8)  # x_0 + x_1 <= 0.8
SEARCHES: dict[str, Callable[[Any], tuple[Tensor, Tensor]]] = {
    "`optimize_acqf`": lambda a: optimize_acqf(a, BOUNDS, q=1, **OPTIONS),
    "`optimize_acqf` with float32 bounds of a float64 model": lambda a: optimize_acqf(
        a, BOUNDS.float(), 1, **OPTIONS
    ),
    "`optimize_acqf` of two points": lambda a: optimize_acqf(a, BOUNDS, q=2, **OPTIONS),
    "`optimize_acqf(sequential=True)`": lambda a: optimize_acqf(
        a, BOUNDS, q=2, sequential=True, **OPTIONS
    ),
    "`optimize_acqf(inequality_constraints=...)`": lambda a: optimize_acqf(
        a, BOUNDS, q=2, inequality_constraints=[SUM], **OPTIONS
    ),
    "`optimize_acqf(fixed_features=...)`": lambda a: optimize_acqf(
        a, BOUNDS, q=1, fixed_features={0: 0.25}, **OPTIONS
    ),
    "`optimize_acqf_cyclic`": lambda a: optimize_acqf_cyclic(
        a, BOUNDS, q=2, cyclic_options={"maxiter": 1}, **OPTIONS
    ),
    "`optimize_acqf_discrete`": lambda a: optimize_acqf_discrete(a, q=2, choices=X),
    "`optimize_acqf_mixed`": lambda a: optimize_acqf_mixed(
        a, BOUNDS, q=1, fixed_features_list=[{1: 0.5}], **OPTIONS
    ),
}


WAYS = [("KernelRidgeGP", rule, way) for rule in RULES for way in SEARCHES]
WAYS += [(name, "KernelUCB", way) for name in MODELS for way in SEARCHES]


@pytest.mark.parametrize(
    ("name", "rule", "way"),
    [
        case
        if "DMMUCB" in case or "discrete" in case[2]
        else pytest.param(*case, marks=pytest.mark.botorch)
        for case in dict.fromkeys(WAYS)
    ],
)
def test_every_rule_and_model_is_searched_in_every_way(name, rule, way):
    acqf = RULES[rule](made(name, input_transform=Normalize(2)))
    found, value = SEARCHES[way](acqf)
    assert value.isfinite().all()
    assert ((found >= BOUNDS[0]) & (found <= BOUNDS[1])).all()
    assert getattr(acqf, "X_pending", None) is None
    if "discrete" in way:
        assert torch.equal(found[0], X[acqf(X.unsqueeze(-2)).argmax()])
    assert "inequality" not in way or (found.sum(-1) <= 0.8 + 1e-6).all()
    assert "fixed" not in way or found[0, 0] == 0.25
    assert "mixed" not in way or found[0, 1] == 0.5
    if way == "`optimize_acqf`":
        assert acqf(found) >= acqf(points(4, 1, 2, seed=3)).max()


# What differs


def test_paths_are_functions_drawn_by_kbo_with_the_moments_of_the_posterior():
    model = made("NystromGP", **BOTH())
    P = X[:4] + 0.1
    paths = draw_matheron_paths(model, torch.Size([400]))
    values = paths(P)
    posterior = model.posterior(P)
    assert paths(P.expand(5, 1, 4, 2)).shape == (5, 400, 4)
    spread = posterior.variance.sqrt().squeeze(-1)
    assert ((values.mean(0) - posterior.mean.squeeze(-1)).abs() < 0.3 * spread).all()
    assert ((values.std(0) / spread - 1).abs() < 0.25).all()
    one = get_matheron_path_model(made())
    assert one.posterior(Z).mean.shape == (3, 2, 1)
    close(one(Z)[:, :1], one(ONE), 1e-10)
    assert torch.autograd.gradcheck(PathwiseThompsonSampling(made()), ONE.clone().requires_grad_())


def fit(model: Any) -> None:
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))


def test_an_analytic_acquisition_function_moves_the_model_to_the_dtype_of_its_points():
    model = made()
    expected = LogExpectedImprovement(made(), LEVEL)(ONE)
    close(LogExpectedImprovement(model, LEVEL)(ONE.float()).double(), expected, 1e-2)
    assert model.train_targets.dtype == torch.float32


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "batched models: `batch_cross_validation`": (
        lambda: batch_cross_validation(
            KernelRidgeGP,
            ExactMarginalLogLikelihood,
            gen_loo_cv_folds(X, Y),
            model_init_kwargs={"kernel": kernel(), "ridge": RIDGE},
        ),
        r"one model of each batch.*loo_cv",
    ),
    "several outputs in one model": (
        lambda: KernelRidgeGP(X, Y.expand(-1, 2), kernel(), RIDGE),
        "ModelListGP of one model",
    ),
    "`ModelListGP` in bounds and draws of kbo, but for `ConstrainedKernelUCB`, `SafeUCB` and `SafeExpander`": (
        lambda: KernelUCB(listed(made()), FixedWidth(2.0)),
        "one of its models, or take ConstrainedKernelUCB",
    ),
    "`ModelListGP.condition_on_observations`, with transforms": (
        lambda: listed(made("NystromGP", input_transform=Normalize(2))).condition_on_observations(
            [NEW] * 2, X[:3]
        ),
        "condition each",
    ),
    "`loo_cv` of other models than `KernelRidgeGP`": (
        lambda: loo_cv(made("NystromGP")),
        "NystromGP has no leave",
    ),
    "fits of fantasies, `AdaptiveRidgeGP` and `PosteriorGP`": (
        lambda: fit(made("PosteriorGP")),
        "^PosteriorGP cannot be fitted and has no leave-one-out formula: take a KernelRidgeGP",
    ),
    "one point without its row": (lambda: made().posterior(X[0]), r"\(2,\): use X\.unsqueeze"),
    "`observation_noise` as a number": (
        lambda: made().posterior(X, observation_noise=0.1),  # pyright: ignore
        r"a tensor of variances",
    ),
    "batches that do not fit": (
        lambda: made().condition_on_observations(Z, Z[..., :1]).posterior(points(5, 4, 2)),
        r"\(5,\), must broadcast",
    ),
    "searches before there are data": (
        lambda: optimize_acqf(
            KernelUCB(KernelRidgeGP(X[:0], Y[:0], kernel(), 1.0), FixedWidth(2.0)),
            BOUNDS,
            q=1,
            **OPTIONS,
        ),
        "no data",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_says_so(name):
    call, message = REFUSED[name]
    with pytest.raises(InvalidInput, match=message):
        call()


def test_the_table_in_the_docs_lists_these_cases():
    page = (Path(__file__).parents[2] / "docs" / "integrations.md").read_text("utf-8")
    part = page[page.index("## BoTorch") :].split("\n## ")[0]
    rows = {
        "works as in BoTorch": [*WORKS, *UNTRANSFORMED],
        "the same with `train_Yvar`": KNOWN,
        "searches": SEARCHES,
        "refused, with a message that says what to do": REFUSED,
    }
    for name, cases in rows.items():
        row = f"| {name} | {'; '.join(cases)} |"
        assert row in part.splitlines(), row
    models = f"{len(MODELS)} models x {len(DTYPES)} dtypes x {len(TRANSFORMS)} transforms x {len(SHAPES)} shapes"
    assert models in part, models
    searches = f"{len(RULES)} acquisition functions of kbo x {len(SEARCHES)} searches"
    assert searches in part, searches
