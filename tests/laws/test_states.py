"""What every posterior must obey, whatever its kernel and however it is computed."""

from __future__ import annotations

import io
import math
import pickle
import time
import warnings

import pytest
import torch
from gpytorch.kernels import ScaleKernel
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck

from kbo import KernelRidge
from kbo.confidence import MartingaleMixture
from kbo.errors import IllConditionedWarning, InvalidInput, NotPositiveDefinite
from kbo.linalg import PANEL
from kbo.regression import Hypothetical, RidgePath, track
from kbo.regression.posterior import PathOneByOne
from tests.dense import Dense, close
from tests.laws.states import DICTIONARIES, STATES, VARIANTS, State, rbf, seeded

RIDGES = [1e-3, 0.1, 10.0]


def over(states: list[State]):
    """A fixture of each of these."""
    return pytest.fixture(scope="session", params=states, ids=lambda case: case.name)


@over(STATES)
def case(request) -> State:
    """One for each way to compute a posterior."""
    return request.param


@over([*STATES, *VARIANTS])
def variant(request) -> State:
    """Other kernels and dictionaries too."""
    return request.param


@over([*STATES, *DICTIONARIES])
def saved(request) -> State:
    """Every state that has something of its own to save."""
    return request.param


@over([case for case in STATES if case.exact])
def exact(request) -> State:
    return request.param


@over([case for case in STATES if not case.living])
def settled(request) -> State:
    """Posteriors that are functions of the set of their data."""
    return request.param


@over(list({type(case.make(case.kernel(), 0.1)): case for case in reversed(STATES)}.values()))
def checked(request) -> State:
    """One for each class that checks what it is given."""
    return request.param


@over([case for case in [*STATES, *DICTIONARIES] if case.name != "third-party"])
def weighable(request) -> State:
    """Posteriors that take weights."""
    return request.param


FEW = settings(max_examples=4)
"""Examples for laws over all states."""


def answers(state, Z: Tensor, ridges=RIDGES) -> dict[str, Tensor]:
    mean, variance = state.predict(Z, ridges)
    return {
        "mean": mean,
        "variance": variance,
        "covariance": state.covariance(Z, Z.flip(0), ridges),
        "log_det": state.log_det(ridges),
        "quad": state.quad(ridges),
        "effective_dimension": state.effective_dimension(ridges),
    }


def any_ridges(state, Z: Tensor, ridges=RIDGES) -> dict[str, Tensor]:
    """The same numbers from ``all_ridges()``, which computes them in another way, and the residuals."""
    many = state.all_ridges()
    values = many.ridges(ridges)
    mean, variance = many.predict(Z, values)
    names = ("log_det", "quad", "rss", "effective_dimension")
    return {"mean": mean, "variance": variance, **{name: getattr(many, name)(values) for name in names}}


def dense_answers(formulas: Dense, Z: Tensor, ridges=RIDGES) -> dict[str, Tensor]:
    """The numbers of ``any_ridges`` by the formulas."""
    found = answers(formulas, Z, ridges)
    fits = formulas.mean(formulas.X, ridges)
    found["rss"] = (formulas.y - fits).square() @ formulas.w
    del found["covariance"]
    return found


def same(actual: dict[str, Tensor], expected: dict[str, Tensor], tol: float = 1e-8) -> None:
    torch.testing.assert_close(actual, expected, rtol=tol, atol=tol)


def identical(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)


def pulls(case: State, n: int, arms: int, device, seed: int = 3) -> tuple[Tensor, Tensor]:
    """n observations of few locations."""
    choice = torch.randint(arms, (n,), generator=seeded(seed))
    return case.points(arms, seed)[choice].to(device), case.data(n, device, seed)[1]


def chunks(n: int, size: int = 20, seed: int = 5) -> list[slice]:
    """Random consecutive pieces of 0 .. n."""
    ends = torch.randint(1, size, (n,), generator=seeded(seed)).cumsum(0).clamp_max(n).unique().tolist()
    return [slice(a, b) for a, b in zip([0, *ends], ends, strict=False)]


# Values


def test_equals_the_dense_formulas_at_several_ridges(variant, device):
    X, y = variant.data(60, device)
    Z = torch.cat([variant.points(7, 1).to(device), X[:3]])
    state = variant.fed(X, y)
    assert state.n == 60
    formulas = variant.formulas(state, X, y)
    same(answers(state, Z), answers(formulas, Z))
    same(any_ridges(state, Z), dense_answers(formulas, Z))
    close(state.rss(RIDGES), dense_answers(formulas, Z)["rss"])


def test_ridge_omitted_means_the_ridge_of_the_state(case, device):
    state, Z = case.fed(*case.data(30, device), ridge=0.03), case.points(5, 1).to(device)
    assert state.ridge == 0.03
    same(answers(state, Z, None), answers(state, Z, 0.03), 1e-12)


def test_leverage_is_variance_over_ridge(case, device):
    state, Z = case.fed(*case.data(30, device)), case.points(5, 1).to(device)
    close(
        state.leverage(Z, RIDGES),
        state.predict(Z, RIDGES)[1] / torch.tensor(RIDGES, dtype=Z.dtype, device=device)[:, None],
    )


