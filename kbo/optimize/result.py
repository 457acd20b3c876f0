"""The result of a run: the recommended parameters, their bounds, and the assumptions of the bounds."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbo._base.terminal import confidence_level
from kbo.errors import InvalidInput
from kbo.optimize.confirmation.confirm import confirm
from kbo.optimize.confirmation.confirmation import Confirmation
from kbo.optimize.constraints.feasibility import Feasibility
from kbo.optimize.insight.answers import Answers
from kbo.optimize.insight.comparison import TOLERATED, Comparison, Estimate
from kbo.optimize.insight.front import Front, FrontPoint
from kbo.optimize.insight.gap.gap import Gap
from kbo.optimize.insight.gap.infeasibility import Infeasible
from kbo.optimize.insight.outlier import Outlier
from kbo.optimize.optimizer import Optimizer
from kbo.optimize.run import table
from kbo.optimize.run.outcome import OBJECTIVE
from kbo.optimize.run.trials import Trial
from kbo.optimize.strategies.explanation import Explanation
from kbo.optimize.surrogates.guarantee import NO_BOUND
from kbo.optimize.surrogates.surrogate import Surrogate
from kbo.space import Params

if TYPE_CHECKING:
    import pandas as pd

PROOF = 20_000
"""Largest number of points for the proof of an optimality gap, or that no point keeps all limits."""

_ELSEWHERE = {
    "best_params": "params",
    "best_trial": "settled.recommended()",
    "best_trials": "front",
    "best_value": "value",
    "fun": "value",
    "func_vals": "trials",
    "trials_dataframe": "to_frame()",
    "x": "params",
    "x_iters": "trials",
}
"""Attributes of ``Result`` for those of results in Optuna, SciPy and scikit-optimize."""


@dataclass(frozen=True, repr=False)
class Result:
    """The outcome of a run.

    Attributes:
        params: The recommended parameters: those of the best completed trial by the rule in ``account``. Under noise
            this need not be the trial with the best observed value.
        value: The posterior mean of the objective at ``params``, moved into its bounds, in units of the objective. It
            is the observed value while there is no posterior, and if ``exact``.
        lower, upper: Confidence bounds of the objective at ``params``; the observed value if ``exact``; None while
            there is no bound.
        gap: The optimality gap: the optimum is at most this much better than the recommended parameters, if the bounds
            hold; None while there is no bound. It says whether it is proved, and for which points.
        best_observed: The best observed value of the trials that keep the constraints as measured. Under noise it is
            biased to the good side. None with several objectives.
        evaluations: The number of evaluations of the recommended parameters that gave a value.
        feasibility: With constraints: bounds of the measured quantities at the recommended parameters, and whether they
            keep the limits, certainly or with which probability.
        infeasible: The certificate that no point of the space keeps all limits, if there is one.
        exact: Whether the objective has no noise, as the practical setting was told or has found; None while this is
            not known.
        account: How the recommendation was made, in words: "rule" says how completed trials are compared, "limits" how
            constraints count; in the practical setting there are "model", "noise" and "search" as well.
        certified: Whether the bounds hold with probability ``1 - delta`` under given assumptions.
        guarantee: What is guaranteed about the bounds, and what is not, in words.
        assumptions: The numbers that the bounds rest on, in units of the objective. ``noise_std`` is the noise level at
            the recommended parameters; that of other values may differ in the practical setting.
        trials: Every trial, failed ones included.
        stopped: The reason why the run ended.
        journal: Path of the journal; None without one.
        optimizer: The optimiser after the run.
        outlier: The trial whose value is far from the prediction by all others; None if there is none.
        settled: The optimiser that all statements of the result are about: without the outlier if its value is likely
            wrong (``outlier.doubtful``), else ``optimizer``.
        front: With several objectives: the trials that no other trial dominates. Then ``value`` and its bounds are
            those of the first objective at the balanced trial of the front, and the gap is a share of the front's
            extent.
        left_out: Sentences about what was given to the run and was not used, one for each reason.
    """

    params: Params | None
    value: float | None
    lower: float | None
    upper: float | None
    gap: Gap | None
    best_observed: float | None
    evaluations: int
    feasibility: Feasibility | None
    infeasible: Infeasible | None
    exact: bool | None
    account: dict[str, str]
    certified: bool
    guarantee: str
    assumptions: dict[str, Any]
    trials: list[Trial]
    stopped: str
    journal: str | None
    optimizer: Optimizer = field(compare=False)
    settled: Optimizer = field(compare=False)
    outlier: Outlier | None = None
    front: Front | None = None
    left_out: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return str(self)  # without the list of all trials

    def __str__(self) -> str:
        return self.summary()

    if not TYPE_CHECKING:  # so that type checkers know which attributes exist

        def __getattr__(self, name: str) -> Any:
            """Raise AttributeError, and say what the attribute of another library's result is called here."""
            message = f"a result has no attribute {name!r}"
            if name in _ELSEWHERE:
                message += f": it is called result.{_ELSEWHERE[name]}"
            raise AttributeError(message, name=name, obj=self)

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        rows = []
        for label, sentence in _summary().lines(self):
            header = f'<th scope="row" style="text-align:left">{escape(label)}</th>'
            rows.append(f'<tr>{header}<td style="text-align:left">{escape(sentence)}</td></tr>')
        return f"<table>{''.join(rows)}</table>"

    def summary(self, full: bool = False) -> str:
        """Return the summary of the run, at most nine lines.

        Args:
            full: Whether the details follow: intervals of all estimates, the model, the noise and the guarantee.
        """
        lines = _summary().lines(self)
        if full:
            lines += _summary().details(self)
        return _summary().text(lines)

    @cached_property
    def answers(self) -> Answers | None:
        """The gain of more trials and the effects of the parameters; see ``Insight.answers``.

        None while no trial keeps all limits as measured. They are computed at the first access, in some tenths of a
        second.
        """
        return self.settled.insight.answers()

    @property
    def hypervolume(self) -> Estimate | None:
        """The hypervolume of the front with its interval, nominally 90%; see ``Front``."""
        if self.front is None:
            return None
        return self.front.hypervolume

    def choose(
        self,
        weights: Mapping[str, float] | None = None,
        limits: Mapping[str, float] | None = None,
    ) -> FrontPoint:
        """Return the point of the front that suits given weights or limits best; see ``Front.choose``."""
        if self.front is None:
            raise InvalidInput("there is no front: the run has one objective, or too few trials.")
        return self.front.choose(weights, limits)

    def interval(self, params: Params, name: str = OBJECTIVE) -> tuple[float, float, float] | None:
        """Return lower bound, mean and upper bound of a quantity at any parameters; see ``Optimizer.interval``.

        Args:
            params: The parameters.
            name: The quantity; by default the objective, or the first of several.
        """
        return self.settled.interval(params, name)

    def explain(self, trial: Trial | int) -> Explanation | None:
        """Return why a trial has its parameters; see ``Optimizer.explain``."""
        return self.optimizer.explain(trial)

    def compare(self, others: Params) -> Comparison | None:
        """Return the difference between the recommended parameters and others; see ``Insight.compare``."""
        return self.settled.insight.compare(others)

    def confirm(
        self,
        objective: Callable[..., Any],
        budget: int,
        *,
        tolerance: float | None = None,
        **options: Any,
    ) -> Confirmation:
        """Evaluate the recommended parameters and their rivals again, until it is known which are best.

        Args:
            objective: As for ``minimize``.
            budget: The largest number of evaluations.
            tolerance: As for ``kbo.confirm``, in units of the objective; by default a quarter of
                ``assumptions["noise_std"]``: of the noise level at the recommended parameters, or of its assumed bound
                in the certified setting. The confirmation says which number that is.
            options: ``delta``, ``value_range``, ``journal``, ``workers``, ``timeout`` and ``progress`` of
                ``kbo.confirm``.

        Returns:
            The confirmation, which says in how many new evaluations the limits of the run were broken.

        Raises:
            InvalidInput: Arguments that cannot be used, no other trial, or no noise.
        """
        insight = self.settled.insight
        insight.check_one_objective("confirm")
        candidates = {f"trial {trial.number}": trial.params for trial in insight.finalists()}
        if len(candidates) < 2 or self.exact:
            raise InvalidInput(
                "there is nothing to confirm: the objective has no noise, or there are no two parameters to compare."
            )
        if tolerance is None:
            if not self.assumptions:
                raise InvalidInput(
                    "pass tolerance=..., a difference that counts as none: there is no model that says how large the "
                    "noise is."
                )
            noise_std: float = self.assumptions["noise_std"]
            tolerance = TOLERATED * noise_std
        options = {
            "maximize": self.optimizer.maximize,
            "value_range": self.optimizer.value_range,
            **options,
        }
        confirmed = confirm(objective, candidates, budget, tolerance=tolerance, **options)
        return replace(confirmed, constraints=self.optimizer.constraints)

    def to_frame(self) -> pd.DataFrame:
        """Return the trials as a DataFrame, in the order of their starts.

        The columns are number, status, value, seconds, started and finished (in UTC), failure, and "params.<name>" for
        each parameter. Each of several objectives has a column "measured.<name>" in place of "value".

        Raises:
            MissingExtra: pandas is not installed.
        """
        return table.frame(self.trials, self.optimizer.run.main)

    def to_csv(self, path: str | os.PathLike[str]) -> Path:
        """Write the table of ``to_frame`` as CSV, and return the path.

        Raises:
            InvalidInput: The file cannot be written.
            MissingExtra: pandas is not installed.
        """
        return table.write(self.trials, path, ".csv", self.optimizer.run.main)

    def to_parquet(self, path: str | os.PathLike[str]) -> Path:
        """Write the table of ``to_frame`` in Parquet, and return the path; errors as ``to_csv``.

        Parameters with values of several kinds are text.
        """
        return table.write(self.trials, path, ".parquet", self.optimizer.run.main)

    def plot(self, what: str = "overview") -> Any:
        """Return a figure of matplotlib; see ``kbo.report.plot``.

        Raises:
            InvalidInput: There is no such figure, or nothing to draw.
            MissingExtra: matplotlib is not installed.
        """
        # By name: reports import results, so results cannot import reports.
        draw: Callable[..., Any] = import_module("kbo.report").plot
        return draw(self, what)

    @property
    def sure(self) -> str:
        """The nominal probability of the bounds, as text."""
        return confidence_level(self.assumptions.get("delta", 0.1))


