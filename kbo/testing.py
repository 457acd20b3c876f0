"""Laws that posteriors must satisfy, for tests of your own posteriors."""

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
_RIDGE = _RIDGES[1]

Numbers = dict[str, Tensor]
"""Numbers of a posterior by name, each with a leading axis for the ridges."""


def check_posterior(
    make: Callable[[float], Posterior],
    X: Tensor,
    tolerance: float = 1e-8,
    *,
    formulas: Callable[[Posterior, Tensor, Tensor], Any] | None = None,
    ordered: bool = False,
) -> None:
    """Check that a posterior obeys the laws that the rest of kbo assumes.

    * Its numbers equal the dense formulas of its own ``prior``.
    * Data in pieces, in another order or repeated give the same numbers.
    * Bad data are refused and change nothing.
    * It is independent of its forks and copies, and of later changes of the caller's data.
    * The numbers at a point do not depend on the other points, and have exact gradients.

    A posterior that only approximates the formulas, such as a sketch, needs its own ``formulas``.

    Args:
        make: Returns the posterior without data at a ridge.
        X: Points [n d], at least 8 distinct ones, in float64. Half of them are observed.
        tolerance: Relative and absolute tolerance.
        formulas: Called with the posterior, the points and the targets. It returns an object whose
            ``at(ridge)`` has the expected numbers, as the methods ``predict``, ``covariance``,
            ``log_det``, ``quad`` and ``effective_dimension`` of a ``PosteriorAt``.
        ordered: Whether the numbers may depend on the order of the data.

    Raises:
        AssertionError: A law does not hold; the message names the first one.
        InvalidInput: Too few points, or of another shape or dtype.

    Example:
        >>> points = torch.rand(20, 2, dtype=torch.double)
        >>> check_posterior(lambda ridge: LinearRegression(features, ridge), points)
    """
    if len(checks.rows("X", X)) < 8 or X.dtype != torch.float64:
        raise InvalidInput(
            f"X must have at least 8 points in torch.float64, got {len(X)} in {X.dtype}."
        )
    laws = _Laws(make, X, tolerance, formulas)
    laws.without_data()
    laws.formulas()
    laws.order_of_data(ordered)
    laws.points()
    laws.bad_data()
    laws.forks()
    laws.data_of_the_caller()
    laws.copies()


class _Laws:
    """The laws, in groups, for one kind of posterior; arguments as for ``check_posterior``."""

    def __init__(
        self,
        make: Callable[[float], Posterior],
        X: Tensor,
        tolerance: float,
        formulas: Callable[[Posterior, Tensor, Tensor], Any] | None,
    ) -> None:
        half = len(X) // 2
        y = torch.randn(half, generator=torch.Generator().manual_seed(0), dtype=X.dtype)
        self._make = make
        self._tolerance = tolerance
        self._formulas = formulas or _Dense
        self.X = X[:half]
        self.y = y.to(X)
        self.Z = X[half:]

    def without_data(self) -> None:
        empty = self._make(_RIDGE)
        actual = {name: value.to(self.X) for name, value in _numbers(empty, self.Z).items()}
        formulas = _Dense(empty, self.X[:0], self.y[:0])
        expected = _at_all_ridges(formulas.at, self.Z)
        self._same("without data the answers are the prior", actual, expected)
        self._same(
            "prior_variance is the diagonal of the prior",
            {"": empty.prior_variance(self.Z)},
            {"": empty.prior(self.Z, self.Z).diagonal()},
        )
        _holds(empty.ridge == _RIDGE, "the ridge is the given one")

    def formulas(self) -> None:
        state = self._observed(slice(None))
        _holds(state.n == len(self.X), "n counts the observations")
        self._same(
            "the answers equal the dense formulas",
            _numbers(state, self.Z),
            self._expected(state, self.X, self.y),
        )
        self._same(
            "without a ridge the answers are those of its own",
            {"mean": state.predict(self.Z)[0]},
            {"mean": state.at(state.ridge).predict(self.Z)[0]},
        )
        twice = self._observed(slice(None), slice(None))
        self._same(
            "repeated points count again",
            _numbers(twice, self.Z),
            self._expected(twice, self.X.repeat(2, 1), self.y.repeat(2)),
        )

    def order_of_data(self, ordered: bool) -> None:
        expected = _numbers(self._observed(slice(None)), self.Z)
        one_by_one = self._observed(*(slice(i, i + 1) for i in range(len(self.X))))
        self._same("data one by one give the same", _numbers(one_by_one, self.Z), expected)
        if not ordered:
            reverse = self._observed(torch.arange(len(self.X)).flip(0))
            law = "the order of the data does not matter"
            self._same(law, _numbers(reverse, self.Z), expected)

    def points(self) -> None:
        state = self._observed(slice(None))
        mean, variance = state.predict(self.Z)
        means, variances = zip(*map(state.predict, self.Z.split(1)), strict=True)
        self._same(
            "an answer does not depend on the other points",
            {"mean": torch.cat(means), "variance": torch.cat(variances)},
            {"mean": mean, "variance": variance},
        )
        batch_mean, _ = state.predict(self.Z.unsqueeze(0))
        self._same("points come in batches", {"mean": batch_mean.squeeze(0)}, {"mean": mean})
        point = self.Z[:1].clone().requires_grad_()
        is_exact = torch.autograd.gradcheck(lambda x: state.predict(x), point, atol=1e-4)
        _holds(is_exact, "gradients are exact")

    def bad_data(self) -> None:
        X = self.X
        y = self.y
        state = self._observed(slice(None))
        expected = _numbers(state, self.Z)
        version = state.version
        for bad_X, bad_y in [(X, y * torch.nan), (X * torch.nan, y), (X, y[:1]), (X[:, :0], y)]:
            try:
                state.update(bad_X, bad_y)
            except InvalidInput:
                self._same("a failed update changes nothing", _numbers(state, self.Z), expected)
                _holds(
                    state.version == version and state.n == len(X),
                    "a failed update changes neither version nor n",
                )
            else:
                raise AssertionError(
                    "data that are not finite, or do not fit, are refused by InvalidInput"
                )

    def forks(self) -> None:
        state = self._observed(slice(None))
        expected = _numbers(state, self.Z)
        version = state.version
        new_targets = self.Z.sum(-1)

        fork = state.fork()
        fork.update(self.Z, new_targets)
        _holds(
            fork.version != version and state.version == version,
            "an update changes the version, that of a fork alone",
        )
        self._same("a fork does not change its parent", _numbers(state, self.Z), expected)

        numbers_of_fork = _numbers(fork, self.Z)
        state.update(self.Z, new_targets)
        numbers_of_parent = _numbers(state, self.Z)
        law = "a parent does not change its fork"
        self._same(law, _numbers(fork, self.Z), numbers_of_fork)
        law = "a posterior and its fork learn the same from the same data"
        self._same(law, numbers_of_fork, numbers_of_parent)

    def copies(self) -> None:
        state = self._observed(slice(None))
        expected = _numbers(state, self.Z)
        new_targets = self.Z.sum(-1)

        twin = copy.deepcopy(state)
        self._same("a copy answers the same", _numbers(twin, self.Z), expected)
        twin.update(self.Z, new_targets)
        self._same("a copy does not change its original", _numbers(state, self.Z), expected)
        state.update(self.Z, new_targets)
        law = "a copy continues as the original does"
        self._same(law, _numbers(twin, self.Z), _numbers(state, self.Z))

    def data_of_the_caller(self) -> None:
        expected = _numbers(self._observed(slice(None)), self.Z)
        X = self.X.clone()
        y = self.y.clone()
        state = self._make(_RIDGE)
        state.update(X, y)
        X.zero_()
        y.zero_()
        law = "data that the caller changes later change nothing"
        self._same(law, _numbers(state, self.Z), expected)

    def _observed(self, *pieces: slice | Tensor) -> Posterior:
        """Return a posterior that has observed parts of the data, one after the other."""
        state = self._make(_RIDGE)
        for piece in pieces:
            state.update(self.X[piece], self.y[piece])
        return state

    def _expected(self, state: Posterior, X: Tensor, y: Tensor) -> Numbers:
        """Return the numbers of the formulas for data X [n d], y [n]."""
        formulas = self._formulas(state, X, y)
        return _at_all_ridges(formulas.at, self.Z)

    def _same(self, law: str, actual: Numbers, expected: Numbers) -> None:
        """Raise AssertionError unless numbers equal the expected ones up to the tolerance."""
        for name, value in expected.items():
            torch.testing.assert_close(
                actual[name],
                value,
                rtol=self._tolerance,
                atol=self._tolerance,
                msg=lambda text, name=name: f"{law}: {name}\n{text}",
            )