def test_the_empty_state_is_the_prior(case, device):
    state, Z = case.make(case.kernel(), 0.1), case.points(6, 1).to(device)
    state.update(Z[:0], Z[:0, 0])
    prior = Dense(case.kernel(), Z[:0], Z[:0, 0])
    mean, variance = state.predict(Z)
    close(mean, torch.zeros_like(mean))
    close(variance, prior.predict(Z, 0.1)[1])
    close(state.covariance(Z, Z), prior.covariance(Z, Z, 0.1))
    assert state.n == state.log_det() == state.quad() == state.effective_dimension() == 0


def test_variance_never_grows_with_data_and_stays_positive(case, device):
    """With a living dictionary it may grow, but is never more than the prior variance."""
    X, y = pulls(case, 80, 30, device)
    Z, state = case.points(40, 3).to(device), case.make(case.kernel(), 1e-3)
    before = prior = state.predict(Z)[1]
    for piece in chunks(80, 10):
        state.update(X[piece], y[piece])
        after = state.predict(Z)[1]
        assert (after <= before + 1e-12).all()
        assert (after > 0).all()
        before = prior if case.living else after


# Order and repetition


def test_one_by_one_across_a_panel_equals_batch(case, device):
    X, y = case.data(PANEL + 12, device)
    Z, state = case.points(5, 1).to(device), case.make(case.kernel(), 0.1)
    for i in range(len(y)):
        state.update(X[i : i + 1], y[i : i + 1])
        if i % 3:  # so that factors also have to catch up with several updates at once
            state.predict(Z, RIDGES[i % 2])
    same(answers(state, Z), answers(case.fed(X, y), Z))


@FEW
@given(cuts=st.lists(st.integers(0, PANEL + 44), max_size=8), ask=st.integers(1, 3))
def test_any_chunks_equal_batch(case, device, cuts, ask):
    X, y = case.data(PANEL + 44, device)
    Z, state = case.points(5, 1).to(device), case.make(case.kernel(), 0.1)
    ends = [*sorted(cuts), len(y)]
    for number, (a, b) in enumerate(zip([0, *ends], ends, strict=False)):
        state.update(X[a:b], y[a:b])
        if number % ask == 0:
            state.predict(Z)
    same(answers(state, Z), answers(case.fed(X, y), Z))


def test_every_ridge_is_exact_along_a_stream_however_rarely_it_is_queried(case, device):
    """Across all refreshes of the eigenbasis, those without a query between two of them too."""
    X, y = case.data(200, device)
    Z, state = torch.cat([case.points(5, 1).to(device), X[:2]]), case.make(case.kernel(), 0.1)
    queried = set((torch.rand(200, generator=seeded(9)) < 0.1).nonzero().flatten().tolist()) | {0, 7, 8, 199}
    for i in range(200):
        state.update(X[i : i + 1], y[i : i + 1])
        if i in queried:
            same(any_ridges(state, Z), dense_answers(case.formulas(state, X[: i + 1], y[: i + 1]), Z))
    same(answers(state, Z), answers(case.formulas(state, X, y), Z))


@FEW
@given(order=st.permutations(range(40)))
def test_the_order_of_the_data_does_not_matter(settled, device, order):
    X, y = settled.data(40, device)
    Z = settled.points(5, 1).to(device)
    same(answers(settled.fed(X[order], y[order]), Z), answers(settled.fed(X, y), Z))


def test_repeated_points_equal_the_dense_formulas_on_all_observations(case, device):
    X, y = pulls(case, 240, 12, device)
    Z, state = case.points(15, 3).to(device), case.make(case.kernel(), 0.1)
    for number, piece in enumerate(chunks(240)):
        state.update(X[piece], y[piece])
        state.predict(Z, RIDGES)
        if number % 6 == 0:
            so_far = case.formulas(state, X[: piece.stop], y[: piece.stop])
            same(answers(state, Z), answers(so_far, Z))
            same(any_ridges(state, Z), dense_answers(so_far, Z))
    assert state.n == 240
    same(answers(state, Z), answers(case.formulas(state, X, y), Z))


def weights_of(y: Tensor, seed: int = 9) -> Tensor:
    return torch.exp(2 * torch.randn(len(y), generator=seeded(seed), dtype=torch.float64)).to(y)


def test_weights_equal_the_dense_formulas_along_a_stream(weighable, device):
    X, y = pulls(weighable, 160, 30, device)
    Z, weights, state = weighable.points(8, 3).to(device), weights_of(y), weighable.make(weighable.kernel(), 0.1)
    followed = track(state, Z)
    for number, piece in enumerate(chunks(160)):
        followed.update(X[piece], y[piece], weights[piece])
        close(torch.stack(followed.predict()), torch.stack(state.predict(Z)))
        if number % 6 == 0:
            so_far = weighable.formulas(state, *(part[: piece.stop] for part in (X, y, weights)))
            same(answers(state, Z), answers(so_far, Z))
            same(any_ridges(state, Z), dense_answers(so_far, Z))
            close(state.residual_trace, so_far.residual.trace())
            assert state.residual_log_det(0.1) >= (1 - 1e-9) * torch.linalg.slogdet(so_far.I + so_far.residual / 0.1)[1]
            close(state.residual_log_det(0.1), (state.residuals / 0.1).log1p().sum())
            assert state.residual_norm() >= (1 - 1e-9) * torch.linalg.matrix_norm(so_far.residual, 2)
    copy = weighable.make(weighable.kernel(), 0.1)
    copy.load_state_dict(state.state_dict())
    assert state.n == 160
    for one in (state, state.fork(), copy):
        formulas = weighable.formulas(one, X, y, weights)
        same({**answers(one, Z), "rss": one.rss(RIDGES)}, {**answers(formulas, Z), **dense_answers(formulas, Z)})
        close(one.trace, formulas.trace)
        assert one.weighted


