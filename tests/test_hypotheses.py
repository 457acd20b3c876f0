"""Several hypotheses, of which one is true: the union of their bounds, and what refutes them."""

import math

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel

import kbo
from kbo.acquisition import KernelUCB
from kbo.confidence import (
    AdaptiveSelfNormalized,
    FixedWidth,
    MartingaleMixture,
    NoiseBounds,
    SelfNormalized,
)
from kbo.confidence.energy import averaged as averaged_energy
from kbo.confidence.unexplained import norm_by_energy, unexplained
from kbo.errors import InvalidInput, RefutedAssumptions
from kbo.models import KernelRidgeGP
from kbo.optimize.surrogates.surrogate import Bound
from kbo.optimize.surrogates.union import union
from kbo.regression import AdaptiveRidge, KernelRidge

BOUNDS = {"x": (0.0, 1.0)}


def rbf(lengthscale):
    kernel = RBFKernel().double()
    kernel.lengthscale = lengthscale
    return kernel


LENGTHS, NORMS = (0.1, 0.3, 0.9), (3.0, 3.0, 9.0)
HYPOTHESES = [
    kbo.Hypothesis(rbf(length), 0.1, norm) for length, norm in zip(LENGTHS, NORMS, strict=True)
]


def data(n=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    X = torch.rand(n, 1, generator=generator).double()
    return X, (X[:, 0] * 4).sin() + 0.1 * torch.randn(n, generator=generator).double()


def states():
    made = [KernelRidge(one.kernel, one.noise_std**2) for one in HYPOTHESES]
    for state in made:
        state.update(*data())
    return made


GRID = torch.linspace(0, 1, 11, dtype=torch.float64).unsqueeze(1)


def bounds(*kinds):
    """Bounds of the hypotheses on posteriors of their own."""
    parts = []
    for kind, one, state in zip(kinds, HYPOTHESES, states(), strict=True):
        parts.append(Bound(kind(one.noise_std, one.norm_bound, 0.1), state))
    return parts


@pytest.mark.parametrize("kind", [MartingaleMixture, SelfNormalized])
def test_the_bounds_are_the_union_of_those_of_the_hypotheses(kind):
    parts = bounds(kind, kind, kind)
    each = [part.confidence.interval(part.posterior, GRID) for part in parts]
    found = union(parts, 3)
    lower, upper = found.confidence.interval(found.posterior, GRID)
    assert torch.equal(lower, torch.stack([one[0] for one in each]).amin(0))
    assert torch.equal(upper, torch.stack([one[1] for one in each]).amax(0))
    largest = found.confidence.argmax_upper(found.posterior, GRID)
    assert largest == (int(upper.argmax()), float(upper.max()))
    statement = found.confidence.guarantee_on(found.posterior)
    assert "or if kernel and numbers of another one of 3 hypotheses are right instead" in statement
    with pytest.raises(InvalidInput, match="given another one"):
        found.confidence.interval(parts[1].posterior, GRID)


def test_the_probability_to_fail_is_that_of_the_worst_hypothesis_also_where_the_noise_is_learned():
    X, y = data()
    parts = []
    for share in (0.05, 0.08):
        noise = NoiseBounds(5.0, share, upper=1.0)
        state = AdaptiveRidge(KernelRidge(MaternKernel(nu=2.5).double(), 1.0), noise)
        state.update(X, y)
        parts.append(Bound(AdaptiveSelfNormalized(), state))
    found = union(parts, 2)
    assert found.confidence.delta_on(found.posterior) == 0.08


def test_each_hypothesis_is_searched_with_the_hypothetical_observations():
    found = union(bounds(*[SelfNormalized] * 3), 3)
    X, y = data(2, seed=3)
    imagined = found.given(X, y)
    for part, alone in zip(imagined.parts, states(), strict=True):
        alone.update(X, y)
        assert torch.allclose(part.posterior.predict(GRID)[0], alone.predict(GRID)[0], atol=1e-8)
    assert imagined.confidence.guarantee_on(imagined.posterior) is None
    assert "hypothetical" in imagined.confidence.objections(imagined.posterior)[0]


def test_what_one_hypothesis_does_not_prove_is_not_proved():
    unproved = bounds(*[SelfNormalized] * 3)
    unproved[1] = Bound(FixedWidth(2.0), unproved[1].posterior)
    mixed = bounds(SelfNormalized, MartingaleMixture, SelfNormalized)
    for parts in (unproved, mixed):
        found = union(parts, 3)
        assert found.confidence.guarantee_on(found.posterior) is None
        assert "several kinds" in found.confidence.objections(found.posterior)[0]
    assert "no theorem covers FixedWidth" in union(unproved, 3).confidence.objections(
        unproved[0].posterior
    )


def test_a_hypothesis_that_the_data_refute_is_left_out_of_the_union():
    parts = bounds(*[MartingaleMixture] * 3)
    impossible = Bound(MartingaleMixture(0.1, 1e-3, 0.1), parts[1].posterior)
    with pytest.raises(RefutedAssumptions):
        impossible.confidence.interval(impossible.posterior, GRID)
    left, found = union([parts[0], parts[2]], 3), union([parts[0], impossible, parts[2]], 3)
    for mine, own in zip(
        found.confidence.interval(found.posterior, GRID),
        left.confidence.interval(left.posterior, GRID),
        strict=True,
    ):
        assert torch.equal(mine, own)
    with pytest.raises(RefutedAssumptions):
        union([impossible], 1).confidence.interval(impossible.posterior, GRID)


def run(hypotheses, n=14, function=None, **options):
    generator = torch.Generator().manual_seed(0)
    function = function or (lambda x: math.sin(4 * x))

    def objective(params):
        return function(params["x"]) + 0.1 * float(torch.randn((), generator=generator))

    return kbo.minimize(
        objective, BOUNDS, n, setting=kbo.Certified(hypotheses, delta=0.1), **options
    )


def test_a_run_has_the_bounds_of_each_hypothesis_alone():
    found = run(HYPOTHESES)
    optimizer = found.optimizer
    gaps, intervals = [], []
    for one in HYPOTHESES:
        alone = kbo.Optimizer(
            BOUNDS, setting=kbo.Certified(one.kernel, one.noise_std, one.norm_bound, delta=0.1)
        )
        for trial in found.trials:
            alone.tell(alone.run.begin(trial.params), trial.value)
        intervals.append([alone.interval({"x": x}) for x in (0.1, 0.6)])
        belief, best = (
            alone.insight.surrogate(),
            alone.space.features(alone.space.unit(found.params).unsqueeze(0)),
        )
        lower = float(belief.reported.lower(belief.posterior, best))
        gaps.append(float(belief.reported.upper(belief.posterior, GRID).max()) - lower)
    for i, x in enumerate((0.1, 0.6)):
        lower, _, upper = optimizer.interval({"x": x})
        assert lower == pytest.approx(min(each[i][0] for each in intervals))
        assert upper == pytest.approx(max(each[i][2] for each in intervals))
    assert found.gap >= max(gaps) - 1e-6  # the grid misses the largest upper bound a little
    assert found.gap == pytest.approx(max(gaps), abs=0.1)
    assert found.certified
    assert "3 of 3 are left" in found.account["hypotheses"]


def test_a_refuted_hypothesis_leaves_for_good_and_the_result_says_when():
    small = kbo.Hypothesis(rbf(0.3), 0.1, 0.2)
    found = run([small, *HYPOTHESES])
    belief = found.optimizer.insight.surrogate()
    assert list(belief.parts) == [1, 2, 3]
    assert 1 <= belief.refuted[0] <= 5
    assert f"1 refuted, the last after {belief.refuted[0]} values" in found.account["hypotheses"]
    one_by_one = kbo.Optimizer(BOUNDS, setting=kbo.Certified([small, *HYPOTHESES], delta=0.1))
    for trial in found.trials:
        one_by_one.tell(one_by_one.run.begin(trial.params), trial.value)
        one_by_one.insight.surrogate()
    assert one_by_one.insight.surrogate().refuted == belief.refuted
    with pytest.raises(RefutedAssumptions, match="every hypothesis"):
        run([small, small])


def test_a_run_with_hypotheses_continues_from_its_journal_and_only_with_them(tmp_path):
    path = tmp_path / "run.jsonl"
    first = run(HYPOTHESES, 5, journal=path)
    again = kbo.Optimizer(BOUNDS, setting=kbo.Certified(HYPOTHESES, delta=0.1), journal=path)
    assert again.suggest() == first.optimizer.suggest()
    again.close()
    with pytest.raises(kbo.JournalError, match="hypotheses"):
        kbo.Optimizer(BOUNDS, setting=kbo.Certified(HYPOTHESES[:2], delta=0.1), journal=path)
    page = kbo.report.write(first, tmp_path / "run.html").read_text()
    assert "3 of 3 are left" in page


def test_hypotheses_differ_in_noise_and_error_bars_weigh_by_each():
    pair = [kbo.Hypothesis(rbf(0.3), 0.1, 2.0), kbo.Hypothesis(rbf(0.3), 0.4, 2.0)]
    optimizer = kbo.Optimizer(BOUNDS, setting=kbo.Certified(pair))
    optimizer.tell({"x": 0.5}, (0.3, {"sem": 0.2}))
    weights = [
        float(part.posterior.locations[1]) for part in optimizer.insight.surrogate().parts.values()
    ]
    assert weights == pytest.approx([0.25, 4.0])


def test_constraints_and_safe_runs_take_hypotheses_of_the_objective():
    limit = kbo.Constraint("size", upper=2.0, noise_std=0.05, norm_bound=3.0, kernel=rbf(0.5))
    setting = kbo.Safe(HYPOTHESES, start=[{"x": 0.5}])

    def objective(params):
        return math.sin(4 * params["x"]), {"size": params["x"]}

    found = kbo.minimize(objective, BOUNDS, 6, setting=setting, constraints=[limit])
    assert found.certified
    with pytest.raises(InvalidInput, match="kernel of its own"):
        kbo.Optimizer(
            BOUNDS,
            setting=setting,
            constraints=[kbo.Constraint("a", upper=20.0, noise_std=1, norm_bound=3)],
        )


def test_constraints_have_hypotheses_of_their_own(tmp_path):
    listed = kbo.Constraint("size", upper=0.9, kernel=HYPOTHESES)
    single = [
        kbo.Constraint(
            "size", upper=0.9, noise_std=h.noise_std, norm_bound=h.norm_bound, kernel=h.kernel
        )
        for h in HYPOTHESES
    ]
    settings = {"setting": kbo.Certified(rbf(0.3), 0.1, 4.0)}
    found = kbo.Optimizer(BOUNDS, constraints=[listed], journal=tmp_path / "run.jsonl", **settings)
    alone = [kbo.Optimizer(BOUNDS, constraints=[one], **settings) for one in single]
    generator = torch.Generator().manual_seed(1)
    for _ in range(6):
        params, noise = found.ask(), 0.1 * float(torch.randn((), generator=generator))
        value = math.sin(4 * params["x"]) + noise, {"size": params["x"] + noise}
        found.tell(params, value)
        for one in alone:
            one.tell(params, value)
    each = [one.interval({"x": 0.3}, "size") for one in alone]
    low, _, high = found.interval({"x": 0.3}, "size")
    assert low == min(one[0] for one in each)
    assert high == max(one[2] for one in each)
    assert found.insight.feasibility().probability == 0.9
    assert "3 hypotheses" in repr(listed)
    found.close()
    reopened = kbo.Optimizer(
        BOUNDS, constraints=[listed], journal=tmp_path / "run.jsonl", **settings
    )
    assert reopened.suggest() == found.suggest()
    reopened.close()
    shorter = kbo.Constraint("size", upper=0.9, kernel=HYPOTHESES[:2])
    with pytest.raises(kbo.JournalError, match="hypotheses"):
        kbo.Optimizer(BOUNDS, constraints=[shorter], journal=tmp_path / "run.jsonl", **settings)
    page = kbo.report.write(tmp_path / "run.jsonl", tmp_path / "run.html").read_text()
    assert "size &lt;= 0.9" in page or "size <= 0.9" in page
    with pytest.raises(InvalidInput, match="belong to the hypotheses"):
        kbo.Constraint("size", upper=0.9, kernel=HYPOTHESES, norm_bound=1.0)
    with pytest.raises(InvalidInput, match="infeasible at once"):
        kbo.Optimizer(
            BOUNDS, constraints=[kbo.Constraint("size", lower=30.0, kernel=HYPOTHESES)], **settings
        )
    always = kbo.Optimizer(
        BOUNDS, constraints=[kbo.Constraint("size", upper=30.0, kernel=HYPOTHESES)], **settings
    )
    always.tell(always.ask(), (0.5, {"size": 1.0}))
    assert (
        "1 - 0.1" in always.insight.surrogate().guarantee().text
    )  # a limit that cannot be broken takes no part of delta
    with pytest.raises(InvalidInput, match="no list of hypotheses"):
        kbo.Optimizer(
            BOUNDS,
            setting=kbo.Certified(rbf(0.3), None, 4.0),
            method="dmm-ucb-adaptive",
            constraints=[listed],
        )


def test_models_of_botorch_take_one_kernel():
    X, y = data()
    with pytest.raises(InvalidInput, match=r"one gpytorch\.kernels\.Kernel.*kbo\.Certified"):
        KernelRidgeGP(X, y.unsqueeze(-1), HYPOTHESES, 0.01)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([],), "kernel, or a list"),
        (([rbf(0.1)],), "kernel, or a list"),
        ((HYPOTHESES, 0.1), "belong to the hypotheses"),
        ((rbf(0.1), 0.1), "norm_bound"),
    ],
)
def test_what_is_no_list_of_hypotheses_is_refused(arguments, message):
    with pytest.raises(InvalidInput, match=message):
        kbo.Certified(*arguments)


