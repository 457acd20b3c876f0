"""``minimize`` and ``maximize``: the whole loop, safe against failures, time-outs, Ctrl-C and kill."""

from __future__ import annotations

import contextlib
import copy
import logging
import math
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tqdm import tqdm, trange

from kbo import checks, recipes
from kbo.errors import InvalidInput, RefutedAssumptions, TooManyFailures
from kbo.optimize.guarantee import NONE, guarantee, proved
from kbo.optimize.optimizer import Optimizer
from kbo.optimize.settings import Settings
from kbo.optimize.trials import Trial
from kbo.space import Bounds, Params, Space

log = logging.getLogger("kbo")


@dataclass(frozen=True)
class Result:
    """What a run found, and what stands behind it.

    Attributes:
        params: The recommended parameters: those of the completed trial with the best pessimistic bound, not of the
            luckiest value.
        value: Posterior mean there (without noise, moved into the bounds), in units of the objective; the observed
            value while there is no posterior.
        lower, upper: Confidence bounds of the objective there; None while there is no bound.
        gap: The optimum is at most this much better than the recommended parameters, if the bounds hold and, where
            ``gap_exact`` is False, as far as a search from many starts finds the largest one; None while there is no
            bound.
        gap_exact: Whether the gap is exact over the whole (finite) space, or found by a search from many starts.
        best_observed: The best value that was ever returned. It flatters itself when the objective is noisy.
        certified: Whether the bounds hold with probability ``1 - delta`` under given assumptions.
        guarantee: In words, what holds and what was given up.
        assumptions: The numbers behind the bounds, in units of the objective.
        trials: Every trial, failed ones included.
        stopped: Why the run ended.
        journal: Where it is stored, if anywhere.
    """

    params: Params | None
    value: float | None
    lower: float | None
    upper: float | None
    gap: float | None
    gap_exact: bool
    best_observed: float | None
    certified: bool
    guarantee: str
    assumptions: dict[str, Any]
    trials: list[Trial]
    stopped: str
    journal: str | None

    def __repr__(self) -> str:
        return str(self)  # the list of all trials is no picture of a result

    def __str__(self) -> str:
        failed = sum(trial.status == "failed" for trial in self.trials)
        done = sum(trial.status != "pending" for trial in self.trials)
        lines = [f"{done} trials{f', {failed} failed' if failed else ''}; {self.stopped}"]
        if failed:
            lines.append(f"last failure   {next(t.failure for t in reversed(self.trials) if t.failure)}")
        if self.params is not None:
            lines.append(f"recommended    {format_params(self.params)}")
            bounds = f"  [{self.lower:.4g}, {self.upper:.4g}]" if self.lower is not None else ""
            lines.append(f"value there    {self.value:.4g}{bounds}")
            lines.append(f"best observed  {self.best_observed:.4g}")
        if self.gap is not None:
            how = "over all settings" if self.gap_exact else "by a search from many starts"
            lines.append(f"optimality gap {self.gap:.4g}  (the optimum is at most this much better; {how})")
        lines.append(f"guarantee      {self.guarantee}")
        if self.journal:
            lines.append(f"journal        {self.journal}")
        return "\n".join(lines)