@pytest.mark.parametrize(
    "settled",
    [case for case in STATES if not case.living and case.name != "third-party"],
    ids=lambda case: case.name,
)
def test_whole_weights_are_repeats_and_a_common_factor_belongs_to_the_ridge(settled, device):
    X, y = settled.data(30, device)
    Z, counts = settled.points(8, 1).to(device), torch.arange(30, device=device) % 4 + 1
    state, scaled = (settled.make(settled.kernel(), 0.1) for _ in range(2))
    state.update(X, y, counts.double())
    scaled.update(X, y, 7 * counts.double())
    repeated = settled.fed(X.repeat_interleave(counts, 0), y.repeat_interleave(counts))
    same({**answers(state, Z), "rss": state.rss(RIDGES)}, {**answers(repeated, Z), "rss": repeated.rss(RIDGES)})
    found, sevenfold = answers(scaled, Z, [7 * ridge for ridge in RIDGES]), answers(state, Z)
    same(found, {**sevenfold, "quad": 7 * sevenfold["quad"]})


def test_weights_that_cannot_be_used_are_refused_and_change_nothing(checked, device):
    X, y = checked.data(12, device)
    state = checked.fed(X[:8], y[:8])
    ones = torch.ones_like(y[8:])
    bad = [ones - 1, -ones, ones / 0, ones[:-1], ones.float(), 1.0]
    for weights in [*bad, ones] if checked.name == "third-party" else bad:
        with pytest.raises(InvalidInput, match="weights"):
            state.update(X[8:], y[8:], weights)
    assert state.n == 8
    assert not state.weighted


@pytest.mark.parametrize("n", [1024, pytest.param(10_000, marks=pytest.mark.slow)])
def test_thousands_of_pulls_of_one_arm_are_exact_and_quick(case, device, n):
    # Directions of a fixed dictionary that have no data have an eigenvalue of ridge + rounding of n k.
    ridge = 1e-8 if case.exact or case.living else 0.1
    x, state = case.points(1, 0).to(device), case.make(case.kernel(), ridge)
    y = 3 + torch.randn(n, generator=seeded(0), dtype=torch.float64).to(device)
    began = time.process_time()
    for i in range(n):
        state.update(x, y[i : i + 1])
        if i % 500 == 0:
            state.predict(x)
    mean, variance = state.predict(x)
    assert time.process_time() - began < 30 * n / 10_000
    ridge = state.ridge  # it may follow the noise
    one = case.formulas(state, x, y[:1])
    k, unseen = float(one.K), float(one.residual)  # what the dictionary sees of the arm, and what it does not
    assert state.n == n
    close(mean, (n * k / (n * k + ridge) * y.mean()).reshape(1))
    expected = max(unseen + ridge * k / (n * k + ridge), ridge * (k + unseen) / (n * (k + unseen) + ridge))
    torch.testing.assert_close(float(variance), expected, rtol=1e-6, atol=1e-15)
    assert float(state.log_det()) == pytest.approx(math.log1p(n * k / ridge), rel=1e-8)
    close(state.quad(), y.square().sum() - y.sum() ** 2 * k / (ridge + n * k))
    assert float(state.effective_dimension()) == pytest.approx(n * k / (n * k + ridge), abs=1e-6)


def test_rounding_never_takes_a_variance_below_its_least_possible_value(case, device):
    x, state = case.points(1, 0).to(device), case.make(case.kernel(), 1e-8)
    k = float(state.prior_variance(x))
    for n in range(1, 200):
        state.update(x, torch.ones(1, dtype=torch.float64, device=device))
        ridge = state.ridge
        assert float(state.predict(x)[1]) >= (1 - 1e-9) * ridge * k / (ridge + n * k)


# Units


@FEW
@given(log_s=st.floats(-6, 6))
def test_scaling_the_targets_scales_the_mean_only(case, device, log_s):
    s, Z = math.exp(log_s), case.points(5, 1).to(device)
    X, y = case.data(30, device)
    plain = answers(case.fed(X, y), Z)
    expected = {**plain, "mean": s * plain["mean"], "quad": s**2 * plain["quad"]}
    torch.testing.assert_close(answers(case.fed(X, s * y), Z), expected, rtol=1e-8, atol=1e-8 * min(1, s**2))


@FEW
@given(log_s=st.floats(-6, 6))
def test_scaling_kernel_and_ridge_scales_the_variance_only(case, device, log_s):
    X, y = case.data(30, device)
    Z, kernel = case.points(5, 1).to(device), ScaleKernel(case.kernel()).double()
    kernel.outputscale = math.exp(log_s)
    s = float(kernel.outputscale.detach())
    scaled = case.make(kernel, 0.1 * s)
    scaled.update(X, y)
    plain = answers(case.fed(X, y), Z)
    expected = {**plain, **{name: s * plain[name] for name in ("variance", "covariance")}}
    actual = answers(scaled, Z, [r * s for r in RIDGES])
    torch.testing.assert_close(actual, expected, rtol=1e-8, atol=1e-8 * min(1, s))