def test_methods_for_one_kernel_are_refused():
    for method in ("dmm-ucb-adaptive", "chaining-ucb"):
        with pytest.raises(InvalidInput, match="no list of hypotheses"):
            kbo.Optimizer(BOUNDS, setting=kbo.Certified(HYPOTHESES), method=method)
    for method in ("cmm-ucb", "amm-ucb", "k-ucb"):
        assert (
            0
            <= kbo.Optimizer(BOUNDS, setting=kbo.Certified(HYPOTHESES), method=method).ask()["x"]
            <= 1
        )


def test_a_proposed_list_contains_twice_a_wave_with_so_many_turns():
    x = torch.linspace(0, 1, 400, dtype=torch.float64).unsqueeze(1)
    for turns in (0, 1, 3):
        for one in kbo.hypotheses(0.1, 5.0, turns, lengthscales=[0.2, 0.8]):
            gram = one.kernel(x).to_dense() + 1e-9 * torch.eye(400, dtype=torch.float64)
            wave = 5.0 * torch.cos(math.pi * (turns + 1) * x[:, 0])
            norm = float(wave @ torch.linalg.solve(gram, wave)) ** 0.5
            assert 2 * norm * (1 - 1e-3) <= one.norm_bound <= 2.2 * norm
            assert isinstance(one.kernel.base_kernel, MaternKernel)
    found = kbo.hypotheses(0.1, 5.0, lengthscales=[0.2, 0.4], norms=[1, 3])
    assert list(map(str, found)) == [
        "MaternKernel, lengthscale 0.2, variance 25, noise 0.1, norm 1",
        "MaternKernel, lengthscale 0.4, variance 25, noise 0.1, norm 3",
    ]
    for options in ({"lengthscales": []}, {"norms": [1.0]}, {"lengthscales": 0.4}):
        with pytest.raises(InvalidInput, match=r"lengthscales|norms"):
            kbo.hypotheses(0.1, 1.0, **options)
    with pytest.raises(InvalidInput, match="turns"):
        kbo.hypotheses(0.1, 1.0, -1)


