"""What every posterior must obey, whatever its kernel and however it is computed, beside ``kbo.testing``."""

from __future__ import annotations

import math
import pickle
import warnings

import pytest
import torch
from gpytorch.kernels import ScaleKernel
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from kbo import KernelRidge
from kbo._base.linalg import panel_rows
from kbo.confidence import MartingaleMixture
from kbo.errors import IllConditionedWarning, InvalidInput, NotPositiveDefinite
from kbo.regression import AllRidges, FixedPoints, Hypothetical, PriorMean
from kbo.regression.all_ridges import InChunks
from kbo.testing import check_posterior
from tests.dense import Dense, at_each, close, predicted
from tests.laws.states import (
    DICTIONARIES,
    STATES,
    VARIANTS,
    State,
    normal,
    numbers,
    precomputed,
    rbf,
    seeded,
)

RIDGES = [1e-3, 0.1, 10.0]


def over(states: list[State]):
    """Return a fixture of each of the states."""
    return pytest.fixture(scope="session", params=states, ids=lambda case: case.name)


@over(STATES)
def case(request) -> State:
    """One for each way to compute a posterior."""
    return request.param


@over([*STATES, *DICTIONARIES])
def saved(request) -> State:
    """Every state that has something of its own to save."""
    return request.param


def answers(state, Z: Tensor, ridges=RIDGES) -> dict[str, Tensor]:
    found = dict(zip(("mean", "variance"), predicted(state, Z, ridges), strict=True))
    found["covariance"] = at_each(state, ridges, "covariance", Z, Z.flip(0))
    for name in ("log_det", "quad", "effective_dimension"):
        found[name] = at_each(state, ridges, name)
    return found


def same(actual, expected, tol: float = 1e-8) -> None:
    torch.testing.assert_close(actual, expected, rtol=tol, atol=tol)


def identical(actual, expected) -> None:
    same(actual, expected, 0)


def as_formulas(state, formulas: Dense, Z: Tensor) -> None:
    """The answers of a state at each ridge, and those of ``across()``, are those of the formulas."""
    expected = answers(formulas, Z)
    same(answers(state, Z), expected)
    path = state.across(Z.unsqueeze(-2))
    moments = path.grid(RIDGES)
    close(moments.mean[..., 0], expected["mean"])
    close(moments.covariance[..., 0, 0], expected["variance"])
    close(path.log_det(RIDGES), expected["log_det"])
    close(path.quad(RIDGES), expected["quad"])
    rss = (formulas.y - formulas.mean(formulas.X, RIDGES)).square() @ formulas.w
    close(at_each(state, RIDGES, "rss"), rss)
    close(path.rss(RIDGES), rss)


def pulls(case: State, n: int, arms: int, device, seed: int = 3) -> tuple[Tensor, Tensor]:
    """n observations of few locations."""
    choice = torch.randint(arms, (n,), generator=seeded(seed))
    return case.points(arms, seed)[choice].to(device), case.data(n, device, seed)[1]


def chunks(n: int, seed: int = 5) -> list[slice]:
    """Random consecutive pieces of 0 .. n."""
    steps = torch.randint(1, 20, (n,), generator=seeded(seed))
    ends = steps.cumsum(0).clamp_max(n).unique().tolist()
    return [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]


def same_path(path: AllRidges, expected: AllRidges, groups: int, like: Tensor) -> None:
    """Every group at a ridge of its own, all at each of several, a selection, and some on the host."""
    own = 10 ** torch.linspace(-3, 2, groups, dtype=torch.float64).to(like)
    chosen = torch.tensor([groups - 1, 1], device=like.device)
    same(list(path.at(own)), list(expected.at(own)))
    same(list(path.grid(RIDGES)), list(expected.grid(RIDGES)))
    wanted = expected.select(chosen).at(own[chosen])
    same(list(path.select(chosen).at(own[chosen])), list(wanted))
    if wanted.mean.shape[-1] == 1:
        ridge = own[[1, 1]]
        wanted = expected.select(chosen).at(ridge)
        mean, variance, quad = path.on_host(chosen.tolist())(float(ridge[0]))
        close(like.new_tensor(mean.tolist()), wanted.mean[:, 0])
        close(like.new_tensor(variance.tolist()), wanted.covariance[:, 0, 0])
        close(like.new_tensor(quad), wanted.quad.expand(2)[0])


