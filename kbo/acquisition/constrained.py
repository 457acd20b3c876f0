"""Upper confidence bounds under limits on other functions, over the possibly feasible points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.models import ModelListGP
from botorch.utils.transforms import t_batch_mode_transform
from torch import Tensor

from kbo._base import checks
from kbo.acquisition.base import CheckedAcquisition
from kbo.acquisition.input_constructors import register_constrained
from kbo.acquisition.ucb import KernelUCB
from kbo.confidence import Confidence
from kbo.confidence.conclusions import Limit
from kbo.errors import InvalidInput
from kbo.regression import Posterior

LimitPair = tuple[float | None, float | None]
"""Lower and upper limit; None for no limit."""


@register_constrained
class ConstrainedKernelUCB(CheckedAcquisition):
    """The upper confidence bound of one function, under limits on other unknown functions.

    This is the rule of CONFIG (Xu et al. 2023). At points that the bounds of the constraints do not
    exclude, the value is the upper bound of the objective, ``KernelUCB``, but at least a floor. The
    floor is a lower bound of the posterior mean (everywhere, if the prior variance is constant). At
    excluded points the value is the floor less the least possible violation. If the largest value
    is at an excluded point (``slack`` is negative), no point keeps the limits. Pending points are
    hallucinated for the objective alone.

    The value jumps at the border of the possible points. There a gradient search often ends a
    little too early, with a warning. Pass ``slack`` in ``nonlinear_inequality_constraints``, which
    need feasible initial conditions, and the search follows the border.

    Args:
        model: The models of kbo; the objective and each constraint is one of them.
        confidences: The bound of each model, in units of its (transformed) targets.
        objective_index: The number of the objective in ``model``.
        constraints: The lower and the upper limit of each limited function, by its number in
            ``model``; either may be None, as in ``LogConstrainedExpectedImprovement``. Limits are
            in the units of the data, so the outcome transform of a constraint must be monotone,
            such as ``Standardize`` and ``Log``.
        posterior_transform: The transform of the objective, as in ``KernelUCB``; with weight -1 the
            objective is minimised.
        X_pending: Points [p d] that are being evaluated.

    Raises:
        InvalidInput: An argument is of another kind, a function number does not exist, limits
            contradict each other, or the outcome transform of a constraint is not monotone.

    Attributes:
        terms: The upper confidence bounds of objective and constraints, by function number.

    Example:
        >>> bound = SelfNormalized(noise_std=0.1, norm_bound=2.0, delta=0.05)
        >>> model = ModelListGP(accuracy, memory)
        >>> acqf = ConstrainedKernelUCB(model, [bound, bound], 0, {1: (None, 8.0)})
        >>> x, _ = optimize_acqf(acqf, box, q=1, num_restarts=4, raw_samples=256)
        >>> possible = acqf.slack(x) >= 0
        >>> options = {"batch_initial_conditions": x.unsqueeze(0), "num_restarts": 1}
        >>> options["nonlinear_inequality_constraints"] = [(acqf.slack, True)]
        >>> x, _ = optimize_acqf(acqf, box, q=1, **options)
    """

    certain: ClassVar[bool] = False
    """Whether ``slack`` uses the pessimistic bounds."""

    def __init__(
        self,
        model: ModelListGP,
        confidences: Sequence[Confidence],
        objective_index: int,
        constraints: Mapping[int, LimitPair],
        posterior_transform: PosteriorTransform | None = None,
        X_pending: Tensor | None = None,
    ) -> None:
        n_functions = len(checks.instance("model", model, ModelListGP).models)
        number = checks.whole("objective_index", objective_index, 0, n_functions - 1)
        limits = _checked_limits(constraints, n_functions)
        super().__init__(model=model)
        models: list[Any] = list(model.models)
        if not isinstance(confidences, Sequence) or len(confidences) != n_functions:
            raise InvalidInput(
                f"confidences must be a list of one bound for each of {n_functions} models, got "
                f"{checks.shown(confidences)}."
            )
        self.terms: dict[int, KernelUCB] = {}
        for i in sorted({number, *limits}):
            transform = None
            if i == number:
                transform = posterior_transform
            self.terms[i] = KernelUCB(models[i], confidences[i], transform)
        self.objective_index: int = number
        self.constraints: dict[int, LimitPair] = limits
        self.set_X_pending(X_pending)
        self._on_targets: dict[int, LimitPair] = {}
        for i, interval in limits.items():
            self._on_targets[i] = _limits_on_targets(models[i], interval)

    @property
    def objective(self) -> KernelUCB:
        """The upper confidence bound of the objective."""
        return self.terms[self.objective_index]

    @t_batch_mode_transform(assert_output_shape=False)  # pyright: ignore[reportArgumentType]
    def forward(self, X: Tensor) -> Tensor:
        """Return the values [b] of the batches X [b q d]."""
        located = self.located(X)
        state, P = located[self.objective_index]
        slack = self._slack(located)
        floor = X.new_zeros(())  # below all standard deviations, while the bounds are infinite
        if self.objective.confidence.finite_on(state):  # below all posterior means
            size = _largest_mean(self.objective, state)
            floor = self.objective.offset - abs(self.objective.weight) * size
        bounds = torch.maximum(self.objective.bounds(state, P), floor)
        return torch.where(slack >= 0, bounds, floor + slack).mean(-1)

    def slack(self, X: Tensor) -> Tensor:
        """Return the least slack [...] of the limits at X [... d], by the optimistic bounds.

        It is negative where a limit is certainly broken. With ``certain`` it uses the pessimistic
        bounds, and is negative where a limit is not certainly kept. Its unit is a bound of the
        posterior mean of each function, so that different functions compare.
        """
        if checks.shaped("X", X).ndim == 1:  # the points of BoTorch's nonlinear constraints
            return self._slack(self.located(X.unsqueeze(0))).squeeze(-1)
        return self._slack(self.located(X))

    @property
    def guarantee(self) -> str | None:
        """The guarantees of the terms, in words; None if there are ``objections``."""
        if self.objections:
            return None
        guarantees = [f"function {i}: {term.guarantee}" for i, term in self.terms.items()]
        together = f"all hold together with probability at least 1 - {self._delta:g}"
        return "; ".join([*guarantees, together])

    @property
    def objections(self) -> list[str]:
        """The reasons why no theorem covers the values, in words; none if one does."""
        reasons = []
        for i, term in self.terms.items():
            reasons += [f"function {i}: {reason}" for reason in term.objections]
        if not reasons and self._delta >= 1:
            reasons.append(
                f"the probabilities with which the bounds may fail add up to {self._delta:g}, so "
                "nothing is known of all of them together: give each a smaller delta"
            )
        return reasons

    @property
    def _delta(self) -> float:
        """The probability that at least one bound fails, by a union bound."""
        return sum(term.confidence.delta_on(term.state()) for term in self.terms.values())

    def batch_shapes(self) -> dict[str, torch.Size]:
        return {f"model {i}": term.model.batch_shape for i, term in self.terms.items()}

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Replace the points [p d] that are being evaluated; None or an empty tensor clears them."""
        for term in self.terms.values():
            term.set_X_pending(X_pending)
        self.X_pending: Tensor | None = self.objective.X_pending

    def located(self, X: Tensor) -> dict[int, tuple[Posterior, Tensor]]:
        """Return for each term, by its number, the posterior and the transformed points X [... d]."""
        return {i: term.model.state_and_points(X) for i, term in self.terms.items()}

    def _slack(self, located: Mapping[int, tuple[Posterior, Tensor]]) -> Tensor:
        """Return the least slack [...] of the limits, as ``slack`` does, from ``located(X)``."""
        _, X = located[self.objective_index]
        unlimited = X.new_full(X.shape[:-1], torch.inf)
        slacks = [unlimited]
        for i in self.constraints:
            state, P = located[i]
            term = self.terms[i]
            if term.confidence.finite_on(state):
                size = _largest_mean(term, state)
                unit = torch.where(size > 0, size, 1.0)
                for limit in self._limits(i, state):
                    if self.certain:
                        value = limit.certain(P)
                    else:
                        value = limit.possible(P)
                    slacks.append(value / unit)
            elif self.certain:
                slacks.append(-unlimited)
        return torch.stack(torch.broadcast_tensors(*slacks)).amin(0)

    def _limits(self, i: int, state: Posterior) -> list[Limit]:
        """Return the limits on the targets of function i."""
        confidence = self.terms[i].confidence
        lower, upper = self._on_targets[i]
        limits = []
        if lower is not None:
            limits.append(Limit(state, confidence, lower=lower))
        if upper is not None:
            limits.append(Limit(state, confidence, upper=upper))
        return limits