def minimize(
    objective: Callable[[Any], float],
    bounds: Bounds | Space,
    n_trials: int,
    *,
    setting: Settings | None = None,
    method: str | None = None,
    seed: int = 0,
    journal: str | os.PathLike | None = None,
    timeout: float | None = None,
    max_failures: int = 5,
    stop_at_gap: float | None = None,
    progress: bool = False,
    callback: Callable[[Optimizer, Trial], None] | None = None,
) -> Result:
    """Minimise a noisy, expensive function.

    With a journal, a run that was killed continues when the same call is made again: nothing that was told is
    lost or evaluated twice; only the trial that was running is evaluated again.

    Args:
        objective: Called with a dict of parameters (a list of floats if ``bounds`` is a list); returns a number.
        bounds: For example ``{"lr": Float(1e-4, 1e-1, log=True), "layers": Int(1, 3), "act": ["relu", "tanh"]}``, or
            a list of pairs.
        n_trials: Trials in all, failed ones and those in the journal included.
        setting: ``Practical()`` (default): kernel, noise and norm bound are estimated, the bounds have no guarantee.
            ``Certified(kernel, noise_std, norm_bound)``: the bounds hold if these are right.
        method: A name of ``kbo.recipes.names()``; by default "ucb" (practical setting) or "dmm-ucb" (certified).
        seed: Seed of every random choice.
        journal: Path of a crash-safe journal.
        timeout: Seconds after which a trial is stopped and recorded as failed (Unix, main thread). It works like
            Ctrl-C: a call into compiled code is only stopped when it returns.
        max_failures: Failures in a row after which the run stops.
        stop_at_gap: Stop when the optimality gap is at most this, in units of the objective. In the certified setting
            the recommended parameters are then within this of the optimum with probability ``1 - delta``; on boxes as
            far as the search for the largest upper bound goes. In the practical setting it is a rule of thumb.
        progress: Show a progress bar with the best value so far.
        callback: Called after every trial.

    Returns:
        The result; also after Ctrl-C, with ``stopped`` saying so.

    Raises:
        InvalidInput: An argument that cannot be used.
        JournalError: The journal cannot be used.
        TooManyFailures: ``max_failures`` trials failed in a row.
        RefutedAssumptions: The data contradict the given assumptions (certified setting only).
    """
    optimizer = _open(bounds, n_trials, setting, method, False, seed, journal, timeout, max_failures, stop_at_gap)
    return _run(optimizer, objective, n_trials, journal, timeout, max_failures, stop_at_gap, progress, callback)


def maximize(
    objective: Callable[[Any], float],
    bounds: Bounds | Space,
    n_trials: int,
    *,
    setting: Settings | None = None,
    method: str | None = None,
    seed: int = 0,
    journal: str | os.PathLike | None = None,
    timeout: float | None = None,
    max_failures: int = 5,
    stop_at_gap: float | None = None,
    progress: bool = False,
    callback: Callable[[Optimizer, Trial], None] | None = None,
) -> Result:
    """Maximise a noisy, expensive function; arguments and result as ``minimize``."""
    optimizer = _open(bounds, n_trials, setting, method, True, seed, journal, timeout, max_failures, stop_at_gap)
    return _run(optimizer, objective, n_trials, journal, timeout, max_failures, stop_at_gap, progress, callback)


def _open(bounds, n_trials, setting, method, maximize, seed, journal, timeout, max_failures, stop_at_gap) -> Optimizer:
    """An optimiser, after a check of everything that could otherwise fail in the middle of a run."""
    for name, value in (("n_trials", n_trials), ("max_failures", max_failures)):
        if checks.positive(name, value) != int(value):
            raise InvalidInput(f"{name} must be a whole number of at least 1, got {value!r}.")
    if stop_at_gap is not None:
        checks.positive("stop_at_gap", stop_at_gap)
        if method is not None and not recipes.get(method).has_bounds:
            raise InvalidInput(f"method {method!r} has no bounds, so no optimality gap at which it could stop.")
    if timeout is not None:
        checks.positive("timeout", timeout)
        if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
            raise InvalidInput("timeout needs Unix and the main thread; limit the time in the objective instead.")
    return Optimizer(
        bounds, setting=setting, method=method, maximize=maximize, n_trials=n_trials, seed=seed, journal=journal
    )


def _run(
    optimizer: Optimizer, objective, n_trials, journal, timeout, max_failures, stop_at_gap, progress, callback
) -> Result:
    known, in_a_row = _done(optimizer), 0
    stopped = f"the budget of {n_trials} is used" + (f", {known} trials were in the journal" if known else "")
    path = None if journal is None else os.fspath(journal)
    try:
        try:
            with tqdm(total=n_trials, initial=_done(optimizer), disable=not progress, desc="kbo", unit="trial") as bar:
                _show(bar, optimizer)
                while _done(optimizer) < n_trials:
                    if stop_at_gap is not None and (gap := optimizer.gap()) and gap.value <= stop_at_gap:
                        stopped = f"the optimality gap {gap.value:.4g} is at most {stop_at_gap:g}"
                        break
                    trial = evaluate(optimizer, objective, timeout)
                    bar.update()
                    _show(bar, optimizer)
                    in_a_row = in_a_row + 1 if trial.status == "failed" else 0
                    if callback is not None:
                        callback(optimizer, trial)
                    if in_a_row >= max_failures:
                        raise TooManyFailures(
                            f"{in_a_row} trials in a row failed, the last with: {trial.failure}. Mend the objective or "
                            f"its bounds{f'; what is known so far is in {path}' if path else ''}."
                        )
        except KeyboardInterrupt:
            stopped = f"interrupted before the budget of {n_trials} was used"
        return result_of(optimizer, stopped, path)
    except (RefutedAssumptions, TooManyFailures) as error:
        error.trials = list(optimizer.trials)
        if path:
            error.add_note(f"The trials so far are in {path}.")
        raise
    finally:
        optimizer.close()


