"""What every posterior must obey, whatever its kernel and however it is computed, beside ``kbo.testing``."""

from __future__ import annotations

import copy
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
from kbo._base.linalg import PANEL
from kbo.confidence import MartingaleMixture
from kbo.errors import IllConditionedWarning, InvalidInput, NotPositiveDefinite
from kbo.regression import (
    AllRidges,
    FixedPoints,
    Hypothetical,
    PriorMean,
)
from kbo.regression.all_ridges import InChunks
from kbo.testing import check_posterior
from tests.dense import Dense, at_each, close, predicted
from tests.laws.states import (
    DICTIONARIES,
    STATES,
    VARIANTS,
    State,
    matern,
    numbers,
    precomputed,
    rbf,
    seeded,
)

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


def answers(state, Z: Tensor, ridges=RIDGES) -> dict[str, Tensor]:
    mean, variance = predicted(state, Z, ridges)
    return {
        "mean": mean,
        "variance": variance,
        "covariance": at_each(state, ridges, "covariance", Z, Z.flip(0)),
        "log_det": at_each(state, ridges, "log_det"),
        "quad": at_each(state, ridges, "quad"),
        "effective_dimension": at_each(state, ridges, "effective_dimension"),
    }


def any_ridges(state, Z: Tensor, ridges=RIDGES) -> dict[str, Tensor]:
    """The same numbers from ``across()``, which computes them in another way, and the residuals."""
    many = state.across(Z.unsqueeze(-2))
    moments = many.grid(ridges)
    numbers = {name: getattr(many, name)(ridges) for name in ("log_det", "quad", "rss")}
    return {"mean": moments.mean[..., 0], "variance": moments.covariance[..., 0, 0], **numbers}


def same(actual: dict[str, Tensor], expected: dict[str, Tensor], tol: float = 1e-8) -> None:
    torch.testing.assert_close(actual, expected, rtol=tol, atol=tol)


def identical(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)


def as_formulas(state, formulas: Dense, Z: Tensor) -> None:
    """The state's answers of both kinds, and its residuals, are those of the formulas."""
    expected = answers(formulas, Z)
    expected["rss"] = (formulas.y - formulas.mean(formulas.X, RIDGES)).square() @ formulas.w
    same(
        {**answers(state, Z), "rss": at_each(state, RIDGES, "rss")},
        expected,
    )
    del expected["covariance"], expected["effective_dimension"]
    same(any_ridges(state, Z), expected)


def pulls(case: State, n: int, arms: int, device, seed: int = 3) -> tuple[Tensor, Tensor]:
    """n observations of few locations."""
    choice = torch.randint(arms, (n,), generator=seeded(seed))
    return case.points(arms, seed)[choice].to(device), case.data(n, device, seed)[1]


def chunks(n: int, size: int = 20, seed: int = 5) -> list[slice]:
    """Random consecutive pieces of 0 .. n."""
    ends = (
        torch.randint(1, size, (n,), generator=seeded(seed))
        .cumsum(0)
        .clamp_max(n)
        .unique()
        .tolist()
    )
    return [slice(a, b) for a, b in zip([0, *ends], ends, strict=False)]