@pytest.mark.parametrize("unit", [0.01, 300.0])
def test_bounds_of_a_proposed_list_follow_the_units_of_the_objective(unit):
    plain, scaled = (
        kbo.Optimizer(BOUNDS, setting=kbo.Certified(kbo.hypotheses(0.1 * u, 1.0 * u)))
        for u in (1, unit)
    )
    generator = torch.Generator().manual_seed(0)
    for _ in range(8):
        params = plain.ask()
        value = math.sin(3 * params["x"]) + 0.1 * float(torch.randn((), generator=generator))
        plain.tell(params, value)
        scaled.tell(scaled.run.begin(params), unit * value)
    assert scaled.interval({"x": 0.3}) == pytest.approx(
        [unit * one for one in plain.interval({"x": 0.3})], rel=1e-6
    )


def test_residuals_larger_than_the_noise_refute_a_kernel_that_is_too_smooth():
    X = torch.rand(30, 1, generator=torch.Generator().manual_seed(0)).double()
    noise = 0.1 * torch.randn(30, generator=torch.Generator().manual_seed(1)).double()
    state = KernelRidge(rbf(0.6), 0.01)
    state.update(X, torch.cos(9 * X[:, 0]) + noise)
    least = norm_by_energy(state, 0.1, 0.01)
    # by its definition: the residuals of every function of a smaller norm have more energy than the noise
    values, vectors = torch.linalg.eigh(rbf(0.6)(X).to_dense().detach())
    y = vectors.T @ (torch.cos(9 * X[:, 0]) + noise)
    ridges = torch.logspace(-9, 3, 4000, dtype=torch.float64).unsqueeze(1)
    values = values.clamp_min(0)
    residual = (ridges * y / (values + ridges)).square().sum(1)
    norms = (values * (y / (values + ridges)).square()).sum(1).sqrt()
    most = 0.01 * averaged_energy(30, 0.01, strict=False)[1]
    assert least == pytest.approx(float(norms[residual >= most].max()), rel=0.02)
    assert norm_by_energy(KernelRidge(rbf(0.6), 0.01), 0.1, 0.01) == 0
    weighted = KernelRidge(rbf(0.6), 0.01)
    weighted.update(
        X, 2 * (torch.cos(9 * X[:, 0]) + noise), weights=torch.full((30,), 0.25).double()
    )
    assert norm_by_energy(weighted, 0.1, 0.01) == pytest.approx(2 * least, rel=1e-6)