def _largest_mean(term: KernelUCB, state: Posterior) -> Tensor:
    """Return an upper bound of ``|mean|`` at the data, one for each batch, [... 1].

    It is ``sqrt(quad / ridge)`` times the largest prior standard deviation at the data. The first
    factor is at least the RKHS norm of the mean, because ``quad / ridge = norm^2 + rss / ridge``.
    """
    X = term.model.train_inputs[0]
    if not state.n:
        return X.new_zeros(1)
    ridge = term.confidence.ridge(state)
    squared_norm_bound = state.at(ridge).quad().to(X) / ridge
    largest_prior = state.prior_variance(X).amax(-1, keepdim=True)
    return (squared_norm_bound * largest_prior).sqrt().detach()


def _checked_limits(constraints: Any, n_functions: int) -> dict[int, LimitPair]:
    """Return the limits of constraints, by the index of their function."""
    if not isinstance(constraints, Mapping) or not constraints:
        raise InvalidInput(
            "constraints must give lower and upper limits for some functions, such as "
            f"{{1: (None, 8.0)}}, got {checks.shown(constraints)}: without any, take KernelUCB."
        )
    limits = {}
    for key, interval in constraints.items():
        shown = checks.shown(key)
        name = f"constraints[{shown}]"
        i = checks.whole(f"a key of constraints, {shown},", key, 0, n_functions - 1)
        is_pair = isinstance(interval, Sequence) and len(interval) == 2
        if not is_pair or all(value is None for value in interval):
            raise InvalidInput(
                f"{name} must be (lower, upper), one of them perhaps None, got "
                f"{checks.shown(interval)}."
            )
        lower = checks.maybe(checks.number, name, interval[0])
        upper = checks.maybe(checks.number, name, interval[1])
        if lower is not None and upper is not None and lower > upper:
            raise InvalidInput(
                f"{name}: the lower limit {lower:g} is above the upper one, {upper:g}."
            )
        limits[i] = (lower, upper)
    return limits


