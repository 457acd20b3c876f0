"""Upper confidence bounds under limits on other functions: optimism over the points that possibly keep them."""

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
from kbo.acquisition.ucb import KernelUCB
from kbo.confidence import Confidence
from kbo.confidence.limit import Limit
from kbo.errors import InvalidInput
from kbo.regression import Posterior

Interval = tuple[float | None, float | None]
Located = tuple[Posterior, Tensor]


class ConstrainedKernelUCB(CheckedAcquisition):
    """The upper confidence bound of one function over the points that possibly keep limits on others.

    The rule of CONFIG (Xu et al. 2023): at points that the bounds of the constraints do not exclude, the value is the
    upper bound of the objective, ``KernelUCB``, clamped from below by the least possible posterior mean (exactly that
    for kernels with the same prior variance everywhere). At excluded points it is lower, by how far they break a limit
    at least. If the largest value is at an excluded point (``slack`` is negative), no point keeps the limits. Pending
    points are hallucinated for the objective alone.

    The value jumps at the border of the possible points, where gradient search often ends a little too early, with a
    warning. As ``nonlinear_inequality_constraints``, which need feasible initial conditions, ``slack`` makes it follow
    the border.

    Args:
        model: The models of kbo; the objective and each constraint is one of them.
        confidences: The bound of each model, about its (transformed) targets.
        objective_index: The number of the objective in ``model``.
        constraints: For numbers of functions their lower and upper limit, either may be None, as in
            ``LogConstrainedExpectedImprovement``. Limits are in the units of the data: an outcome transform of a
            constraint must be monotone, as ``Standardize`` and ``Log`` are.
        posterior_transform: Of the objective, as in ``KernelUCB``; with weight -1 it is minimised.
        X_pending: Points [p d] that are being evaluated.

    Raises:
        InvalidInput: An argument is of another kind, there is no such function, limits contradict each other, or an
            outcome transform of a constraint is not monotone.

    Attributes:
        terms: The upper confidence bound of each function that is used, by its number.

    Example:
        >>> bounds = [SelfNormalized(noise_std=0.1, norm_bound=2.0, delta=0.05) for _ in range(2)]
        >>> acqf = ConstrainedKernelUCB(ModelListGP(accuracy, memory), bounds, 0, {1: (None, 8.0)})
        >>> x, _ = optimize_acqf(acqf, box, q=1, num_restarts=4, raw_samples=256)
        >>> possible = acqf.slack(x) >= 0
        >>> options = {"batch_initial_conditions": x.unsqueeze(0), "num_restarts": 1}
        >>> x, _ = optimize_acqf(acqf, box, 1, nonlinear_inequality_constraints=[(acqf.slack, True)], **options)
    """

    def __init__(
        self,
        model: ModelListGP,
        confidences: Sequence[Confidence],
        objective_index: int,
        constraints: Mapping[int, Interval],
        posterior_transform: PosteriorTransform | None = None,
        X_pending: Tensor | None = None,
    ) -> None:
        last = len(checks.instance("model", model, ModelListGP).models) - 1
        number = checks.whole("objective_index", objective_index, 0, last)
        limits = _checked(constraints, last)
        transforms = {**dict.fromkeys(limits), number: posterior_transform}
        super().__init__(model=model)
        models: list[Any] = list(model.models)
        if not isinstance(confidences, Sequence) or len(confidences) != len(models):
            raise InvalidInput(
                f"confidences must be a list of one bound for each of {len(models)} models, got "
                f"{checks.shown(confidences)}."
            )
        self.terms: dict[int, KernelUCB] = {
            i: KernelUCB(models[i], confidences[i], transforms[i]) for i in sorted(transforms)
        }
        self.set_X_pending(X_pending)
        self.objective: KernelUCB = self.terms[number]
        self.constraints: dict[int, Interval] = limits
        self._kept: dict[int, tuple[int, Tensor, list[Limit]]] = {}
        for i, pair in limits.items():
            _as_targets(
                self.terms[i].model, pair
            )  # one that cannot be used is an error now, not later

    certain: ClassVar[bool] = False
    """Whether the slack is that of the pessimistic bounds."""

    @t_batch_mode_transform(assert_output_shape=False)  # pyright: ignore[reportArgumentType]
    def forward(self, X: Tensor) -> Tensor:
        """Return the values [b] of the batches X [b q d]."""
        term = self.objective
        found = self.located(X)
        slack, (state, P) = self._slack(found), found[term]
        finite, floor = term.confidence.finite_on(state), X.new_zeros(())
        if finite:  # below all means, otherwise below all deviations
            floor = term.offset - abs(term.weight) * self._limits(term, state)[0]
        return torch.where(
            slack >= 0, torch.maximum(term.bounds(state, P), floor), floor + slack
        ).mean(-1)

    def slack(self, X: Tensor) -> Tensor:
        """Return the least slack [...] of the limits at X [... d], by the optimistic (or ``certain``) bounds.

        It is negative where the bounds say that a limit is broken (is not certain to be kept), and in multiples of the
        largest posterior mean, so that those of different functions compare.
        """
        one = checks.shaped("X", X).ndim == 1  # as nonlinear constraints are given points
        slack = self._slack(self.located(X.unsqueeze(0) if one else X))
        return slack.squeeze(-1) if one else slack

    @property
    def guarantee(self) -> str | None:
        """The guarantees of the terms, in words; None without one, for the reasons of ``objections``."""
        if self.objections:
            return None
        known = [f"function {i}: {term.guarantee}" for i, term in self.terms.items()]
        return "; ".join(
            [*known, f"all hold together with probability at least 1 - {self._delta:g}"]
        )

    @property
    def objections(self) -> list[str]:
        """The reasons why no theorem covers the values, in words; none if one does."""
        reasons = [
            f"function {i}: {reason}"
            for i, term in self.terms.items()
            for reason in term.objections
        ]
        if not reasons and self._delta >= 1:
            reasons.append(
                f"the probabilities with which the bounds may fail add up to {self._delta:g}, so nothing is known of "
                "all of them together: give each a smaller delta"
            )
        return reasons

    @property
    def _delta(self) -> float:
        return sum(term.confidence.delta_on(term.state()) for term in self.terms.values())

    def batch_shapes(self) -> dict[str, torch.Size]:
        return {f"model {i}": term.model.batch_shape for i, term in self.terms.items()}

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Replace the points [p d] that are being evaluated; None or an empty tensor clears them."""
        for term in self.terms.values():
            term.set_X_pending(X_pending)
            self.X_pending: Tensor | None = term.X_pending

    def located(self, X: Tensor) -> dict[KernelUCB, Located]:
        """Return for each term its posterior and the points X [... d] in its inputs."""
        return {term: term.model.state_and_points(X) for term in self.terms.values()}

    def _slack(self, found: Mapping[KernelUCB, Located]) -> Tensor:
        """Return the least slack [...], given posteriors and points."""
        _, X = found[self.objective]
        slacks = [X.new_full(X.shape[:-1], torch.inf)]
        for term in map(self.terms.__getitem__, self.constraints):
            state, P = found[term]
            if term.confidence.finite_on(state):
                size, limits = self._limits(term, state)
                values = [
                    (limit.certain if self.certain else limit.possible)(P) for limit in limits
                ]
                slacks += [value / torch.where(size > 0, size, 1.0) for value in values]
            elif self.certain:
                slacks.append(-slacks[0])
        return torch.stack(torch.broadcast_tensors(*slacks)).amin(0)

    def _limits(self, term: KernelUCB, state: Posterior) -> tuple[Tensor, list[Limit]]:
        """Return the largest size [... 1] of the mean, and the limits on it; kept until the posterior changes."""
        i = next(i for i, one in self.terms.items() if one is term)
        if i not in self._kept or self._kept[i][0] != state.version:
            sides = zip(
                ("lower", "upper"),
                _as_targets(term.model, self.constraints.get(i, (None, None))),
                strict=True,
            )
            limits = [
                Limit(state, term.confidence, **{side: value})
                for side, value in sides
                if value is not None
            ]
            self._kept[i] = state.version, _size(term, state).detach(), limits
        return self._kept[i][1:]


def _size(term: KernelUCB, state: Posterior) -> Tensor:
    """The largest size of the posterior mean, its norm times sqrt(k), by the prior variance at the data.

    Returns:
        It [... 1], with one entry for each batch of data.
    """
    X = term.model.train_inputs[0]
    if not state.n:
        return X.new_zeros(1)
    ridge = term.confidence.ridge(state)
    return (
        state.at(ridge).quad().to(X) / ridge * state.prior_variance(X).amax(-1, keepdim=True)
    ).sqrt()


def _checked(constraints: Any, last: int) -> dict[int, Interval]:
    """Limits by the numbers of functions, if they are that."""
    if not isinstance(constraints, Mapping) or not constraints:
        raise InvalidInput(
            "constraints must give lower and upper limits for some functions, such as {1: (None, 8.0)}, got "
            f"{checks.shown(constraints)}: without any, take KernelUCB."
        )
    limits = {}
    for i, pair in constraints.items():
        name = f"constraints[{checks.shown(i)}]"
        i = checks.whole(f"a key of constraints, {checks.shown(i)},", i, 0, last)
        if not isinstance(pair, Sequence) or len(pair) != 2 or all(value is None for value in pair):
            raise InvalidInput(
                f"{name} must be (lower, upper), one of them perhaps None, got {checks.shown(pair)}."
            )
        lower, upper = (checks.maybe(checks.number, name, value) for value in pair)
        if lower is not None and upper is not None and lower > upper:
            raise InvalidInput(
                f"{name}: the lower limit {lower:g} is above the upper one, {upper:g}."
            )
        limits[i] = (lower, upper)
    return limits


def _as_targets(model: Any, limits: Interval) -> Interval:
    """Limits in the units of the data as limits on the targets of a model, which a decreasing transform swaps.

    Raises:
        InvalidInput: The outcome transform is not monotone, or has no finite value at a limit.
    """
    transform = getattr(model.eval(), "outcome_transform", None)
    given = [value for value in limits if value is not None]
    if transform is None or not given:
        return limits
    steps = torch.logspace(-4, 4, 9, dtype=torch.float64, device=model.train_targets.device)
    steps = torch.cat([-steps.flip(0), steps.new_zeros(1), steps])
    values = torch.stack([value + (abs(value) or 1.0) * steps for value in given])
    with torch.no_grad():
        targets = (
            transform(values.view(-1, 1))[0].view(values.shape).cpu()
        )  # one read of the device
    rises = torch.cat([one[one.isfinite()].diff() for one in targets])
    near = targets[
        :, 7:12
    ].diff()  # up to a thousandth of the limit on both sides; outside its domain it may be NaN
    signs = {float(sign) for sign in rises.sign().unique()}
    swapped = -1.0 in signs
    if (
        (swapped and 1.0 in signs)
        or not bool((near != 0).all())
        or not bool(targets[:, 9].isfinite().all())
    ):
        raise InvalidInput(
            f"the outcome transform {type(transform).__name__} of a constraint is not monotone, or has no finite value "
            f"at the limits {given}, so a limit on values is no limit on targets: take one that increases or decreases "
            "everywhere, such as Standardize or Log, and limits in its domain."
        )
    found = iter(targets[:, 9].tolist())
    lower, upper = (None if value is None else next(found) for value in limits)
    return (upper, lower) if swapped else (lower, upper)