def _summary() -> Any:
    """Return the module of the summary, loaded by name: reports import results, so results cannot import reports."""
    return import_module("kbo.report.summary")


def result_of(
    optimizer: Optimizer, stopped: str, journal: str | None, evaluations: int = PROOF
) -> Result:
    """Return the result after the trials so far.

    Args:
        optimizer: The optimiser of the run.
        stopped: The reason why the run ended.
        journal: Path of the journal; None without one.
        evaluations: The largest number of points at which each proof may compute bounds.
    """
    outlier, settled = without_doubt(optimizer)
    insight = settled.insight
    best = settled.recommended()
    interval = settled.interval(best.params) if best else None
    surrogate = insight.report_surrogate() if interval else None
    guarantee = insight.guarantee() if surrogate else None
    lower, value, upper = _estimate(best, interval, surrogate)
    completed = settled.run.trials.complete
    return Result(
        params=best.params if best else None,
        value=value,
        lower=lower,
        upper=upper,
        gap=settled.gap(evaluations if optimizer.setting.certified else 0),
        best_observed=_best_observed(settled),
        evaluations=sum(best is not None and t.params == best.params for t in completed),
        feasibility=insight.feasibility(),
        infeasible=insight.infeasible(evaluations),
        exact=insight.quantities.noiseless() if surrogate else None,
        account=_account(settled, surrogate),
        certified=bool(guarantee),
        guarantee=guarantee.text if guarantee is not None else NO_BOUND,
        assumptions=_assumptions(settled, surrogate, value),
        trials=list(optimizer.trials),
        stopped=stopped,
        journal=journal,
        optimizer=optimizer,
        settled=settled,
        outlier=outlier,
        front=insight.front(),
    )