def _holds(condition: bool, law: str) -> None:
    """Raise AssertionError, with the law as message, unless a condition is true."""
    if not condition:
        raise AssertionError(law)


def _numbers(state: Posterior, Z: Tensor) -> Numbers:
    """Return the numbers of a posterior at points Z and all ridges."""
    return _at_all_ridges(state.at, Z)


def _at_all_ridges(at: Callable[[float], Any], Z: Tensor) -> Numbers:
    """Return the numbers of posteriors at one ridge, for all ridges."""
    rows: list[Numbers] = []
    for ridge in _RIDGES:
        posterior = at(ridge)
        mean, variance = posterior.predict(Z)
        rows.append(
            {
                "mean": mean,
                "variance": variance,
                "covariance": posterior.covariance(Z, Z.flip(0)),
                "log_det": posterior.log_det(),
                "quad": posterior.quad(),
                "effective_dimension": posterior.effective_dimension(),
            }
        )
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}


class _Dense:
    """The dense formulas for data X [n d], y [n], from the prior of a posterior."""

    def __init__(self, state: Posterior, X: Tensor, y: Tensor) -> None:
        self._state = state
        self._X = X
        self._y = y

    def at(self, ridge: float) -> _DenseAt:
        return _DenseAt(self._state, self._X, self._y, ridge)


class _DenseAt:
    """The dense formulas at one ridge."""

    def __init__(self, state: Posterior, X: Tensor, y: Tensor, ridge: float) -> None:
        self._prior = state.prior
        self._X = X
        self._y = y
        self._ridge = ridge
        self._K = state.prior(X, X)
        self._regularised = self._K + ridge * torch.eye(len(X)).to(self._K)

    def predict(self, Z: Tensor) -> tuple[Tensor, Tensor]:
        mean = self._prior(Z, self._X) @ self._solve(self._y)
        return mean, self.covariance(Z, Z).diagonal()

    def covariance(self, Z: Tensor, other: Tensor) -> Tensor:
        solved = self._solve(self._prior(self._X, other))
        return self._prior(Z, other) - self._prior(Z, self._X) @ solved

    def log_det(self) -> Tensor:
        return torch.linalg.slogdet(self._regularised / self._ridge)[1]

    def quad(self) -> Tensor:
        return self._ridge * self._y @ self._solve(self._y)

    def effective_dimension(self) -> Tensor:
        return self._solve(self._K).trace()

    def _solve(self, B: Tensor) -> Tensor:
        return torch.linalg.solve(self._regularised, B)
