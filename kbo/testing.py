"""Laws that posteriors must satisfy, to be run on one of your own."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kbo._base import checks
from kbo.errors import InvalidInput
from kbo.regression import Posterior

_RIDGES = (1e-2, 0.1, 10.0)


def check_posterior(
    make: Callable[[float], Posterior],
    X: Tensor,
    tolerance: float = 1e-8,
    *,
    formulas: Callable[[Posterior, Tensor, Tensor], Any] | None = None,
    ordered: bool = False,
) -> None:
    """Check that a posterior obeys the laws on which the rest of kbo rests.

    Its numbers equal the dense formulas of its own ``prior``; data in pieces, in another order or repeated give the
    same; bad data are refused and change nothing; forks, deep copies and data that the caller changes are
    independent of it; a point's answer does not depend on the other points, and has exact gradients. A posterior that
    only approximates the formulas, such as a sketch, needs ``formulas`` of its own.

    Args:
        make: Returns the posterior without data at a ridge.
        X: Points [n d], at least 8 distinct ones, in float64. Half of them are observed.
        tolerance: Relative and absolute tolerance.
        formulas: Called with the posterior, the points and the targets; returns an object whose ``at(ridge)`` has the
            right numbers at a ridge, by the methods ``predict``, ``covariance``, ``log_det``, ``quad`` and
            ``effective_dimension`` of a ``PosteriorAt``.
        ordered: The order of the data may matter.

    Raises:
        AssertionError: The first law that does not hold, in words.
        InvalidInput: Too few points, or of another shape or dtype.

    Example:
        >>> check_posterior(lambda ridge: LinearRegression(features, ridge), torch.rand(20, 2, dtype=torch.double))
    """
    if len(checks.rows("X", X)) < 8 or X.dtype != torch.float64:
        raise InvalidInput(
            f"X must have at least 8 points in torch.float64, got {len(X)} in {X.dtype}."
        )
    half = len(X) // 2
    A, Z, y = (
        X[:half],
        X[half:],
        torch.randn(half, generator=torch.Generator().manual_seed(0), dtype=X.dtype).to(X),
    )

    def fed(*pieces: slice | Tensor) -> Posterior:
        state = make(_RIDGES[1])
        for piece in pieces:
            state.update(A[piece], y[piece])
        return state

    def same(law: str, found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
        for name, value in expected.items():
            torch.testing.assert_close(
                found[name],
                value,
                rtol=tolerance,
                atol=tolerance,
                msg=lambda text, name=name: f"{law}: {name}\n{text}",
            )

    def expect(state: Posterior, A: Tensor, y: Tensor) -> dict[str, Tensor]:
        return _answers(formulas(state, A, y), Z) if formulas else _dense(state, A, y, Z)

    everything, empty = slice(None), make(_RIDGES[1])
    before = {name: value.to(X) for name, value in _answers(empty, Z).items()}
    same("without data the answers are the prior", before, _dense(empty, A[:0], y[:0], Z))
    same(
        "prior_variance is the diagonal of the prior",
        {"": empty.prior_variance(Z)},
        {"": empty.prior(Z, Z).diagonal()},
    )

    state = fed(everything)
    expected = _answers(state, Z)
    _holds(
        state.n == half and empty.ridge == _RIDGES[1],
        "n counts the observations, and the ridge is the given one",
    )
    same("the answers equal the dense formulas", expected, expect(state, A, y))
    plain, own = state.predict(Z), state.at(state.ridge).predict(Z)
    same("without a ridge the answers are those of its own", {"mean": plain[0]}, {"mean": own[0]})
    same(
        "data one by one give the same",
        _answers(fed(*(slice(i, i + 1) for i in range(half))), Z),
        expected,
    )
    if not ordered:
        same(
            "the order of the data does not matter",
            _answers(fed(torch.arange(half).flip(0)), Z),
            expected,
        )
    twice = fed(everything, everything)
    same(
        "repeated points count again",
        _answers(twice, Z),
        expect(twice, A.repeat(2, 1), y.repeat(2)),
    )

    one = {
        name: torch.stack([_answers(state, z)[name][..., 0] for z in Z.split(1)], -1)
        for name in ("mean", "variance")
    }
    same(
        "an answer does not depend on the other points", one, {name: expected[name] for name in one}
    )
    batch = state.predict(Z.unsqueeze(0))[0].squeeze(0)
    same("points come in batches", {"mean": batch}, {"mean": state.predict(Z)[0]})
    point = Z[:1].clone().requires_grad_()
    _holds(
        torch.autograd.gradcheck(lambda x: state.predict(x), point, atol=1e-4),
        "gradients are exact",
    )

    version, fork = state.version, state.fork()
    fork.update(Z, Z.sum(-1))
    _holds(
        fork.version != version and state.version == version,
        "an update changes the version, that of a fork alone",
    )
    same("a fork does not change its parent", _answers(state, Z), expected)
    forked = _answers(fork, Z)
    mine, values = A.clone(), y.clone()
    copied = make(_RIDGES[1])
    copied.update(mine, values)
    mine.zero_()
    values.zero_()
    same("data that the caller changes later change nothing", _answers(copied, Z), expected)
    for bad_X, bad_y in [(A, y * torch.nan), (A * torch.nan, y), (A, y[:1]), (A[:, :0], y)]:
        try:
            state.update(bad_X, bad_y)
        except InvalidInput:
            same("a failed update changes nothing", _answers(state, Z), expected)
            _holds(
                state.version == version and state.n == half,
                "a failed update changes neither version nor n",
            )
        else:
            raise AssertionError(
                "data that are not finite, or do not fit, are refused by InvalidInput"
            )
    copied = copy.deepcopy(state)
    same("a deep copy gives the same", _answers(copied, Z), expected)
    for one_of_both in (copied, state):
        one_of_both.update(Z, Z.sum(-1))
    same("a deep copy continues as the posterior does", _answers(copied, Z), _answers(state, Z))
    same("a parent does not change its fork", _answers(fork, Z), forked)
    same("a state and its fork learn alike", forked, _answers(state, Z))


def _holds(truth: bool, law: str) -> None:
    if not truth:
        raise AssertionError(law)


def _answers(state: Any, Z: Tensor) -> dict[str, Tensor]:
    """Return all answers at several ridges."""
    found: dict[str, list[Tensor]] = {}
    for ridge in _RIDGES:
        posterior = state.at(ridge)
        mean, variance = posterior.predict(Z)
        answers = {
            "mean": mean,
            "variance": variance,
            "covariance": posterior.covariance(Z, Z.flip(0)),
            "log_det": posterior.log_det(),
            "quad": posterior.quad(),
            "effective_dimension": posterior.effective_dimension(),
        }
        for name, value in answers.items():
            found.setdefault(name, []).append(value)
    return {name: torch.stack(values) for name, values in found.items()}


def _dense(state: Posterior, X: Tensor, y: Tensor, Z: Tensor) -> dict[str, Tensor]:
    """Return all answers at several ridges by the dense formulas, from the prior."""
    found: dict[str, list[Tensor]] = {}
    K, k, k_ZZ = state.prior(X, X), state.prior(X, Z), state.prior(Z, Z)
    for ridge in _RIDGES:
        A = K + ridge * torch.eye(len(X)).to(K)
        solved = torch.linalg.solve(A, torch.cat([k, y.unsqueeze(-1), K], -1))
        covariance = k_ZZ - k.mT @ solved[:, : len(Z)]
        answers = {
            "mean": k.mT @ solved[:, len(Z)],
            "variance": covariance.diagonal(),
            "covariance": covariance.flip(-1),
            "log_det": torch.linalg.slogdet(A / ridge)[1],
            "quad": ridge * y @ solved[:, len(Z)],
            "effective_dimension": solved[:, len(Z) + 1 :].trace(),
        }
        for name, value in answers.items():
            found.setdefault(name, []).append(value)
    return {name: torch.stack(values) for name, values in found.items()}
