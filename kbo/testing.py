"""Laws that posteriors must satisfy, for tests of your own posteriors."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
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
    laws.independence("fork", lambda state: state.fork())
    laws.independence("copy", copy.deepcopy)
    laws.data_of_the_caller()


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
        self._formulas = formulas
        self.X = X[:half]
        self.y = y.to(X)
        self.Z = X[half:]

    def without_data(self) -> None:
        empty = self._make(_RIDGE)
        actual = {name: value.to(self.X) for name, value in self._numbers(empty.at).items()}
        expected = self._numbers(partial(_Dense, empty, self.X[:0], self.y[:0]))
        self._same("without data the answers are the prior", actual, expected)
        self._same(
            "prior_variance is the diagonal of the prior",
            {"": empty.prior_variance(self.Z)},
            {"": empty.prior(self.Z, self.Z).diagonal()},
        )
        _holds(empty.ridge == _RIDGE, "the ridge is the given one")

    def formulas(self) -> None:
        state = self._observed()
        _holds(state.n == len(self.X), "n counts the observations")
        self._same(
            "the answers equal the dense formulas",
            self._numbers(state.at),
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
            self._numbers(twice.at),
            self._expected(twice, self.X.repeat(2, 1), self.y.repeat(2)),
        )

    def order_of_data(self, ordered: bool) -> None:
        expected = self._numbers(self._observed().at)
        one_by_one = self._observed(*(slice(i, i + 1) for i in range(len(self.X))))
        self._same("data one by one give the same", self._numbers(one_by_one.at), expected)
        if not ordered:
            reverse = self._observed(torch.arange(len(self.X)).flip(0))
            law = "the order of the data does not matter"
            self._same(law, self._numbers(reverse.at), expected)

    def points(self) -> None:
        state = self._observed()
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
        state = self._observed()
        expected = self._numbers(state.at)
        version = state.version
        for bad_X, bad_y in [(X, y * torch.nan), (X * torch.nan, y), (X, y[:1]), (X[:, :0], y)]:
            try:
                state.update(bad_X, bad_y)
            except InvalidInput:
                self._same("a failed update changes nothing", self._numbers(state.at), expected)
                _holds(
                    state.version == version and state.n == len(X),
                    "a failed update changes neither version nor n",
                )
            else:
                raise AssertionError(
                    "data that are not finite, or do not fit, are refused by InvalidInput"
                )

    def independence(self, name: str, copy_of: Callable[[Posterior], Posterior]) -> None:
        """Check that a copy and its original do not change each other, and learn the same.

        Args:
            name: The kind of copy, in messages.
            copy_of: Returns a copy of a posterior.
        """
        state = self._observed()
        expected = self._numbers(state.at)
        version = state.version
        new_targets = self.Z.sum(-1)

        twin = copy_of(state)
        self._same(f"a {name} answers the same", self._numbers(twin.at), expected)
        twin.update(self.Z, new_targets)
        _holds(
            twin.version != version and state.version == version,
            f"an update changes the version, that of a {name} alone",
        )
        law = f"a {name} does not change its original"
        self._same(law, self._numbers(state.at), expected)

        numbers_of_twin = self._numbers(twin.at)
        state.update(self.Z, new_targets)
        law = f"an original does not change its {name}"
        self._same(law, self._numbers(twin.at), numbers_of_twin)
        law = f"a posterior and its {name} learn the same from the same data"
        self._same(law, numbers_of_twin, self._numbers(state.at))

    def data_of_the_caller(self) -> None:
        expected = self._numbers(self._observed().at)
        X = self.X.clone()
        y = self.y.clone()
        state = self._make(_RIDGE)
        state.update(X, y)
        X.zero_()
        y.zero_()
        law = "data that the caller changes later change nothing"
        self._same(law, self._numbers(state.at), expected)

    def _observed(self, *pieces: slice | Tensor) -> Posterior:
        """Return a posterior that has observed parts of the data, by default all, one after the other."""
        state = self._make(_RIDGE)
        for piece in pieces or (slice(None),):
            state.update(self.X[piece], self.y[piece])
        return state

    def _expected(self, state: Posterior, X: Tensor, y: Tensor) -> Numbers:
        """Return the numbers of the formulas for data X [n d], y [n]."""
        if self._formulas is None:
            return self._numbers(partial(_Dense, state, X, y))
        return self._numbers(self._formulas(state, X, y).at)

    def _numbers(self, at: Callable[[float], Any]) -> Numbers:
        """Return the numbers at the points Z and all ridges of posteriors at one ridge."""
        rows: list[Numbers] = []
        for ridge in _RIDGES:
            posterior = at(ridge)
            mean, variance = posterior.predict(self.Z)
            rows.append(
                {
                    "mean": mean,
                    "variance": variance,
                    "covariance": posterior.covariance(self.Z, self.Z.flip(0)),
                    "log_det": posterior.log_det(),
                    "quad": posterior.quad(),
                    "effective_dimension": posterior.effective_dimension(),
                }
            )
        return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}

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


class _Dense:
    """The dense formulas at one ridge, for data X [n d], y [n], from the prior of a posterior."""

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