# Shapes and types


def test_a_prediction_does_not_depend_on_the_other_rows(case, device):
    state, Z = case.fed(*case.data(50, device)), case.points(24, 1).to(device)
    mean, variance = state.predict(Z)
    for i in range(0, 24, 5):
        close(torch.stack(state.predict(Z[i])), torch.stack([mean[i], variance[i]]), 1e-12)
        close(torch.cat(state.predict(Z[i : i + 1])), torch.stack([mean[i], variance[i]]), 1e-12)
    batched = state.predict(Z.reshape(2, 3, 4, -1), RIDGES)
    for actual, expected in zip(batched, state.predict(Z, RIDGES), strict=True):
        close(actual, expected.reshape(3, 2, 3, 4), 1e-12)
    assert state.predict(Z[:0], RIDGES)[0].shape == (3, 0)


def test_covariance_has_any_batch_shape(case, device):
    state, Z = case.fed(*case.data(50, device)), case.points(24, 1).to(device)
    A, B = Z[:12].reshape(2, 2, 3, -1), Z[8:].reshape(2, 2, 4, -1)
    actual = state.covariance(A, B, RIDGES)
    assert actual.shape == (3, 2, 2, 3, 4)
    close(actual[:, 1, 0], state.covariance(A[1, 0], B[1, 0], RIDGES), 1e-12)


def test_several_ridges_give_a_leading_axis(case, device):
    state, Z = case.fed(*case.data(50, device)), case.points(8, 1).to(device)
    one_by_one = [answers(state, Z, ridge) for ridge in RIDGES]
    expected = {name: torch.stack([answer[name] for answer in one_by_one]) for name in one_by_one[0]}
    same(answers(state, Z, RIDGES), expected)
    same(answers(state, Z, torch.tensor(RIDGES, dtype=torch.float64, device=device)), expected)
    same(answers(state, Z, RIDGES[:1]), {name: value[:1] for name, value in expected.items()})
    identical(answers(state, Z, torch.tensor(0.1, dtype=torch.float64)), one_by_one[1])


def test_float32_stays_float32_and_close_to_float64(case, device):
    X, y = case.data(PANEL + 10, device)
    Z = case.points(8, 1).to(device)
    single = answers(case.fed(X.float(), y.float()), Z.float(), [0.1, 10.0])
    assert {value.dtype for value in single.values()} == {torch.float32}
    same({name: value.double() for name, value in single.items()}, answers(case.fed(X, y), Z, [0.1, 10.0]), 2e-3)


# Paths