def same_path(path: AllRidges, expected: AllRidges, groups: int, like: Tensor) -> None:
    """Every group at a ridge of its own, all at each of several, and a selection of groups."""
    generator = seeded(groups)
    own = 10 ** (torch.rand(groups, generator=generator, dtype=torch.float64) * 5 - 3).to(like)
    some = torch.randperm(groups, generator=generator)[: groups // 2].to(like.device)
    for one, other, ridges in (
        (path, expected, own),
        (path.select(some), expected.select(some), own[some]),
    ):
        for actual, wanted in zip(
            [*one.at(ridges), *one.grid(ridges[:3].tolist())],
            [*other.at(ridges), *other.grid(ridges[:3].tolist())],
            strict=True,
        ):
            assert actual.shape == wanted.shape
            close(actual, wanted)
    wanted = expected.select(some.new_tensor([1, groups - 1])).at(own[[1, 1]])
    if wanted.mean.shape[-1] == 1:
        *moments, quad = path.on_host([1, groups - 1])(float(own[1]))
        close(
            like.new_tensor([part.tolist() for part in moments]),
            torch.stack([wanted.mean[:, 0], wanted.covariance[:, 0, 0]]),
        )
        close(like.new_tensor(quad), wanted.quad.expand(2)[0])


# Values


def test_the_laws_for_posteriors_of_ones_own(case, device):
    check_posterior(
        lambda ridge: case.make(case.kernel(), ridge),
        case.points(20, 0).to(device),
        formulas=case.formulas,
        ordered=case.living,
    )


def test_equals_the_dense_formulas_at_several_ridges(variant, device):
    X, y = variant.data(60, device)
    Z = torch.cat([variant.points(7, 1).to(device), X[:3]])
    state = variant.fed(X, y)
    as_formulas(state, variant.formulas(state, X, y), Z)


# Streams


@pytest.mark.parametrize(
    ("saved", "weighted"),
    [*((case, False) for case in STATES), *((case, True) for case in [*STATES, *DICTIONARIES])],
    ids=lambda value: getattr(value, "name", "weighted" if value else ""),
)
def test_repeated_points_and_weights_equal_the_dense_formulas_along_a_stream(
    saved, device, weighted
):
    """One by one and in pieces, across a panel of the factor, all ridges asked for rarely; tracked points follow.

    A variance never grows; with a living dictionary it may, but is never more than that of the prior.
    """
    n, few = PANEL + 80, 60  # few places first, then more than a panel
    first, later = pulls(saved, few, 12, device), pulls(saved, n - few, 400, device)
    X, y = (torch.cat(parts) for parts in zip(first, later, strict=True))
    weights = (
        torch.exp(2 * torch.randn(n, generator=seeded(9), dtype=torch.float64)).to(y)
        if weighted
        else None
    )
    Z, state = torch.cat([saved.points(6, 3).to(device), X[:2]]), saved.make(saved.kernel(), 0.1)
    early, late, prior = FixedPoints(state, Z), None, state.prior_variance(Z)
    before = prior
    pieces = [
        slice(0, 0),
        *chunks(few),
        *(slice(i, i + 1) for i in range(few, few + 9)),
        slice(few + 9, n),
    ]
    for number, piece in enumerate(pieces):
        early.update(X[piece], y[piece], *([weights[piece]] if weighted else []))
        predicted(state, Z, RIDGES)
        if number in (3, 6, 12, len(pieces) - 1):
            late = FixedPoints(state, Z) if number == 3 else late
            so_far = [None if part is None else part[: piece.stop] for part in (X, y, weights)]
            formulas = saved.formulas(state, *so_far)
            as_formulas(state, formulas, Z)
            close(state.trace, formulas.trace)
            close(state.error.trace, formulas.residual.trace(), 1e-6)  # lifted by its rounding
            assert (
                state.error.log_det(0.1)
                >= (1 - 1e-9) * torch.linalg.slogdet(formulas.I + formulas.residual / 0.1)[1]
            )
            assert state.error.norm() >= (1 - 1e-9) * torch.linalg.matrix_norm(formulas.residual, 2)
            for tracked in (early, late):
                close(torch.stack(tracked.predict(Z)), torch.stack(state.predict(Z)))
                actual, expected = (predicted(one, Z, RIDGES) for one in (tracked, state))
                close(torch.stack(actual), torch.stack(expected))
            same_path(early.across(Z.unsqueeze(-2)), AllRidges(state, Z.unsqueeze(-2)), len(Z), Z)
            after = state.predict(Z)[1]
            assert (after > 0).all()
            assert (after <= before + 1e-12).all()
            before = prior if saved.living else after
    assert (state.n, state.provenance.weighted) == (n, weighted)
    for one in (state.fork(), copy.deepcopy(state)):
        as_formulas(one, saved.formulas(one, X, y, weights), Z)
    identical(answers(early, Z[:5]), answers(state, Z[:5]))


class Work(TorchDispatchMode):
    """The number of elements of the results of all operations inside."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.elements += sum(t.numel() for t in tree_leaves(out) if isinstance(t, torch.Tensor))
        return out


def work(state, x: Tensor) -> int:
    """Of the next update and prediction."""
    fork = state.fork()
    fork.predict(x)
    with Work() as inside:
        fork.update(x, torch.ones_like(x[:, 0]))
        fork.predict(x)
    return inside.elements


def test_hundreds_of_pulls_of_one_arm_are_exact_and_need_no_more_work(case, device):
    # Directions of a fixed dictionary that have no data have an eigenvalue of ridge + rounding of n k.
    ridge, n = 1e-8 if case.exact or case.living else 0.1, 500
    x, state = case.points(1, 0).to(device), case.make(case.kernel(), ridge)
    y = 3 + torch.randn(n, generator=seeded(0), dtype=torch.float64).to(device)
    for i in range(n):
        state.update(x, y[i : i + 1])
        if i == 250:
            early = work(state, x)
    mean, variance = state.predict(x)
    assert work(state, x) <= 1.2 * early
    ridge = state.ridge  # it may follow the noise
    one = case.formulas(state, x, y[:1])
    k, unseen = (
        float(one.K),
        float(one.residual),
    )  # what the dictionary sees of the arm, and what it does not
    assert state.n == n
    # Rounding of n k, relative to the ridge, is up to 1e-5.
    close(mean, (n * k / (n * k + ridge) * y.mean()).reshape(1), 1e-6)
    expected = max(
        unseen + ridge * k / (n * k + ridge), ridge * (k + unseen) / (n * (k + unseen) + ridge)
    )
    torch.testing.assert_close(float(variance), expected, rtol=1e-6, atol=1e-15)
    assert float(state.at().log_det()) == pytest.approx(math.log1p(n * k / ridge), rel=1e-8)
    close(state.at().quad(), y.square().sum() - y.sum() ** 2 * k / (ridge + n * k))
    assert float(state.at().effective_dimension()) == pytest.approx(
        n * k / (n * k + ridge), abs=1e-6
    )


def test_one_arm_pulled_often_has_its_least_possible_variance_and_is_saved_bit_for_bit(
    case, device
):
    """Where rounding exceeds the variance, the variance is its least possible value; that too must be restored."""
    x, state = case.points(1, 0).to(device), case.make(case.kernel(), 1e-8)
    k = float(state.prior_variance(x))
    for n in range(1, 100):
        state.update(x, torch.tensor([n / 7], dtype=torch.float64, device=device))
        assert float(state.predict(x)[1]) >= (1 - 1e-9) * state.ridge * k / (state.ridge + n * k)
        if n % 20 == 0:
            restored = pickle.loads(pickle.dumps(state))
            ridges = [state.ridge]
            identical(answers(restored, x, ridges), answers(state, x, ridges))


# Units, shapes and types


@pytest.mark.parametrize("s", [3e-3, 400.0])
def test_units_of_the_targets_scale_the_mean_and_those_of_the_kernel_the_variance(case, device, s):
    X, y = case.data(30, device)
    Z, plain = case.points(5, 1).to(device), answers(case.fed(X, y), case.points(5, 1).to(device))
    expected = {**plain, "mean": s * plain["mean"], "quad": s**2 * plain["quad"]}
    torch.testing.assert_close(
        answers(case.fed(X, s * y), Z), expected, rtol=1e-8, atol=1e-8 * min(1, s**2)
    )
    kernel = ScaleKernel(case.kernel()).double()
    kernel.outputscale = s
    s = float(kernel.outputscale.detach())
    scaled = case.make(kernel, 0.1 * s)
    scaled.update(X, y)
    expected = {**plain, **{name: s * plain[name] for name in ("variance", "covariance")}}
    actual = answers(scaled, Z, [r * s for r in RIDGES])
    torch.testing.assert_close(actual, expected, rtol=1e-8, atol=1e-8 * min(1, s))


def test_points_and_ridges_come_in_any_shape(case, device):
    state, Z = case.fed(*case.data(50, device)), case.points(24, 1).to(device)
    ridge = torch.tensor(0.1, dtype=torch.float64)
    assert torch.equal(state.at(ridge).predict(Z)[0], state.at(0.1).predict(Z)[0])
    mean, variance = state.predict(Z)
    close(torch.stack(state.predict(Z[5])), torch.stack([mean[5], variance[5]]), 1e-12)
    for actual, wanted in zip(state.predict(Z.reshape(2, 3, 4, -1)), (mean, variance), strict=True):
        close(actual, wanted.reshape(2, 3, 4), 1e-12)
    assert state.predict(Z[:0])[0].shape == (0,)
    A, B = Z[:12].reshape(2, 2, 3, -1), Z[8:].reshape(2, 2, 4, -1)
    actual = state.at().covariance(A, B)
    assert actual.shape == (2, 2, 3, 4)
    close(actual[1, 0], state.at().covariance(A[1, 0], B[1, 0]), 1e-12)


def test_float32_stays_float32_and_close_to_float64(case, device):
    X, y = case.data(PANEL + 10, device)
    Z = case.points(8, 1).to(device)
    single = answers(case.fed(X.float(), y.float()), Z.float(), [0.1, 10.0])
    assert {value.dtype for value in single.values()} == {torch.float32}
    same(
        {name: value.double() for name, value in single.items()},
        answers(case.fed(X, y), Z, [0.1, 10.0]),
        2e-3,
    )


# Paths


@pytest.mark.parametrize(("n", "g"), [(0, 3), (70, 1), (70, 3)])
def test_a_path_answers_as_the_state_does(case, device, n, g):
    X, y = pulls(case, n, 50, device)
    state, groups = (
        case.make(case.kernel(), 0.1),
        case.points(6 * g, 4).reshape(6, g, -1).to(device),
    )
    for piece in chunks(n, 12):
        state.update(X[piece], y[piece])
    same_path(state.across(groups), AllRidges(state, groups), 6, groups)
    close(state.across().on_host([])(0.3)[2], state.at(0.3).quad().to(groups))
    same_path(state.across(groups.reshape(2, 3, g, -1)), AllRidges(state, groups), 6, groups)
    same_path(InChunks(state, groups, state.across, 2), AllRidges(state, groups), 6, groups)


@pytest.mark.parametrize(("g", "with_targets"), [(1, True), (3, False)])
def test_a_path_of_hypothetical_data_answers_as_the_view_does(case, device, g, with_targets):
    state, groups = (
        case.fed(*case.data(40, device)),
        case.points(6 * g, 4).reshape(6, g, -1).to(device),
    )
    P = case.points(6, 5).reshape(2, 3, -1).to(device)
    targets = (
        torch.randn(2, 3, generator=seeded(6), dtype=torch.float64).to(device)
        if with_targets
        else None
    )
    weights = targets.exp() if with_targets else None
    views = [
        Hypothetical(state, P[i], *((targets[i], weights[i]) if with_targets else ()))
        for i in range(2)
    ]
    same_path(views[0].across(groups), AllRidges(views[0], groups), 6, groups)
    batched = groups.reshape(2, 3, g, -1)  # P [2 p d] and X [2 3 g d]
    ridges = torch.tensor([0.01, 0.1, 1.0, 0.02, 0.2, 2.0], dtype=torch.float64, device=device)
    found = Hypothetical(state, P, targets, weights).across(batched).at(ridges)
    for i, view in enumerate(views):
        half = slice(3 * i, 3 * i + 3)
        for actual, wanted in zip(found, AllRidges(view, batched[i]).at(ridges[half]), strict=True):
            close(actual[half], wanted)


# Copies


def test_a_saved_state_continues_bit_for_bit(saved, device):
    X, y = pulls(saved, 90, 60, device)
    Z, state = saved.points(12, 3).to(device), saved.make(saved.kernel(), 1e-8)
    ridges = [1e-8, 0.3, 50.0]
    # A bound remembers what it read of a version, and the error of a sketch depends on when it is first read.
    bounds = [MartingaleMixture(0.3, 50.0, 0.1, "cmm") for _ in range(2)]
    for piece in chunks(45):
        state.update(X[piece], y[piece])
        predicted(state, Z, ridges)
    restored = pickle.loads(pickle.dumps(state))
    for piece in [slice(0, 0), *chunks(45, seed=6)]:
        for one in (state, restored):
            one.update(X[45:][piece], y[45:][piece])
        assert restored.n == state.n
        identical(answers(restored, Z, ridges), answers(state, Z, ridges))
        identical(any_ridges(restored, Z), any_ridges(state, Z))
        for view in (lambda one: one, lambda one: FixedPoints(one, Z)):
            found, expected = (
                bound.argmax_upper(view(one), Z)
                for bound, one in zip(bounds, (restored, state), strict=True)
            )
            assert found == expected


def test_a_state_whose_ridge_was_moved_continues_exactly(saved, device):
    (X, y), Z = saved.data(30, device), saved.points(5, 1).to(device)
    for early in (True, False):
        state = saved.make(saved.kernel(), 0.1)
        if state.schedule is not None:  # which alone moves the ridge
            return
        if early:
            state.move_ridge(0.5)
        state.update(X[:20], y[:20])
        if not early:
            state.move_ridge(0.5)
        loaded = pickle.loads(pickle.dumps(state))
        for one in (state, loaded):
            one.update(X[20:], y[20:])
        assert (loaded.ridge, loaded.provenance.ridge_moved) == (0.5, not early)
        identical(answers(loaded, Z), answers(state, Z))


def test_changing_the_kernel_outside_changes_nothing(case, device):
    X, y = case.data(20, device)
    kernel, Z = case.kernel(), case.points(5, 1).to(device)
    state = case.make(kernel, 0.1)
    for tensor in (*kernel.parameters(), *kernel.buffers()):
        tensor.data.zero_()
    state.update(X, y)
    identical(answers(state, Z), answers(case.fed(X, y), Z))


# Views


@pytest.mark.parametrize(
    "exact", [case for case in STATES if case.exact], ids=lambda case: case.name
)
@pytest.mark.parametrize("n", [0, 40])
def test_hypothetical_data_equal_a_real_update(exact, device, n):
    """Without targets the mean and the observations stay, and the variance shrinks."""
    X, y = exact.data(n + 6, device)
    P, targets, Z = X[n:], y[n:], torch.cat([exact.points(5, 1).to(device), X[:1]])
    state, counts = (
        exact.fed(X[:n], y[:n]),
        torch.arange(1, 7, device=device) if n else torch.ones(6).int().to(device),
    )
    fork, once = state.fork(), state.fork()
    fork.update(P.repeat_interleave(counts, 0), targets.repeat_interleave(counts))
    once.update(P, targets)
    view, without = (
        Hypothetical(state, P, targets, counts.to(y) if n else None),
        Hypothetical(state, P),
    )
    actual, expected = (predicted(one, Z, RIDGES) for one in (view, fork))
    close(torch.stack(actual), torch.stack(expected))
    actual, expected = (at_each(one, RIDGES, "covariance", Z, Z[:3]) for one in (view, fork))
    close(actual, expected)
    close(torch.stack(view.predict(Z)), torch.stack(fork.predict(Z)))
    mean, variance = predicted(without, Z, RIDGES)
    close(mean, predicted(state, Z, RIDGES)[0])
    close(variance, predicted(once, Z, RIDGES)[1])
    assert without.n == n
    for name in ("log_det", "quad"):
        assert getattr(without.at(), name)() == getattr(state.at(), name)()


def prior_mean(X):
    return (0.3 * X).sum(-1).sin()


def test_a_prior_mean_is_that_of_a_posterior_of_the_rest(case, device):
    X, y = case.data(40, device)
    Z, P, view = (
        case.points(6, 1).to(device),
        case.points(3, 2).to(device),
        PriorMean(case.fed(X[:0], y[:0]), prior_mean),
    )
    for rows, targets in zip(X.split(8), y.split(8), strict=True):
        view.update(rows, targets)
    rest, fork = case.fed(X[:0], y[:0]), view.fork()
    for rows, targets in zip(X.split(8), y.split(8), strict=True):
        rest.update(rows, targets - prior_mean(rows))
    fork.update(P, P.sum(-1))
    raised = prior_mean(Z)

    def same_as_rest(found, expected, shift):
        close(found[0], expected[0] + shift)
        close(found[1], expected[1])

    same_as_rest(predicted(view, Z, RIDGES), predicted(rest, Z, RIDGES), raised)
    same_as_rest(view.at().factored(Z)[:2], rest.at().factored(Z)[:2], raised)
    for name in ("quad", "log_det"):
        close(getattr(view.at(), name)(), getattr(rest.at(), name)())
    groups = Z.unsqueeze(-2)
    same_as_rest(
        view.across(groups).grid(RIDGES), rest.across(groups).grid(RIDGES), raised.unsqueeze(-1)
    )
    some = torch.tensor([4, 1], device=device)
    chosen = (
        view.across(groups)
        .select(some)
        .at(torch.tensor([0.1, 0.3], dtype=torch.float64, device=device))
    )
    close(chosen.mean[0, 0], view.at(0.1).predict(Z[4:5])[0][0])
    shifted = Hypothetical(rest, P, P.sum(-1) - prior_mean(P))
    same_as_rest(Hypothetical(view, P, P.sum(-1)).predict(Z), shifted.predict(Z), raised)
    with torch.enable_grad():
        assert gradcheck(lambda Z: view.predict(Z), Z[:2].clone().requires_grad_())
    with pytest.raises(InvalidInput, match="mean must be"):
        PriorMean(rest, 0.0)


def test_weights_of_hypothetical_data_are_kept_in_forks_and_drawn_functions(case, device):
    state, Z, P = (
        case.fed(*case.data(40, device)),
        case.points(6, 1).to(device),
        case.points(3, 2).to(device),
    )
    targets, weights = P.sum(-1).sin(), torch.tensor([0.01, 1.0, 1e8]).to(P)
    view = Hypothetical(state, P, targets, weights)
    close(torch.stack(view.fork_frozen().predict(Z)), torch.stack(view.predict(Z)), 1e-12)
    exact = Hypothetical(state, P, targets, weights.new_full((3,), 1e12)).at()
    assert (
        exact.draw_function(P, seeded(0))(P).abs().max() < 1e-4
    )  # deviations vanish where there is no noise


def test_gradients_are_exact_and_finite_at_observed_points_and_only_there_when_asked_for(
    case, device
):
    state = case.fed(*pulls(case, 30, 20, device))
    Z, P = (
        case.points(2, 1).to(device).requires_grad_(),
        case.points(2, 2).to(device).requires_grad_(),
    )
    targets = torch.tensor([1.0, -2.0], dtype=torch.float64, device=device, requires_grad=True)
    assert gradcheck(lambda Z: state.at(0.01).predict(Z.reshape(2, 1, -1)), Z)
    assert gradcheck(state.at().covariance, (Z, P))
    assert gradcheck(lambda Z: state.at().covariance(Z, Z), Z)
    assert gradcheck(lambda Z, P, t: Hypothetical(state, P, t).predict(Z), (Z, P, targets))
    assert gradcheck(lambda Z, P: Hypothetical(state, P).predict(Z), (Z, P))
    X = pulls(case, 30, 20, device)[0][:4].requires_grad_()
    sum(value.sum() for value in state.predict(X)).backward()
    assert X.grad.isfinite().all()
    assert not any(value.requires_grad for value in answers(state, Z.detach()).values())


# Bad input


@pytest.fixture(
    params={type(case.make(case.kernel(), 0.1)): case for case in reversed(STATES)}.values(),
    ids=lambda case: case.name,
)
def checked(request) -> State:
    """One for each class that checks what it is given."""
    return request.param


def spoilt(tensor: Tensor, value: float) -> Tensor:
    tensor = tensor.clone()
    tensor.reshape(-1)[0] = value
    return tensor


def test_bad_data_are_refused_and_change_nothing(checked, device):
    X, y = checked.data(12, device)
    Z, state, empty = (
        checked.points(5, 1).to(device),
        checked.fed(X[:8], y[:8]),
        checked.make(checked.kernel(), 0.1),
    )
    before, new, values, ones = answers(state, Z), X[8:], y[8:], torch.ones_like(y[8:])
    bad = [(spoilt(new, value), values) for value in (math.nan, math.inf)]
    bad += [(new, spoilt(values, value)) for value in (math.nan, -math.inf)]
    bad += [
        (points, values) for points in (new[:, :0], new[0], new[None], new.long(), new.tolist())
    ]
    bad += [
        (new, wrong)
        for wrong in (values.long(), values + 0j, values.float(), y[:3], y[8:, None], None)
    ]
    bad += [
        (new, values, wrong) for wrong in (ones - 1, -ones, ones / 0, ones[:-1], ones.float(), 1.0)
    ]
    for number, arguments in enumerate(bad):
        for one in (state, empty):
            with pytest.raises(InvalidInput):
                one.update(*arguments)
        assert (state.n, empty.n) == (8, 0), f"bad data {number}"
    for unlike in ((X.float(), y.float()), (torch.cat([X, X], -1), y)):  # unlike those before
        with pytest.raises(InvalidInput):
            state.update(*unlike)
    identical(answers(state, Z), before)
    empty.update(X[:8], y[:8])
    identical(answers(empty, Z), before)
    assert not state.provenance.weighted


def test_bad_points_and_ridges_are_refused(checked, device):
    state, Z = checked.fed(*checked.data(8, device)), checked.points(5, 1).to(device)
    wrong = [torch.cat([Z, Z], -1), Z.long(), Z.float(), Z[0, 0], Z.tolist()]
    for bad in wrong:
        for ask in (
            state.predict,
            lambda P: state.at().covariance(Z, P),
            lambda P: state.at().covariance(P, Z),
        ):
            with pytest.raises(InvalidInput):
                ask(bad)
    for ridge in [
        -1.0,
        0.0,
        math.nan,
        math.inf,
        "small",
        [0.1, 1.0],
        torch.tensor([0.1, 1.0]),
    ]:
        with pytest.raises(InvalidInput):
            state.at(ridge)
        with pytest.raises(InvalidInput):
            checked.make(checked.kernel(), ridge)


def test_points_that_the_kernel_cannot_take_are_refused_and_change_nothing(device):
    index, one = numbers(8, 0).to(device), torch.ones(1, dtype=torch.float64, device=device)
    for kernel, X, bad in (
        (matern(2.5), STATES[0].points(8, 0).to(device), [one.expand(1, 1), one.expand(1, 3)]),
        (precomputed(), index, [-one[None], 400 * one[None], one[None] / 2]),
    ):
        state, empty = KernelRidge(kernel, 0.1), KernelRidge(kernel, 0.1)
        state.update(X, X[:, 0])
        before = answers(state, X)
        for ask in (state, empty):
            for wrong in bad:
                with pytest.raises(InvalidInput):
                    ask.predict(wrong)
                with pytest.raises(InvalidInput):
                    ask.update(wrong, one)
        assert (state.n, empty.n) == (8, 0)
        identical(answers(state, X), before)


# Precision


@pytest.mark.filterwarnings("ignore::kbo.errors.IllConditionedWarning")
def test_a_matrix_that_cannot_be_factored_is_an_error_and_a_larger_ridge_heals_it(device):
    """Pairs of points that a smooth kernel cannot tell apart in float64."""
    X = torch.linspace(0, 1, 10, dtype=torch.float64, device=device)[:, None].expand(10, 2)
    X, y = torch.cat([X, X + 1e-10]), torch.ones(20, dtype=torch.float64, device=device)
    state, first = KernelRidge(rbf(), 1e-18), KernelRidge(rbf(), 1e-18)
    state.update(X, y)
    first.update(X[:1], y[:1])
    view = Hypothetical(first, X)
    for ask in (
        lambda: state.predict(X),
        lambda: state.at().log_det(),
        lambda: state.at().quad(),
        lambda: state.at().covariance(X, X),
    ):
        with pytest.raises(NotPositiveDefinite, match="larger ridge"):
            ask()
    with pytest.raises(NotPositiveDefinite):
        view.predict(X)
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
