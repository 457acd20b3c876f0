"""Several hypotheses, of which one is true: the union of their bounds, and what refutes them."""

import math
from dataclasses import replace

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
from kbo.confidence.least_norm import norm_by_energy, unexplained
from kbo.errors import InvalidInput, RefutedAssumptions
from kbo.models import KernelRidgeGP
from kbo.optimize.surrogates.hypotheses_surrogate import union
from kbo.optimize.surrogates.surrogate import Bound
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
    return [
        Bound(kind(one.noise_std, one.norm_bound, 0.1), state)
        for kind, one, state in zip(kinds, HYPOTHESES, states(), strict=True)
    ]


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


def test_the_probability_to_fail_is_that_of_the_worst_hypothesis_also_where_the_noise_is_learned():
    parts = []
    for share in (0.05, 0.08):
        noise = NoiseBounds(5.0, share, upper=1.0)
        state = AdaptiveRidge(KernelRidge(MaternKernel(nu=2.5).double(), 1.0), noise)
        state.update(*data())
        parts.append(Bound(AdaptiveSelfNormalized(), state))
    found = union(parts, 2)
    assert found.confidence.delta_on(found.posterior) == 0.08


def test_each_hypothesis_is_searched_with_the_hypothetical_observations():
    found = union(bounds(*[SelfNormalized] * 3), 3)
    X, y = data(2, seed=3)
    imagined = found.given(X, y)
    for part, alone in zip(imagined.confidence.bounds, states(), strict=True):
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
    left, found = union([parts[0], parts[2]], 3), union([parts[0], impossible, parts[2]], 3)
    expected = left.confidence.interval(left.posterior, GRID)
    for mine, own in zip(found.confidence.interval(found.posterior, GRID), expected, strict=True):
        assert torch.equal(mine, own)
    with pytest.raises(RefutedAssumptions):
        union([impossible], 1).confidence.interval(impossible.posterior, GRID)


def run(hypotheses, n=14, function=lambda x: math.sin(4 * x), **options):
    generator = torch.Generator().manual_seed(0)

    def objective(params):
        return function(params["x"]) + 0.1 * float(torch.randn((), generator=generator))

    setting = kbo.Certified(hypotheses, delta=0.1)
    return kbo.minimize(objective, BOUNDS, n, setting=setting, **options)


def test_a_refuted_hypothesis_leaves_for_good_and_the_result_says_when():
    small = kbo.Hypothesis(rbf(0.3), 0.1, 0.2)
    found = run([small, *HYPOTHESES])
    belief = found.optimizer.insight.surrogate()
    assert list(belief.surrogates) == [1, 2, 3]
    assert 1 <= belief.refuted[0] <= 5
    assert f"1 refuted, the last after {belief.refuted[0]} values" in found.account["hypotheses"]
    with pytest.raises(RefutedAssumptions, match="every hypothesis"):
        run([small, small])


def test_a_run_with_hypotheses_continues_from_its_journal_and_only_with_them(tmp_path):
    path = tmp_path / "run.jsonl"
    first = run(HYPOTHESES, 5, journal=path)
    assert first.certified
    assert "3 of 3 are left" in first.account["hypotheses"]
    again = kbo.Optimizer(BOUNDS, setting=kbo.Certified(HYPOTHESES, delta=0.1), journal=path)
    assert again.suggest() == first.optimizer.suggest()
    again.close()
    with pytest.raises(kbo.JournalError, match="hypotheses"):
        kbo.Optimizer(BOUNDS, setting=kbo.Certified(HYPOTHESES[:2], delta=0.1), journal=path)


def test_hypotheses_differ_in_noise_and_error_bars_weigh_by_each():
    pair = [kbo.Hypothesis(rbf(0.3), noise_std, 2.0) for noise_std in (0.1, 0.4)]
    optimizer = kbo.Optimizer(BOUNDS, setting=kbo.Certified(pair))
    optimizer.tell({"x": 0.5}, (0.3, {"sem": 0.2}))
    surrogates = optimizer.insight.surrogate().surrogates
    assert float(surrogates[0].posterior.locations[1]) == pytest.approx(0.25)
    assert float(surrogates[1].posterior.locations[1]) == pytest.approx(4.0)


def test_the_gap_over_a_finite_space_is_the_largest_of_those_of_the_hypotheses():
    smooth_or_large = [kbo.Hypothesis(rbf(0.3), 0.05, 2.0), kbo.Hypothesis(rbf(1.0), 0.05, 6.0)]

    def gap(hypotheses):
        setting = kbo.Certified(hypotheses)
        optimizer = kbo.Optimizer({"n": kbo.Int(0, 20)}, setting=setting)
        for n in (0, 5, 10):
            optimizer.tell(optimizer.run.begin({"n": n}), 0.3 * math.sin(n))
        return optimizer.gap()

    together = gap(smooth_or_large)
    alone = [gap([hypothesis]).value for hypothesis in smooth_or_large]
    assert together.proved
    assert max(alone) > 1.1 * min(alone)
    assert together.value == pytest.approx(max(alone))