def _limits_on_targets(model: Any, limits: LimitPair) -> LimitPair:
    """Return limits on the targets of a model, given limits in the units of the data.

    A decreasing outcome transform swaps them.

    Raises:
        InvalidInput: The outcome transform is not monotone, or has no finite value at a limit.
    """
    transform = getattr(model.eval(), "outcome_transform", None)
    if transform is None:
        return limits
    values = [value for value in limits if value is not None]
    targets = _targets_around(transform, values, model.train_targets.device)
    at_limit = targets.shape[-1] // 2
    rises = torch.cat([row[row.isfinite()].diff() for row in targets])
    increases = bool((rises >= 0).all())
    decreases = bool((rises <= 0).all())
    near_limit = targets[:, at_limit - 2 : at_limit + 3].diff()  # NaN outside the domain
    changes = bool((near_limit != 0).all())
    on_limits = targets[:, at_limit]
    if not (increases or decreases) or not changes or not bool(on_limits.isfinite().all()):
        raise InvalidInput(
            f"the outcome transform {type(transform).__name__} of a constraint is not monotone, or "
            f"has no finite value at the limits {values}, so a limit on values is no limit on "
            "targets: take one that increases or decreases everywhere, such as Standardize or Log, "
            "and limits in its domain."
        )
    numbers = on_limits.tolist()
    lower, upper = limits
    if lower is not None:
        lower = numbers[0]
    if upper is not None:
        upper = numbers[-1]
    if decreases:
        lower, upper = upper, lower
    return lower, upper


@torch.no_grad()
def _targets_around(transform: Any, limits: Sequence[float], device: torch.device) -> Tensor:
    """Return the outcome transform of values around each limit, [limits 19], the limit in the middle.

    The values differ from the limit by 1e-4 to 1e4 times its size, on both sides.
    """
    steps = torch.logspace(-4, 4, 9, dtype=torch.float64, device=device)
    steps = torch.cat([-steps.flip(0), steps.new_zeros(1), steps])  # relative to the limit
    values = torch.stack([limit + (abs(limit) or 1.0) * steps for limit in limits])
    return transform(values.view(-1, 1))[0].view(values.shape).cpu()