def evaluate(optimizer: Optimizer, objective: Callable[[Any], float], timeout: float | None = None) -> Trial:
    """Ask, evaluate, tell: one trial, whose failure is recorded and not raised."""
    params = optimizer.ask()
    start = time.perf_counter()
    try:
        with time_limit(timeout):
            value = objective(copy.copy(params))  # which the objective may change
    except Exception as error:
        seconds = round(time.perf_counter() - start, 4)
        trial = optimizer.fail(params, f"{type(error).__name__}: {error}{place(error)}", seconds)
        log.warning("trial %d failed with %s", trial.number, trial.failure)
        log.info("where it failed:", exc_info=error)
        return trial
    trial = optimizer.tell(params, value, round(time.perf_counter() - start, 4))
    if trial.failure is not None:
        log.warning("trial %d failed: %s", trial.number, trial.failure)
    return trial


def evaluate_again(
    objective: Callable[[Any], float], result: Result, times: int, timeout: float | None = None, progress: bool = False
) -> tuple[list[float], int]:
    """Values of the recommended parameters when evaluated again, and how many evaluations failed; Ctrl-C ends it."""
    values: list[float] = []
    failed = 0
    with contextlib.suppress(KeyboardInterrupt):  # what there is will do
        for _ in trange(times if result.params is not None else 0, desc="again", disable=not progress, leave=False):
            try:
                with time_limit(timeout):
                    value = float(objective(copy.copy(result.params)))
            except Exception:  # whatever an objective may raise
                value = math.nan
            if math.isfinite(value):
                values.append(value)
            else:
                failed += 1
    return values, failed


def place(error: Exception) -> str:
    """Where an exception was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({os.path.basename(frames[-1].filename)}, line {frames[-1].lineno})" if frames else ""


def result_of(optimizer: Optimizer, stopped: str, journal: str | None) -> Result:
    """The result of what an optimiser knows."""
    best, complete, belief = optimizer.recommended(), optimizer.completed(), optimizer.belief
    interval = optimizer.interval(best.params) if best else None
    gap = optimizer.gap()
    lower, value, upper = interval or (None, best.value if best else None, None)
    pick = max if optimizer.maximize else min
    return Result(
        params=best.params if best else None,
        value=value,
        lower=lower,
        upper=upper,
        gap=gap and gap.value,
        gap_exact=bool(gap and gap.exact),
        best_observed=pick((t.value for t in complete if t.value is not None), default=None),
        certified=belief.certified and interval is not None and proved(belief) is not None,
        guarantee=guarantee(belief, len(optimizer.failed())) if interval is not None else NONE,
        assumptions=belief.assumptions() if interval else {},
        trials=list(optimizer.trials),
        stopped=stopped,
        journal=journal,
    )


def format_params(params: Params) -> str:
    """Parameters on one line, numbers with four digits."""
    entries = params.items() if isinstance(params, dict) else ((f"x{i}", v) for i, v in enumerate(params))
    return "  ".join(
        f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}" for name, value in entries
    )


def _done(optimizer: Optimizer) -> int:
    return len(optimizer.completed()) + len(optimizer.failed())


def _show(bar: tqdm, optimizer: Optimizer) -> None:
    values = [trial.value for trial in optimizer.completed() if trial.value is not None]
    if values:
        bar.set_postfix(best=f"{(max if optimizer.maximize else min)(values):.4g}")


@contextlib.contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Raise TimeoutError in the main thread after that many seconds."""
    if seconds is None:
        yield
        return

    def expire(signum, frame):
        raise TimeoutError(f"no value after {seconds:g} s")

    previous = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