# Values


def test_the_laws_for_posteriors_of_ones_own(case, device):
    check_posterior(
        lambda ridge: case.make(case.kernel(), ridge),
        case.points(20, 0).to(device),
        formulas=case.formulas,
        ordered=case.living,
    )


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda case: case.name)
def test_equals_the_dense_formulas_at_several_ridges(variant, device):
    X, y = variant.data(60, device)
    state = variant.fed(X, y)
    Z = torch.cat([variant.points(7, 1).to(device), X[:3]])
    as_formulas(state, variant.formulas(state, X, y), Z)


def test_repeated_points_and_weights_equal_the_dense_formulas_along_a_stream(saved, device):
    """Few places, then more than a panel of the factor; weights come late; tracked points follow.

    A variance never grows; with a living dictionary it may, but is never more than that of the prior.
    """
    few = 60
    n = panel_rows(torch.device("cpu")) + 80  # of more, the dense residuals lose digits
    first = pulls(saved, few, 12, device)
    later = pulls(saved, n - few, 400, device)
    X, y = (torch.cat(parts) for parts in zip(first, later, strict=True))
    state = saved.make(saved.kernel(), 0.1)
    Z = torch.cat([saved.points(6, 3).to(device), X[:2]])
    early = FixedPoints(state, Z)
    late = early
    prior = state.prior_variance(Z)
    before = prior
    weights = torch.ones_like(y)
    pieces = [slice(0, 0), *chunks(few)]
    pieces += [slice(i, i + 1) for i in range(few, few + 9)]
    pieces.append(slice(few + 9, n))
    for number, piece in enumerate(pieces):
        if number < 4:
            early.update(X[piece], y[piece])
        else:
            weights[piece] = (2 * normal(n, 9)[piece]).exp().to(y)
            early.update(X[piece], y[piece], weights[piece])
        assert state.provenance.weighted == (number >= 4)
        predicted(state, Z, RIDGES)
        if number not in (3, 6, 12, len(pieces) - 1):
            continue
        if number == 3:
            late = FixedPoints(state, Z)
        formulas = saved.formulas(state, *(part[: piece.stop] for part in (X, y, weights)))
        as_formulas(state, formulas, Z)
        close(state.trace, formulas.trace)
        close(state.error.trace, formulas.residual.trace(), 1e-6)  # lifted by its rounding
        missed = torch.linalg.slogdet(formulas.I + formulas.residual / 0.1)[1]
        assert state.error.log_det(0.1) >= (1 - 1e-9) * missed
        norm = torch.linalg.matrix_norm(formulas.residual, 2)
        assert state.error.norm() >= (1 - 1e-9) * norm
        for tracked in (early, late):
            same(tracked.predict(Z), state.predict(Z))
            same(predicted(tracked, Z, RIDGES), predicted(state, Z, RIDGES))
        same_path(early.across(Z.unsqueeze(-2)), AllRidges(state, Z.unsqueeze(-2)), len(Z), Z)
        after = state.predict(Z)[1]
        assert (after > 0).all()
        assert (after <= before + 1e-12).all()
        before = prior if saved.living else after
    assert state.n == n
    identical(answers(early, Z[:5]), answers(state, Z[:5]))


