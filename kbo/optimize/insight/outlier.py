"""The outlier of a run: the trial whose value is farthest from the prediction by all others, such as a typing error.

The model that predicts it is fitted to the other trials alone. A model that is also fitted to a wrong value would
explain it by more noise or by a shorter lengthscale.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR
from statistics import NormalDist

import torch

from kbo._base.terminal import beside, rounded
from kbo.optimize.insight.comparison import varies
from kbo.optimize.surrogates.evaluation import Evaluation
from kbo.optimize.surrogates.surrogate import Surrogate

_FAR = 4.0
"""Number of standard deviations beyond which a value is far from its prediction."""

_FEWEST = 6
"""Number of observed values from which on one of them may be an outlier."""

_ALONE = 0.99
"""Distance in ranges: a trial without another one so near is not predicted. Two options are 1 apart."""

_NARROW = 3.0
"""Largest ratio of the ends of an interval that can show a misplaced decimal point."""


@dataclass(frozen=True)
class Outlier:
    """A trial whose value is far from the prediction by all other trials.

    Reports about the run leave a doubtful value out until it is corrected, removed or repeated.

    Attributes:
        number: The number of the trial.
        value: Its value.
        lower, upper: The 90% interval of the value that the other trials predict.
        doubtful: Whether the value is probably wrong. It is if it is worse than predicted, if it is better than the
            best other value by more than the range of all others, or if it is inside the interval after its decimal
            point is moved by one place. Otherwise the trial may be a discovery.
        repeated: The number of the first other trial with the same parameters; None if there is none.
    """

    number: int
    value: float
    lower: float
    upper: float
    doubtful: bool
    repeated: int | None = None

    def __str__(self) -> str:
        text = f"trial {self.number} has {self.shown_value}, the other trials predict {self.prediction} (90%)"
        if self.doubtful:
            return f"{text}: probably a mistake"
        return f"{text}: perhaps a discovery"

    @property
    def shown_value(self) -> str:
        """The value as text with four digits, or more if it would otherwise look as if it were in ``prediction``."""
        lower, upper = self._shown_ends()
        if self.value > self.upper:
            return beside(self.value, float(upper))
        return beside(self.value, float(lower))

    @property
    def prediction(self) -> str:
        """The interval that the other trials predict, as text."""
        lower, upper = self._shown_ends()
        return f"{lower} to {upper}"

    def _shown_ends(self) -> tuple[str, str]:
        """Return the ends of the interval as text, rounded outwards."""
        width = self.upper - self.lower
        lower = rounded(self.lower, width, ROUND_FLOOR)
        upper = rounded(self.upper, width, ROUND_CEILING)
        return lower, upper


def outlier(
    surrogate: Surrogate, without: Callable[[int], Surrogate | None], maximize: bool
) -> Outlier | None:
    """Return the trial with the largest leave-one-out error if its value is far from the prediction, else None.

    A value is far if it differs by more than four standard deviations. It is also far if it is outside of the 90%
    interval, and ten times the value or a tenth of it is inside. None if the values have no noise, since then they are
    computed and not measured; if all other values are equal; and if all other trials are farther away than another
    option of a choice is.

    Args:
        surrogate: The surrogate of the objective, larger values better.
        without: Returns the surrogate without the trial of a number.
        maximize: Whether larger values of the objective are better.
    """
    suspect = _suspect(surrogate)
    if suspect is None or _is_alone(surrogate, suspect):
        return None
    others = without(suspect.number)
    if others is None or not varies(others):
        return None
    X = torch.tensor([suspect.features], dtype=torch.float64)
    if others.predictive is None:
        return None
    mean, std = others.predictive.new_values(X)
    half_width = NormalDist().inv_cdf(0.95) * std
    ends = torch.cat([mean - half_width, mean + half_width])
    lower, upper = others.transform.inverse(ends).tolist()
    value = suspect.value
    assert value is not None
    error = float(others.transform.target(value) - mean) / float(std)
    is_slip = _is_slip(value, lower, upper)
    if abs(error) <= _FAR and not is_slip:
        return None
    doubtful = error < 0 or is_slip or _is_beyond(value, others.values)
    if not maximize:
        value = -value
        lower, upper = -upper, -lower
    repeated = _repeated(surrogate, suspect)
    return Outlier(suspect.number, value, lower, upper, doubtful, repeated)


def _suspect(surrogate: Surrogate) -> Evaluation | None:
    """Return the evaluation with the largest leave-one-out error, in standard deviations of its prediction.

    None without noise, without a prior, and with fewer than six observed values.
    """
    if surrogate.predictive is None or surrogate.noiseless:
        return None
    errors, stds = surrogate.predictive.left_out_errors()
    observed = [not evaluation.predicted for evaluation in surrogate.values]
    if sum(observed) < _FEWEST:
        return None
    standard = (errors.abs() / stds).masked_fill(~torch.tensor(observed), 0.0)
    return surrogate.values[int(standard.argmax())]


def _is_alone(surrogate: Surrogate, suspect: Evaluation) -> bool:
    """Return whether all other trials are farther away than another option is, so that none predicts this one."""
    point = torch.tensor(suspect.features, dtype=torch.float64)
    others = [e.features for e in surrogate.values if e.number != suspect.number]
    distances = (torch.tensor(others, dtype=torch.float64) - point).norm(dim=-1)
    return bool(distances.min() > _ALONE)


def _is_slip(value: float, lower: float, upper: float) -> bool:
    """Return whether a value is in a narrow interval only if its decimal point is moved by one place."""
    if lower <= value <= upper or lower * upper <= 0:
        return False
    smaller, larger = sorted([abs(lower), abs(upper)])
    if larger > _NARROW * smaller:
        return False
    return any(lower <= moved <= upper for moved in (value / 10, value * 10))


def _is_beyond(value: float, others: Sequence[Evaluation]) -> bool:
    """Return whether a value is better than the best other value by more than the range of all others."""
    values = [evaluation.value for evaluation in others if evaluation.value is not None]
    worst = min(values)
    best = max(values)
    # The range of very large values overflows.
    size = max(abs(value), abs(worst), abs(best))
    return value / size - best / size > best / size - worst / size


def _repeated(surrogate: Surrogate, suspect: Evaluation) -> int | None:
    """Return the number of the first other trial at the same parameters; None if there is none."""
    for evaluation in surrogate.values:
        if evaluation.features == suspect.features and evaluation.number != suspect.number:
            return evaluation.number
    return None