def same_path(path: RidgePath, expected: RidgePath, groups: int, like: Tensor) -> None:
    """Every group at a ridge of its own, all at each of several, and a selection of groups."""
    generator = seeded(groups)
    own = 10 ** (torch.rand(groups, generator=generator, dtype=torch.float64) * 5 - 3).to(like)
    some = torch.randperm(groups, generator=generator)[: groups // 2].to(like.device)
    for one, other, ridges in ((path, expected, own), (path.select(some), expected.select(some), own[some])):
        for actual, wanted in zip(
            [*one.at(ridges), *one.grid(ridges[:3])], [*other.at(ridges), *other.grid(ridges[:3])], strict=True
        ):
            assert actual.shape == wanted.shape
            close(actual, wanted)
    wanted = expected.select(some.new_tensor([1, groups - 1])).at(own[[1, 1]])
    if wanted.mean.shape[-1] == 1:
        moments, quad = path.few([1, groups - 1])(float(own[1]))
        close(like.new_tensor(moments).mT, torch.stack([wanted.mean[:, 0], wanted.covariance[:, 0, 0]]))
        close(like.new_tensor(quad), wanted.quad.expand(2)[0])


@pytest.mark.parametrize(("n", "g"), [(0, 3), (1, 1), (8, 3), (70, 1), (70, 3)])
def test_a_path_answers_as_the_state_and_the_formulas_do(case, device, n, g):
    X, y = pulls(case, n, 50, device)
    state, groups = case.make(case.kernel(), 0.1), case.points(6 * g, 4).reshape(6, g, -1).to(device)
    for piece in chunks(n, 12):
        state.update(X[piece], y[piece])
    same_path(state.all_ridges().path(groups), PathOneByOne(state, groups), 6, groups)
    reference, ridges = case.formulas(state, X, y), [1e-3, 0.01, 0.05, 0.3, 2.0, 50.0]
    found = state.all_ridges().path(groups).at(groups.new_tensor(ridges))
    for i, (P, ridge) in enumerate(zip(groups, ridges, strict=True)):
        close(found.mean[i], reference.mean(P, ridge))
        close(found.covariance[i], reference.covariance(P, P, ridge))
        close(found.quad.expand(6)[i], reference.quad(ridge))
        close(groups.new_tensor(state.all_ridges().quad_at()(ridge)), reference.quad(ridge))
    same_path(state.all_ridges().path(groups.reshape(2, 3, g, -1)), PathOneByOne(state, groups), 6, groups)


@pytest.mark.parametrize(("g", "with_targets"), [(1, True), (3, False)])
def test_a_path_of_hypothetical_data_answers_as_the_view_does(case, device, g, with_targets):
    state, groups = case.fed(*case.data(40, device)), case.points(6 * g, 4).reshape(6, g, -1).to(device)
    P = case.points(6, 5).reshape(2, 3, -1).to(device)
    targets = torch.randn(2, 3, generator=seeded(6), dtype=torch.float64).to(device) if with_targets else None
    weights = targets.exp() if with_targets else None
    views = [Hypothetical(state, P[i], *((targets[i], weights[i]) if with_targets else ())) for i in range(2)]
    same_path(views[0].all_ridges().path(groups), PathOneByOne(views[0], groups), 6, groups)
    batched = groups.reshape(2, 3, g, -1)  # P [2 p d] and X [2 3 g d]
    ridges = torch.tensor([0.01, 0.1, 1.0, 0.02, 0.2, 2.0], dtype=torch.float64, device=device)
    found = Hypothetical(state, P, targets, weights).all_ridges().path(batched).at(ridges)
    for i, view in enumerate(views):
        half = slice(3 * i, 3 * i + 3)
        for actual, wanted in zip(found, PathOneByOne(view, batched[i]).at(ridges[half]), strict=True):
            close(actual[half], wanted)


def test_a_path_of_tracked_points_answers_as_the_state_does_along_a_stream(case, device):
    X, y = case.data(90, device)
    Z, state = case.points(8, 4).to(device), case.make(case.kernel(), 0.1)
    tracked = track(state, Z)
    for piece in chunks(90, 7):
        tracked.update(X[piece].repeat(2, 1), torch.cat([y[piece], y[piece] + 0.3]))  # rows that count twice
        same_path(tracked.all_ridges().path(Z.unsqueeze(-2)), PathOneByOne(state, Z.unsqueeze(-2)), 8, Z)
    triples = case.points(6, 5).reshape(2, 3, -1).to(device)
    same_path(tracked.all_ridges().path(triples), PathOneByOne(state, triples), 2, Z)


# Copies


@pytest.mark.parametrize("ridge", [0.1, 1e-8])
def test_a_saved_state_continues_bit_for_bit(saved, device, ridge):
    X, y = pulls(saved, 240, 60, device)
    Z, state = saved.points(70, 3).to(device), saved.make(saved.kernel(), ridge)
    for piece in chunks(120):
        state.update(X[piece], y[piece])
        state.predict(Z)
    file = io.BytesIO()
    torch.save(state.state_dict(), file)
    file.seek(0)
    restored = saved.make(saved.kernel(), ridge)
    restored.load_state_dict(torch.load(file, weights_only=True))
    identical(answers(restored, Z, [ridge, 10.0]), answers(state, Z, [ridge, 10.0]))
    for piece in chunks(120, seed=6):
        for one in (state, restored):
            one.update(X[120:][piece], y[120:][piece])
        assert restored.n == state.n
        identical(answers(restored, Z, [ridge, 10.0]), answers(state, Z, [ridge, 10.0]))


def test_a_state_that_is_asked_for_many_ridges_is_saved_bit_for_bit(case, device):
    X, y = pulls(case, 200, 150, device)
    Z, ridges, state = case.points(30, 4).to(device), [1e-4, 0.01, 0.3, 2.0, 50.0], case.make(case.kernel(), 0.1)
    bound, restored = MartingaleMixture(0.3, 50.0, 0.1, "cmm"), None
    for number, piece in enumerate(chunks(200)):
        for one in filter(None, (state, restored)):
            one.update(X[piece], y[piece])
        if number % 3 == 0:
            state.predict(Z, ridges)
        if number % 5 == 4:
            restored = case.make(case.kernel(), 0.1)
            restored.load_state_dict(state.state_dict())
        if restored is not None:
            identical(answers(restored, Z, ridges), answers(state, Z, ridges))
            assert bound.argmax_upper(restored, Z) == bound.argmax_upper(state, Z)
            assert bound.argmax_upper(track(restored, Z), Z) == bound.argmax_upper(track(state, Z), Z)
            assert torch.equal(bound.upper(restored, Z), bound.upper(state, Z))


def test_one_arm_pulled_often_is_saved_bit_for_bit(case, device):
    """Where rounding exceeds the variance, the variance is its least possible value; that too must be restored."""
    x, state = case.points(1, 0).to(device), case.make(case.kernel(), 1e-8)
    for i in range(200):
        state.update(x, torch.tensor([i / 7], dtype=torch.float64, device=device))
        if i % 10 == 0:
            restored = case.make(case.kernel(), 1e-8)
            restored.load_state_dict(state.state_dict())
            identical(answers(restored, x, None), answers(state, x, None))


def test_the_empty_state_can_be_saved(case, device):
    restored = case.fed(*case.data(5, device))
    restored.load_state_dict(case.make(case.kernel(), 0.1).state_dict())
    Z = case.points(5, 1).to(device)
    assert restored.n == 0
    identical(answers(restored, Z), answers(case.make(case.kernel(), 0.1), Z))


@pytest.mark.parametrize("n", [5, PANEL - 6, PANEL])
def test_a_fork_equals_an_update_and_leaves_the_parent_alone(case, device, n):
    X, y = case.data(n + 20, device)
    Z, parent = case.points(5, 1).to(device), case.fed(X[:n], y[:n])
    before = answers(parent, Z)
    child = parent.fork()
    child.update(X[n:], y[n:])
    same(answers(child, Z), answers(case.fed(X, y), Z))
    identical(answers(parent, Z), before)
    grown = answers(child, Z)
    parent.update(X[n : n + 3], -y[n : n + 3])
    same(answers(parent, Z), answers(case.fed(X[: n + 3], torch.cat([y[:n], -y[n : n + 3]])), Z))
    identical(answers(child, Z), grown)


def test_a_pickled_state_goes_on_as_the_state_does(case, device):
    X, y = case.data(40, device)
    Z, state = case.points(5, 1).to(device), case.fed(X[:10], y[:10])
    for one in (state, other := pickle.loads(pickle.dumps(state))):
        one.update(X[:3], y[:3])
        one.update(X[10:], y[10:])
    same(answers(other, Z), answers(state, Z))


def test_every_change_increases_the_version(case, device):
    X, y = case.data(12, device)
    state, versions = case.make(case.kernel(), 0.1), []
    for piece in (slice(0, 4), slice(4, 5), slice(5, 12)):
        versions.append(state.version)
        state.update(X[piece], y[piece])
    fork = state.fork()
    versions += [state.version]
    assert fork.version == state.version
    fork.update(X[:1], y[:1])
    assert fork.version > state.version
    fork.load_state_dict(state.state_dict())
    versions += [fork.version]
    assert versions == sorted(set(versions))


def test_changing_the_kernel_or_the_data_outside_changes_nothing(case, device):
    X, y = case.data(20, device)
    kernel, Z = case.kernel(), case.points(5, 1).to(device)
    expected = answers(case.fed(X.clone(), y.clone()), Z)
    state = case.make(kernel, 0.1)
    for tensor in (*kernel.parameters(), *kernel.buffers()):
        tensor.data.zero_()
    state.update(X, y)
    for tensor in (X, y):
        tensor.zero_()
    identical(answers(state, Z), expected)


# Views


def test_tracked_points_equal_predictions_along_a_stream(case, device):
    X, y = pulls(case, 200, 20, device)
    Z, state = case.points(30, 3).to(device), case.make(case.kernel(), 0.1)
    early, late = track(state, Z), None
    for number, piece in enumerate(chunks(200)):
        early.update(X[piece], y[piece])
        if number == 4:
            late = track(state, Z)
        for tracked in filter(None, (early, late)):
            close(torch.stack(tracked.predict(Z, RIDGES)), torch.stack(state.predict(Z, RIDGES)))
            close(torch.stack(tracked.predict()), torch.stack(state.predict(Z)))
    identical(answers(early, Z[:5]), answers(state, Z[:5]))


def test_tracked_points_follow_a_state_whose_data_were_replaced(case, device):
    X, y = case.data(20, device)
    Z, state = case.points(5, 1).to(device), case.fed(X, y)
    tracked = track(state, Z)
    tracked.predict()
    state.load_state_dict(case.fed(X.flip(0), -y).state_dict())
    close(torch.stack(tracked.predict()), torch.stack(state.predict(Z)))


@pytest.mark.parametrize("n", [0, 40])
def test_hypothetical_data_equal_a_real_update(exact, device, n):
    X, y = exact.data(n + 6, device)
    P, targets, Z = X[n:], y[n:], torch.cat([exact.points(5, 1).to(device), X[:1]])
    state, counts = exact.fed(X[:n], y[:n]), torch.arange(1, 7, device=device) if n else torch.ones(6).int().to(device)
    fork = state.fork()
    fork.update(P.repeat_interleave(counts, 0), targets.repeat_interleave(counts))
    view = Hypothetical(state, P, targets, counts.to(y) if n else None)
    close(torch.stack(view.predict(Z, RIDGES)), torch.stack(fork.predict(Z, RIDGES)))
    close(view.covariance(Z, Z[:3], RIDGES), fork.covariance(Z, Z[:3], RIDGES))
    close(torch.stack(view.predict(Z)), torch.stack(fork.predict(Z)))


def test_hypothetical_data_without_targets_keep_the_mean_and_shrink_the_variance(exact, device):
    X, y = exact.data(46, device)
    state, Z = exact.fed(X[:40], y[:40]), exact.points(5, 1).to(device)
    fork = state.fork()
    fork.update(X[40:], y[40:])
    view = Hypothetical(state, X[40:])
    mean, variance = view.predict(Z, RIDGES)
    close(mean, state.predict(Z, RIDGES)[0])
    close(variance, fork.predict(Z, RIDGES)[1])
    assert view.n == state.n
    identical({"log_det": view.log_det(), "quad": view.quad()}, {"log_det": state.log_det(), "quad": state.quad()})


def test_weights_of_hypothetical_data_are_kept_in_forks_and_drawn_functions(case, device):
    state, Z, P = case.fed(*case.data(40, device)), case.points(6, 1).to(device), case.points(3, 2).to(device)
    targets, weights = P.sum(-1).sin(), torch.tensor([0.01, 1.0, 1e8]).to(P)
    view = Hypothetical(state, P, targets, weights)
    close(torch.stack(view.fork_frozen().predict(Z)), torch.stack(view.predict(Z)), 1e-12)
    exact = Hypothetical(state, P, targets, weights.new_full((3,), 1e12)).at()
    assert exact.draw_function(P, seeded(0))(P).abs().max() < 1e-4  # deviations vanish where there is no noise


def test_hypothetical_data_come_in_batches(case, device):
    state, Z = case.fed(*case.data(40, device)), case.points(6, 1).to(device)
    P, targets = case.points(12, 2).reshape(2, 2, 3, -1).to(device), torch.ones(2, 2, 3).double().to(device)
    mean, variance = Hypothetical(state, P, targets).predict(Z)
    for i, j in [(0, 0), (1, 0), (1, 1)]:
        close(
            torch.stack([mean[i, j], variance[i, j]]),
            torch.stack(Hypothetical(state, P[i, j], targets[i, j]).predict(Z)),
        )
    batch = Hypothetical(state, P[0, 0], targets[0, 0]).predict(Z.reshape(3, 2, -1))
    close(torch.stack(batch), torch.stack(Hypothetical(state, P[0, 0], targets[0, 0]).predict(Z)).reshape(2, 3, 2))


# Gradients


@pytest.fixture(scope="session", params=[case for case in STATES if case.differentiable], ids=lambda case: case.name)
def smooth(request) -> State:
    return request.param


def test_gradients_of_predictions_and_covariances_are_exact(smooth, device):
    state = smooth.fed(*pulls(smooth, 30, 20, device))
    Z, other = smooth.points(3, 1).to(device).requires_grad_(), smooth.points(2, 2).to(device).requires_grad_()
    assert gradcheck(lambda Z: state.predict(Z, [0.01, 1.0]), Z)
    assert gradcheck(lambda Z: state.predict(Z.reshape(3, 1, -1)), Z)
    assert gradcheck(state.covariance, (Z, other))
    assert gradcheck(lambda Z: state.covariance(Z, Z), Z)


def test_gradients_of_hypothetical_data_are_exact(smooth, device):
    state = smooth.fed(*smooth.data(20, device))
    Z, P = smooth.points(3, 1).to(device).requires_grad_(), smooth.points(2, 2).to(device).requires_grad_()
    targets = torch.tensor([1.0, -2.0], dtype=torch.float64, device=device, requires_grad=True)
    assert gradcheck(lambda Z, P, t: Hypothetical(state, P, t).predict(Z), (Z, P, targets))
    assert gradcheck(lambda Z, P: Hypothetical(state, P).predict(Z), (Z, P))


def test_gradients_at_observed_points_are_finite(smooth, device):
    X, y = smooth.data(20, device)
    Z = X[:4].clone().requires_grad_()
    state = smooth.fed(X, y)
    sum(value.sum() for value in state.predict(Z)).backward()
    assert Z.grad.isfinite().all()


def test_answers_without_gradients_carry_no_graph(case, device):
    state, Z = case.fed(*case.data(10, device)), case.points(3, 1).to(device)
    assert not any(value.requires_grad for value in answers(state, Z).values())


# Bad input


def spoilt(tensor: Tensor, value: float) -> Tensor:
    tensor = tensor.clone()
    tensor.reshape(-1)[0] = value
    return tensor


BAD_DATA = {
    "NaN in X": lambda X, y: (spoilt(X, math.nan), y),
    "inf in X": lambda X, y: (spoilt(X, math.inf), y),
    "NaN in y": lambda X, y: (X, spoilt(y, math.nan)),
    "inf in y": lambda X, y: (X, spoilt(y, -math.inf)),
    "no columns": lambda X, y: (X[:, :0], y),
    "one row without its axis": lambda X, y: (X[0], y),
    "an axis too many": lambda X, y: (X[None], y),
    "integer X": lambda X, y: (X.long(), y),
    "integer y": lambda X, y: (X, y.long()),
    "complex y": lambda X, y: (X, y + 0j),
    "float32 y": lambda X, y: (X, y.float()),
    "y too short": lambda X, y: (X, y[:-1]),
    "y as a column": lambda X, y: (X, y[:, None]),
    "a list": lambda X, y: (X.tolist(), y),
    "no targets": lambda X, y: (X, None),
}


@pytest.mark.parametrize("bad", BAD_DATA.values(), ids=BAD_DATA)
def test_bad_data_are_refused_and_change_nothing(checked, device, bad):
    X, y = checked.data(12, device)
    Z, state, empty = checked.points(5, 1).to(device), checked.fed(X[:8], y[:8]), checked.make(checked.kernel(), 0.1)
    before = answers(state, Z)
    for one in (state, empty):
        with pytest.raises(InvalidInput):
            one.update(*bad(X[8:], y[8:]))
    assert (state.n, empty.n) == (8, 0)
    identical(answers(state, Z), before)
    empty.update(X[:8], y[:8])
    identical(answers(empty, Z), before)


def test_data_unlike_those_before_are_refused(checked, device):
    X, y = checked.data(12, device)
    state, Z = checked.fed(X[:8], y[:8]), checked.points(5, 1).to(device)
    before = answers(state, Z)
    for unlike in ((X.float(), y.float()), (torch.cat([X, X], -1), y)):
        with pytest.raises(InvalidInput):
            state.update(*unlike)
    identical(answers(state, Z), before)


BAD_POINTS = {
    "NaN": lambda Z: spoilt(Z, math.nan),
    "inf": lambda Z: spoilt(Z, math.inf),
    "columns too many": lambda Z: torch.cat([Z, Z, Z], -1),
    "integer": lambda Z: Z.long(),
    "float32": lambda Z: Z.float(),
    "a number": lambda Z: Z[0, 0],
    "a list": lambda Z: Z.tolist(),
}


@pytest.mark.parametrize("bad", BAD_POINTS.values(), ids=BAD_POINTS)
def test_bad_points_are_refused(checked, device, bad):
    state, Z = checked.fed(*checked.data(8, device)), checked.points(5, 1).to(device)
    for question in (state.predict, lambda P: state.covariance(Z, P), lambda P: state.covariance(P, Z), state.leverage):
        with pytest.raises(InvalidInput):
            question(bad(Z))


BAD_RIDGES = [-1.0, 0.0, math.nan, math.inf, "small", [0.1, -1.0], torch.tensor([0.1, math.nan]), []]


@pytest.mark.parametrize("ridge", BAD_RIDGES, ids=repr)
def test_bad_ridges_are_refused(checked, device, ridge):
    state, Z = checked.fed(*checked.data(8, device)), checked.points(5, 1).to(device)
    before = answers(state, Z)
    for question in (state.log_det, state.quad, state.effective_dimension, lambda r: state.predict(Z, r)):
        with pytest.raises(InvalidInput):
            question(ridge)
    with pytest.raises(InvalidInput):
        checked.make(checked.kernel(), ridge)
    identical(answers(state, Z), before)


@pytest.mark.parametrize("columns", [1, 3])
def test_data_that_do_not_fit_the_lengthscales_are_refused(device, columns):
    state, X = KernelRidge(rbf(ard_num_dims=2), 0.1), torch.ones(4, columns, dtype=torch.float64, device=device)
    with pytest.raises(InvalidInput):
        state.update(X, X[:, 0])
    with pytest.raises(InvalidInput):
        state.predict(X)
    assert state.n == 0


def test_a_precomputed_kernel_refuses_unknown_objects_and_changes_nothing(device):
    case = next(case for case in VARIANTS if case.name == "exact-precomputed")
    state, Z = case.fed(*case.data(8, device)), case.points(5, 1).to(device)
    before = answers(state, Z)
    for index in (-1.0, 400.0, 0.5):
        with pytest.raises(InvalidInput):
            state.update(torch.full((1, 1), index, dtype=torch.float64, device=device), Z[:1, 0])
    assert state.n == 8
    identical(answers(state, Z), before)


# Precision


@pytest.fixture
def close_points(device) -> tuple[Tensor, Tensor]:
    """Pairs of points that a smooth kernel cannot tell apart in float64."""
    X = torch.linspace(0, 1, 10, dtype=torch.float64, device=device)[:, None].expand(10, 2)
    return torch.cat([X, X + 1e-10]), torch.ones(20, dtype=torch.float64, device=device)


@pytest.mark.filterwarnings("ignore::kbo.errors.IllConditionedWarning")
def test_a_matrix_that_cannot_be_factored_is_an_error_and_a_larger_ridge_heals_it(close_points):
    X, y = close_points
    state = KernelRidge(rbf(), 1e-18)
    state.update(X, y)
    for question in (lambda: state.predict(X), state.log_det, state.quad, lambda: state.covariance(X, X)):
        with pytest.raises(NotPositiveDefinite, match="larger ridge"):
            question()
    same(answers(state, X[:3]), answers(Dense(rbf(), X, y), X[:3]))


@pytest.mark.filterwarnings("ignore::kbo.errors.IllConditionedWarning")
def test_hypothetical_points_that_cannot_be_factored_are_an_error(close_points):
    X, y = close_points
    state = KernelRidge(rbf(), 1e-18)
    state.update(X[:1], y[:1])
    with pytest.raises(NotPositiveDefinite):
        Hypothetical(state, X).predict(X)


@pytest.mark.filterwarnings("ignore::kbo.errors.IllConditionedWarning")
@given(log_ridge=st.floats(-20, -8), log_gap=st.floats(-12, -4), single=st.booleans())
def test_tiny_ridges_give_numbers_or_an_error_but_never_nan(device, log_ridge, log_gap, single):
    dtype = torch.float32 if single else torch.float64
    X = torch.linspace(0, 1, 8, dtype=torch.float64, device=device)[:, None].expand(8, 2)
    X = torch.cat([X, X + 10**log_gap]).to(dtype)
    state = KernelRidge(rbf(), 10**log_ridge)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IllConditionedWarning)
        for row in X.split(3):
            state.update(row, row.sum(-1).sin())
        try:
            found = answers(state, X, None)
        except NotPositiveDefinite:
            return
    assert all(value.isfinite().all() for value in found.values())
    assert (found["variance"] > 0).all()


def test_a_ridge_below_the_precision_warns_and_one_above_does_not(case, device):
    X, y = case.data(5, device)
    kappa = float(Dense(case.kernel(), X, y).K.diagonal().max())
    case.fed(X, y, ridge=1.01e-10 * kappa).predict(X)  # a warning would be an error here
    with pytest.warns(IllConditionedWarning):
        case.fed(X, y, ridge=0.99e-10 * kappa).predict(X)