def test_constraints_have_hypotheses_of_their_own():
    def opened(constraint):
        setting = kbo.Certified(rbf(0.3), 0.1, 4.0)
        return kbo.Optimizer(BOUNDS, setting=setting, constraints=[constraint])

    found = opened(kbo.Constraint("size", upper=0.9, kernel=HYPOTHESES))
    alone = []
    for h in HYPOTHESES:
        own = {"noise_std": h.noise_std, "norm_bound": h.norm_bound, "kernel": h.kernel}
        alone.append(opened(kbo.Constraint("size", upper=0.9, **own)))
    for x, noise in ((0.1, 0.05), (0.5, -0.1), (0.8, 0.02)):
        for optimizer in (found, *alone):
            optimizer.tell(optimizer.run.begin({"x": x}), (math.sin(4 * x), {"size": x + noise}))
    each = [one.interval({"x": 0.3}, "size") for one in alone]
    low, _, high = found.interval({"x": 0.3}, "size")
    assert low == min(one[0] for one in each)
    assert high == max(one[2] for one in each)
    assert found.insight.feasibility().probability == 0.9
    with pytest.raises(InvalidInput, match="belong to the hypotheses"):
        kbo.Constraint("size", upper=0.9, kernel=HYPOTHESES, norm_bound=1.0)
    with pytest.raises(InvalidInput, match="infeasible at once"):
        opened(kbo.Constraint("size", lower=30.0, kernel=HYPOTHESES))


def test_what_is_no_list_of_hypotheses_or_needs_one_kernel_is_refused():
    with pytest.raises(InvalidInput, match="kernel, or a list"):
        kbo.Certified([rbf(0.1)])
    with pytest.raises(InvalidInput, match="belong to the hypotheses"):
        kbo.Certified(HYPOTHESES, 0.1)
    setting = kbo.Certified(HYPOTHESES)
    for method in ("dmm-ucb-adaptive", "k-ucb", "bkb", "ek-ucb"):
        with pytest.raises(InvalidInput, match="no list of hypotheses"):
            kbo.Optimizer(BOUNDS, setting=setting, method=method)
    for method in ("cmm-ucb", "amm-ucb", "dmm-ucb"):
        assert 0 <= kbo.Optimizer(BOUNDS, setting=setting, method=method).ask()["x"] <= 1


def test_a_proposed_list_contains_twice_a_wave_with_so_many_turns():
    x = torch.linspace(0, 1, 400, dtype=torch.float64).unsqueeze(1)
    for turns in (0, 1, 3):
        for one in kbo.hypotheses(0.1, 5.0, turns, lengthscales=[0.2, 0.8]):
            gram = one.kernel(x).to_dense() + 1e-9 * torch.eye(400, dtype=torch.float64)
            wave = 5.0 * torch.cos(math.pi * (turns + 1) * x[:, 0])
            norm = float(wave @ torch.linalg.solve(gram, wave)) ** 0.5
            assert 2 * norm * (1 - 1e-3) <= one.norm_bound <= 2.2 * norm
            assert isinstance(one.kernel.base_kernel, MaternKernel)
    hypothesis = replace(kbo.hypotheses(0.1, 5.0)[0], norm_bound=3.0)
    assert str(hypothesis) == "MaternKernel, lengthscale 0.4, variance 25, noise 0.1, norm 3"
    for options in ({"lengthscales": []}, {"lengthscales": 0.4}, {"turns": -1}):
        with pytest.raises(InvalidInput, match=r"lengthscales|turns"):
            kbo.hypotheses(0.1, 1.0, **options)


def test_bounds_of_a_proposed_list_follow_the_units_of_the_objective():
    unit = 300.0
    plain = kbo.Optimizer(BOUNDS, setting=kbo.Certified(kbo.hypotheses(0.1, 1.0)))
    scaled = kbo.Optimizer(BOUNDS, setting=kbo.Certified(kbo.hypotheses(0.1 * unit, unit)))
    generator = torch.Generator().manual_seed(0)
    for _ in range(4):
        params = plain.ask()
        value = math.sin(3 * params["x"]) + 0.1 * float(torch.randn((), generator=generator))
        plain.tell(params, value)
        scaled.tell(scaled.run.begin(params), unit * value)
    expected = [unit * one for one in plain.interval({"x": 0.3})]
    assert scaled.interval({"x": 0.3}) == pytest.approx(expected, rel=1e-6)


def test_residuals_larger_than_the_noise_refute_a_kernel_that_is_too_smooth():
    X = torch.rand(30, 1, generator=torch.Generator().manual_seed(0)).double()
    noise = 0.1 * torch.randn(30, generator=torch.Generator().manual_seed(1)).double()
    values = torch.cos(9 * X[:, 0]) + noise
    state = KernelRidge(rbf(0.6), 0.01)
    state.update(X, values)
    # by its definition: the residuals of every function of a smaller norm have more energy than the noise
    eigenvalues, vectors = torch.linalg.eigh(rbf(0.6)(X).to_dense().detach())
    eigenvalues = eigenvalues.clamp_min(0)
    y = vectors.T @ values
    ridges = torch.logspace(-9, 3, 4000, dtype=torch.float64).unsqueeze(1)
    residual = (ridges * y / (eigenvalues + ridges)).square().sum(1)
    norms = (eigenvalues * (y / (eigenvalues + ridges)).square()).sum(1).sqrt()
    most = 0.01 * averaged_energy(30, 0.01, strict=False)[1]
    expected = float(norms[residual >= most].max())
    assert norm_by_energy(state, 0.1, 0.01) == pytest.approx(expected, rel=0.02)
    assert norm_by_energy(KernelRidge(rbf(0.6), 0.01), 0.1, 0.01) == 0


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
    assert any(part.unexplained for part in belief.surrogates.values())
    assert not belief.unexplained
    assert not unexplained(FixedWidth(2.0), belief.posterior)


def test_an_acquisition_function_has_no_guarantee_if_the_noise_does_not_explain_the_values():
    X = torch.linspace(0, 1, 12).double().unsqueeze(-1)
    model = KernelRidgeGP(X, torch.cos(18 * X), rbf(1.0), 0.01)
    acquisition = KernelUCB(model, SelfNormalized(0.1, 3.0, 0.1))
    assert acquisition.guarantee is None
    assert "further from every function" in " ".join(acquisition.objections)