class Work(TorchDispatchMode):
    """The number of elements of the results of all operations inside."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.elements += sum(t.numel() for t in tree_leaves(out) if isinstance(t, torch.Tensor))
        return out


def work(state, x: Tensor) -> int:
    """Return the work of the next update and prediction."""
    fork = state.fork()
    fork.predict(x)
    with Work() as inside:
        fork.update(x, torch.ones_like(x[:, 0]))
        fork.predict(x)
    return inside.elements


def test_hundreds_of_pulls_of_one_arm_are_exact_and_need_no_more_work(case, device):
    """A variance below rounding is its least possible value."""
    # Directions of a fixed dictionary that have no data have an eigenvalue of ridge + rounding of n k.
    ridge = 1e-8 if case.exact or case.living else 0.1
    n = 200
    x = case.points(1, 0).to(device)
    y = 3 + normal(n, 0).to(device)
    state = case.make(case.kernel(), ridge)
    prior = float(state.prior_variance(x))
    for i in range(n):
        state.update(x, y[i : i + 1])
        least = state.ridge * prior / (state.ridge + (i + 1) * prior)
        assert float(state.predict(x)[1]) >= (1 - 1e-9) * least
        if i == 100:
            early = work(state, x)
    assert work(state, x) <= 1.2 * early
    ridge = state.ridge  # it may follow the noise
    formulas = case.formulas(state, x, y[:1])
    k = float(formulas.K)  # what the dictionary sees of the arm
    unseen = float(formulas.residual)
    mean, variance = state.predict(x)
    assert state.n == n
    # Rounding of n k, relative to the ridge, is up to 1e-5.
    close(mean, (n * k / (n * k + ridge) * y.mean()).reshape(1), 1e-6)
    least = ridge * (k + unseen) / (n * (k + unseen) + ridge)
    expected = max(unseen + ridge * k / (n * k + ridge), least)
    assert float(variance) == pytest.approx(expected, rel=1e-6, abs=1e-15)
    posterior = state.at()
    assert float(posterior.log_det()) == pytest.approx(math.log1p(n * k / ridge), rel=1e-8)
    close(posterior.quad(), y.square().sum() - y.sum() ** 2 * k / (ridge + n * k))
    dimension = n * k / (n * k + ridge)
    assert float(posterior.effective_dimension()) == pytest.approx(dimension, abs=1e-6)


# Units, shapes and types


def test_units_of_the_targets_scale_the_mean_and_those_of_the_kernel_the_variance(case, device):
    s = 400.0
    X, y = case.data(30, device)
    Z = case.points(5, 1).to(device)
    plain = answers(case.fed(X, y), Z)
    expected = {**plain, "mean": s * plain["mean"], "quad": s**2 * plain["quad"]}
    found = answers(case.fed(X, s * y), Z)
    same(found, expected)
    kernel = ScaleKernel(case.kernel()).double()
    kernel.outputscale = s
    s = float(kernel.outputscale.detach())
    scaled = case.make(kernel, 0.1 * s)
    scaled.update(X, y)
    expected = {**plain, **{name: s * plain[name] for name in ("variance", "covariance")}}
    found = answers(scaled, Z, [ridge * s for ridge in RIDGES])
    same(found, expected)


def test_points_and_ridges_come_in_any_shape(case, device):
    state = case.fed(*case.data(50, device))
    Z = case.points(24, 1).to(device)
    moments = torch.stack(state.predict(Z))
    identical(torch.stack(state.at(torch.tensor(0.1, dtype=torch.float64)).predict(Z)), moments)
    close(torch.stack(state.predict(Z[5])), moments[:, 5], 1e-12)
    batched = torch.stack(state.predict(Z.reshape(2, 3, 4, -1)))
    close(batched, moments.reshape(2, 2, 3, 4), 1e-12)
    assert state.predict(Z[:0])[0].shape == (0,)
    A = Z[:12].reshape(2, 2, 3, -1)
    B = Z[8:].reshape(2, 2, 4, -1)
    covariance = state.at().covariance(A, B)
    close(covariance[1, 0], state.at().covariance(A[1, 0], B[1, 0]), 1e-12)


def test_float32_stays_float32_and_close_to_float64(case, device):
    X, y = case.data(60, device)
    Z = case.points(8, 1).to(device)
    single = answers(case.fed(X.float(), y.float()), Z.float(), [0.1, 10.0])
    assert {value.dtype for value in single.values()} == {torch.float32}
    double = {name: value.double() for name, value in single.items()}
    same(double, answers(case.fed(X, y), Z, [0.1, 10.0]), 2e-3)


# Paths


@pytest.mark.parametrize(("n", "g"), [(0, 3), (40, 1), (40, 3)])
def test_a_path_answers_as_the_state_does(case, device, n, g):
    state = case.fed(*pulls(case, n, 30, device))
    groups = case.points(6 * g, 4).reshape(6, g, -1).to(device)
    expected = AllRidges(state, groups)
    same_path(state.across(groups), expected, 6, groups)
    close(state.across().on_host([])(0.3)[2], state.at(0.3).quad().to(groups))
    same_path(InChunks(state, groups, state.across, 2), expected, 6, groups)


@pytest.mark.parametrize(("g", "with_targets"), [(1, True), (3, False)])
def test_a_path_of_hypothetical_data_answers_as_the_view_does(case, device, g, with_targets):
    state = case.fed(*case.data(40, device))
    groups = case.points(6 * g, 4).reshape(2, 3, g, -1).to(device)
    P = case.points(6, 5).reshape(2, 3, -1).to(device)
    data = ()
    if with_targets:
        targets = normal(6, 6).reshape(2, 3).to(device)
        data = targets, targets.exp()
    ridges = torch.tensor([[0.01, 0.1, 1.0], [0.02, 0.2, 2.0]], dtype=torch.float64, device=device)
    found = Hypothetical(state, P, *data).across(groups).at(ridges.flatten())
    for i in range(2):
        view = Hypothetical(state, P[i], *(part[i] for part in data))
        expected = AllRidges(view, groups[i])
        same_path(view.across(groups[i]), expected, 3, groups)
        same([part[3 * i : 3 * i + 3] for part in found], list(expected.at(ridges[i])))


# Copies


def test_a_saved_state_continues_bit_for_bit(saved, device):
    X, y = pulls(saved, 90, 60, device)
    Z = saved.points(6, 3).to(device)
    state = saved.make(saved.kernel(), 1e-8)
    ridges = [1e-8, 0.3, 50.0]
    # A bound remembers what it read of a version, and the error of a sketch depends on when it is first read.
    bounds = [MartingaleMixture(0.3, 50.0, 0.1, "cmm") for _ in range(2)]
    for piece in chunks(45):
        state.update(X[piece], y[piece])
        predicted(state, Z, ridges)
    both = state, pickle.loads(pickle.dumps(state))
    equal = same if device.type == "cuda" else identical  # cuBLAS adds in an order of its own
    for piece in [slice(0, 0), *chunks(45, seed=6)]:
        for one in both:
            one.update(X[45:][piece], y[45:][piece])
        equal(*(answers(one, Z, ridges) for one in both))
        found = [bound.argmax_upper(one, Z) for bound, one in zip(bounds, both, strict=True)]
        rows, values = zip(*found, strict=True)
        assert rows[0] == rows[1]
        equal(*map(torch.tensor, values))
    equal(*(list(one.across(Z.unsqueeze(-2)).grid(RIDGES)) for one in both))


def test_changing_the_kernel_outside_changes_nothing(case, device):
    X, y = case.data(20, device)
    kernel = case.kernel()
    state = case.make(kernel, 0.1)
    for tensor in (*kernel.parameters(), *kernel.buffers()):
        tensor.data.zero_()
    state.update(X, y)
    identical(answers(state, X[:5]), answers(case.fed(X, y), X[:5]))


# Views


@pytest.mark.parametrize(
    "exact", [case for case in STATES if case.exact], ids=lambda case: case.name
)
@pytest.mark.parametrize("n", [0, 40])
def test_hypothetical_data_equal_a_real_update(exact, device, n):
    """Without targets the mean and the observations stay, and the variance shrinks."""
    X, y = exact.data(n + 6, device)
    P = X[n:]
    Z = torch.cat([exact.points(5, 1).to(device), X[:1]])
    state = exact.fed(X[:n], y[:n])
    counts = torch.ones(6, dtype=torch.int64, device=device)
    if n:
        counts = counts.cumsum(0)
    fork = state.fork()
    fork.update(P.repeat_interleave(counts, 0), y[n:].repeat_interleave(counts))
    view = Hypothetical(state, P, y[n:], counts.to(y) if n else None)
    same(predicted(view, Z, RIDGES), predicted(fork, Z, RIDGES))
    close(*(at_each(one, RIDGES, "covariance", Z, Z[:3]) for one in (view, fork)))
    once = state.fork()
    once.update(P, y[n:])
    without = Hypothetical(state, P)
    mean, variance = predicted(without, Z, RIDGES)
    close(mean, predicted(state, Z, RIDGES)[0])
    close(variance, predicted(once, Z, RIDGES)[1])
    assert without.n == n
    assert without.at().log_det() == state.at().log_det()
    assert without.at().quad() == state.at().quad()


def prior_mean(X):
    return (0.3 * X).sum(-1).sin()


def test_a_prior_mean_is_that_of_a_posterior_of_the_rest(case, device):
    X, y = case.data(40, device)
    Z = case.points(6, 1).to(device)
    P = case.points(3, 2).to(device)
    rest = case.fed(X[:0], y[:0])
    view = PriorMean(case.fed(X[:0], y[:0]), prior_mean)
    for rows, targets in zip(X.split(8), y.split(8), strict=True):
        view.update(rows, targets)
        rest.update(rows, targets - prior_mean(rows))
    view.fork().update(P, P.sum(-1))

    def same_as_rest(found, expected, at=Z):
        close(found[0], expected[0] + prior_mean(at))
        close(found[1], expected[1])

    same_as_rest(predicted(view, Z, RIDGES), predicted(rest, Z, RIDGES))
    same_as_rest(view.at().factored(Z), rest.at().factored(Z))
    close(view.at().quad(), rest.at().quad())
    close(view.at().log_det(), rest.at().log_det())
    groups = Z.unsqueeze(-2)
    path = view.across(groups)
    same_as_rest(path.grid(RIDGES), rest.across(groups).grid(RIDGES), groups)
    shifted = Hypothetical(rest, P, P.sum(-1) - prior_mean(P))
    same_as_rest(Hypothetical(view, P, P.sum(-1)).predict(Z), shifted.predict(Z))
    assert gradcheck(lambda Z: view.predict(Z), Z[:2].clone().requires_grad_())
    with pytest.raises(InvalidInput, match="mean must be"):
        PriorMean(rest, 0.0)


def test_weights_of_hypothetical_data_are_kept_in_forks_and_drawn_functions(case, device):
    state = case.fed(*case.data(40, device))
    Z = case.points(6, 1).to(device)
    P = case.points(3, 2).to(device)
    targets = P.sum(-1).sin()
    view = Hypothetical(state, P, targets, torch.tensor([0.01, 1.0, 1e8]).to(P))
    same(view.fork_frozen().predict(Z), view.predict(Z), 1e-12)
    noiseless = Hypothetical(state, P, targets, targets.new_full((3,), 1e12)).at()
    assert noiseless.draw_function(P, seeded(0))(P).abs().max() < 1e-4  # no deviations are left


def test_gradients_are_exact_and_finite_at_observed_points_and_only_there_when_asked_for(
    case, device
):
    X, y = pulls(case, 30, 20, device)
    state = case.fed(X, y)
    Z = case.points(2, 1).to(device).requires_grad_()
    P = case.points(2, 2).to(device).requires_grad_()
    targets = torch.tensor([1.0, -2.0], dtype=torch.float64, device=device, requires_grad=True)
    assert gradcheck(lambda Z: state.at(0.01).predict(Z.reshape(2, 1, -1)), Z)
    assert gradcheck(state.at().covariance, (Z, P))
    assert gradcheck(lambda Z: state.at().covariance(Z, Z), Z)
    assert gradcheck(lambda Z, P, t: Hypothetical(state, P, t).predict(Z), (Z, P, targets))
    assert gradcheck(lambda Z, P: Hypothetical(state, P).predict(Z), (Z, P))
    observed = X[:4].requires_grad_()
    sum(value.sum() for value in state.predict(observed)).backward()
    assert observed.grad.isfinite().all()
    assert not any(value.requires_grad for value in answers(state, Z.detach()).values())


# Bad input


@pytest.fixture(
    params={type(case.make(case.kernel(), 0.1)): case for case in reversed(STATES)}.values(),
    ids=lambda case: case.name,
)
def checked(request) -> State:
    """One for each class that checks what it is given."""
    return request.param


def test_bad_data_are_refused_and_change_nothing(checked, device):
    X, y = checked.data(12, device)
    Z = checked.points(5, 1).to(device)
    state = checked.fed(X[:8], y[:8])
    empty = checked.make(checked.kernel(), 0.1)
    before = answers(state, Z)
    new = X[8:]
    values = y[8:]
    ones = torch.ones_like(values)
    bad = [(wrong, values) for wrong in (new / 0, new[0], new.long(), new.tolist())]
    bad += [(new, wrong) for wrong in (-values / 0, values + 0j, values.float(), y[8:, None])]
    bad += [(new, values, wrong) for wrong in (ones - 1, ones / 0, ones[:-1], ones.float())]
    for arguments in bad:
        for one in (state, empty):
            with pytest.raises(InvalidInput):
                one.update(*arguments)
    for unlike in (X.float(), torch.cat([X, X], -1)):  # unlike those before
        with pytest.raises(InvalidInput):
            state.update(unlike, y.to(unlike))
        with pytest.raises(InvalidInput):
            state.predict(unlike)
        with pytest.raises(InvalidInput):
            state.at().covariance(X, unlike)
    for ridge in (-1.0, math.nan, torch.tensor([0.1, 1.0])):
        with pytest.raises(InvalidInput):
            state.at(ridge)
        with pytest.raises(InvalidInput):
            checked.make(checked.kernel(), ridge)
    assert (state.n, empty.n) == (8, 0)
    identical(answers(state, Z), before)
    empty.update(X[:8], y[:8])
    identical(answers(empty, Z), before)
    assert not state.provenance.weighted


def test_rows_that_a_precomputed_kernel_does_not_have_are_refused_and_change_nothing(device):
    X = numbers(8, 0).to(device)
    state = KernelRidge(precomputed(), 0.1)
    state.update(X, X[:, 0])
    before = answers(state, X)
    for index in (-1.0, 400.0, 0.5):
        with pytest.raises(InvalidInput):
            state.predict(X.new_full((1, 1), index))
        with pytest.raises(InvalidInput):
            state.update(X.new_full((1, 1), index), X[0])
    identical(answers(state, X), before)


# Precision


@pytest.mark.filterwarnings("ignore::kbo.errors.IllConditionedWarning")
def test_a_matrix_that_cannot_be_factored_is_an_error_and_a_larger_ridge_heals_it(device):
    """Pairs of points that a smooth kernel cannot tell apart in float64."""
    X = torch.linspace(0, 1, 10, dtype=torch.float64, device=device)[:, None].expand(10, 2)
    X = torch.cat([X, X + 1e-10])
    y = torch.ones_like(X[:, 0])
    state = KernelRidge(rbf(), 1e-18)
    state.update(X, y)
    first = KernelRidge(rbf(), 1e-18)
    for ask in (
        lambda: state.predict(X),
        lambda: state.at().log_det(),
        lambda: Hypothetical(first, X).predict(X),
    ):
        with pytest.raises(NotPositiveDefinite, match="larger ridge"):
            ask()
    same(answers(state, X[:3]), answers(Dense(rbf(), X, y), X[:3]))


@given(log_ridge=st.floats(-20, -8), log_gap=st.floats(-12, -4), single=st.booleans())
@settings(max_examples=5)
def test_tiny_ridges_give_numbers_or_an_error_but_never_nan(device, log_ridge, log_gap, single):
    X = torch.linspace(0, 1, 8, dtype=torch.float64, device=device)[:, None].expand(8, 2)
    X = torch.cat([X, X + 10**log_gap]).to(torch.float32 if single else torch.float64)
    state = KernelRidge(rbf(), 10**log_ridge)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IllConditionedWarning)
        for row in X.split(3):
            state.update(row, row.sum(-1).sin())
        try:
            found = answers(state, X, [state.ridge])
        except NotPositiveDefinite:
            return
    assert all(value.isfinite().all() for value in found.values())
    assert (found["variance"] > 0).all()


def test_a_ridge_below_the_precision_warns_and_one_above_does_not(case, device):
    X, y = case.data(5, device)
    if not case.fed(X, y).error.least_ridge:  # it is not stated
        return
    kappa = float(Dense(case.kernel(), X, y).K.diagonal().max())
    case.fed(X, y, ridge=1.01e-10 * kappa).predict(X)  # a warning would be an error here
    with pytest.warns(IllConditionedWarning):
        case.fed(X, y, ridge=0.99e-10 * kappa).predict(X)