def _estimate(
    best: Trial | None,
    interval: tuple[float, float, float] | None,
    surrogate: Surrogate | None,
) -> tuple[float | None, float | None, float | None]:
    """Return lower bound, estimate and upper bound of the objective at the recommended trial.

    Without noise all three are the observed value. Without an interval the estimate is the observed value, and the
    bounds are None.
    """
    if best is None:
        return None, None, None
    if surrogate is not None and surrogate.noiseless:
        return best.value, best.value, best.value
    if interval is None:
        return None, best.value, None
    return interval


def _best_observed(optimizer: Optimizer) -> float | None:
    """Return the best observed value of the trials that keep the limits; None with several objectives."""
    if optimizer.objectives:
        return None
    trials = optimizer.insight.within_limits()
    values = [trial.value for trial in trials if trial.value is not None]
    pick = max if optimizer.maximize else min
    return pick(values, default=None)


def without_doubt(optimizer: Optimizer) -> tuple[Outlier | None, Optimizer]:
    """Return the outlier of a run, and the run to report: a copy without the outlier if its value is likely wrong."""
    outlier = optimizer.insight.outlier()
    if outlier is None or not outlier.doubtful:
        return outlier, optimizer
    others = copy.copy(optimizer)
    others.remove(outlier.number, "in question")
    return outlier, others


def _assumptions(
    optimizer: Optimizer, surrogate: Surrogate | None, value: float | None
) -> dict[str, Any]:
    """Return the numbers that the bounds rest on; with several objectives also by name, and the delta of all bounds.

    Args:
        optimizer: The optimiser of the run.
        surrogate: The surrogate of the objective for reports; None while there is none.
        value: The estimate at the recommended parameters, to which the noise level belongs.
    """
    if surrogate is None or value is None:
        return {}
    noise_std = surrogate.noise_std_at(optimizer.insight.quantities.sign * value)
    assumptions = {**surrogate.assumptions(), "noise_std": noise_std}
    if not optimizer.objectives:
        return assumptions
    surrogates = optimizer.insight.quantities.surrogates()
    by_name = {name: of_objective.assumptions() for name, of_objective in surrogates.items()}
    return {**assumptions, "delta": optimizer.setting.delta, "objectives": by_name}


def _account(optimizer: Optimizer, surrogate: Surrogate | None) -> dict[str, str]:
    """Return the account of the recommendation, in words: see ``Result.account``."""
    if surrogate is None:
        account = {"rule": "the best observed value, while there is no bound"}
    elif optimizer.objectives:
        account = {"rule": "the least good objective, as a share of the front's extent, is best"}
    else:
        account = surrogate.account()
        search = optimizer.setting.describe_search(optimizer.method, optimizer.space, surrogate)
        if search:
            rule = account.pop("rule", "")
            account["search"] = search
            account["rule"] = rule
    if optimizer.constraints:
        account["limits"] = optimizer.setting.about_limits
    return account