def test_true_assumptions_are_hardly_ever_refuted_by_the_energy_of_the_noise():
    grid = torch.linspace(0, 1, 20, dtype=torch.float64).unsqueeze(1)
    gram = rbf(0.4)(grid).to_dense().detach()
    weights = torch.randn(20, generator=torch.Generator().manual_seed(3)).double()
    norm = float((weights @ gram @ weights).sqrt())
    generator, refused = torch.Generator().manual_seed(4), 0
    for _ in range(100):
        state = KernelRidge(rbf(0.4), 0.01)
        for _ in range(6):
            rows = torch.randint(20, (4,), generator=generator)
            noise = 0.1 * torch.randn(4, generator=generator).double()
            state.update(grid[rows], (gram @ weights)[rows] + noise)
            if norm_by_energy(state, 0.1, 0.2) > norm:
                refused += 1
                break
    assert refused <= 20


def test_a_run_ends_when_the_noise_does_not_explain_the_values():
    def waves(x):
        return math.cos(6 * math.pi * x)

    listed = kbo.hypotheses(0.1, 1.0, 0)
    with pytest.raises(
        RefutedAssumptions, match=r"further from every function .* at most 0\.01 \(n = "
    ):
        run(listed, 40, waves)
    # as long as one hypothesis explains the values, those that do not stay
    kept = run([*listed, *kbo.hypotheses(0.1, 1.0, 5, lengthscales=[0.2])], 8, waves)
    belief = kept.optimizer.insight.surrogate()
    assert any(part.unexplained for part in belief.parts.values())
    assert not belief.unexplained
    assert not unexplained(FixedWidth(2.0), belief.posterior)


def test_an_acquisition_function_has_no_guarantee_if_the_noise_does_not_explain_the_values():
    X = torch.linspace(0, 1, 12).double().unsqueeze(-1)
    model = KernelRidgeGP(X, torch.cos(18 * X), rbf(1.0), 0.01)
    for bound in (MartingaleMixture(0.1, 3.0, 0.1), SelfNormalized(0.1, 3.0, 0.1)):
        acquisition = KernelUCB(model, bound)
        assert acquisition.guarantee is None
        assert acquisition.objections
    assert "further from every function" in " ".join(
        KernelUCB(model, SelfNormalized(0.1, 3.0, 0.1)).objections
    )
    assert KernelUCB(model, SelfNormalized(1.0, 3.0, 0.1)).objections != acquisition.objections
