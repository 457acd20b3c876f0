"""``minimize`` and ``maximize``: the whole loop, safe against failures, time-outs, Ctrl-C and kill."""

from __future__ import annotations

import contextlib
import copy
import logging
import math
import os
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kbo import checks, recipes
from kbo.errors import InvalidInput, RefutedAssumptions, TooManyFailures
from kbo.optimize.optimizer import Optimizer
from kbo.optimize.result import Result, result_of
from kbo.optimize.settings import Setting
from kbo.optimize.time_limit import check_time_limit, time_limit
from kbo.optimize.trials import Trial
from kbo.space import Bounds, Space
from kbo.terminal import Bar

log: logging.Logger = logging.getLogger("kbo")


def minimize(
    objective: Callable[[Any], float],
    bounds: Bounds | Space,
    n_trials: int,
    *,
    setting: Setting | None = None,
    method: str | None = None,
    seed: int = 0,
    journal: str | os.PathLike[str] | None = None,
    timeout: float | None = None,
    max_failures: int = 5,
    stop_at_gap: float | None = None,
    progress: bool = False,
    callback: Callable[[Optimizer, Trial], None] | None = None,
) -> Result:
    """Minimise a noisy, expensive function.

    With a journal, a run that was killed continues when the same call is made again: no value that was recorded is
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
        timeout: Seconds after which a trial is stopped and recorded as failed, at most a year (Unix, main thread). It
            works like Ctrl-C: ``except Exception`` does not catch it, but compiled code runs until it returns, and code
            that catches ``BaseException`` goes on. What such a trial returns then does not count.
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
    loop = _Loop(objective, n_trials, method, timeout, max_failures, stop_at_gap, progress, callback)
    return loop.run(bounds, setting=setting, maximize=False, seed=seed, journal=journal)


def maximize(
    objective: Callable[[Any], float],
    bounds: Bounds | Space,
    n_trials: int,
    *,
    setting: Setting | None = None,
    method: str | None = None,
    seed: int = 0,
    journal: str | os.PathLike[str] | None = None,
    timeout: float | None = None,
    max_failures: int = 5,
    stop_at_gap: float | None = None,
    progress: bool = False,
    callback: Callable[[Optimizer, Trial], None] | None = None,
) -> Result:
    """Maximise a noisy, expensive function; arguments and result as ``minimize``."""
    loop = _Loop(objective, n_trials, method, timeout, max_failures, stop_at_gap, progress, callback)
    return loop.run(bounds, setting=setting, maximize=True, seed=seed, journal=journal)


@dataclass(frozen=True)
class _Loop:
    """The arguments of ``minimize`` that are not those of the optimiser, checked before anything is opened."""

    objective: Callable[[Any], float]
    n_trials: int
    method: str | None
    timeout: float | None
    max_failures: int
    stop_at_gap: float | None
    progress: bool
    callback: Callable[[Optimizer, Trial], None] | None

    def __post_init__(self) -> None:
        checks.function("objective", self.objective)
        checks.flag("progress", self.progress)
        if self.callback is not None:
            checks.function("callback", self.callback)
        for name in ("n_trials", "max_failures"):
            checks.whole(name, getattr(self, name), 1)
        if self.stop_at_gap is not None:
            checks.positive("stop_at_gap", self.stop_at_gap)
            if self.method is not None and not recipes.get(self.method).has_bounds:
                raise InvalidInput(f"method {self.method!r} has no bounds, so no gap at which it could stop.")
        if self.timeout is not None:
            check_time_limit("timeout", self.timeout)

    def run(self, bounds: Bounds | Space, *, journal: str | os.PathLike[str] | None, **options: Any) -> Result:
        """Run all trials; ``options`` are those of the optimiser."""
        optimizer = Optimizer(bounds, method=self.method, n_trials=self.n_trials, journal=journal, **options)
        path = None if journal is None else os.fspath(journal)
        try:
            try:
                stopped = self._trials(optimizer)
            except KeyboardInterrupt:
                stopped = f"interrupted before the budget of {self.n_trials} was used"
            return result_of(optimizer, stopped, path)
        except (RefutedAssumptions, TooManyFailures) as error:
            error.trials = list(optimizer.trials)
            if path:
                error.add_note(f"The trials so far are in {path}.")
            raise
        finally:
            optimizer.close()

    def _trials(self, optimizer: Optimizer) -> str:
        """Run trials until there is a reason to stop, and return it."""
        for trial in optimizer.fail_lost():
            log.warning("trial %d failed: %s", trial.number, trial.failure)
        known, in_a_row = _done(optimizer), 0
        with Bar(total=self.n_trials, initial=known, disable=not self.progress, desc="kbo", unit="trial") as bar:
            _show(bar, optimizer)
            while _done(optimizer) < self.n_trials:
                if self.stop_at_gap is not None and (gap := optimizer.gap()) and gap.value <= self.stop_at_gap:
                    return f"the optimality gap {gap.value:.4g} is at most {self.stop_at_gap:g}"
                trial = evaluate(optimizer, self.objective, self.timeout)
                bar.update()
                _show(bar, optimizer)
                in_a_row = in_a_row + 1 if trial.status == "failed" else 0
                if self.callback is not None:
                    self.callback(optimizer, trial)
                if in_a_row >= self.max_failures:
                    raise TooManyFailures(
                        f"{in_a_row} trials in a row failed, the last with: {trial.failure}. Correct the objective or "
                        "its bounds."
                    )
        return f"the budget of {self.n_trials} is used" + (f", {known} trials were in the journal" if known else "")


def evaluate(optimizer: Optimizer, objective: Callable[[Any], float], timeout: float | None = None) -> Trial:
    """Run one trial; a failure is recorded and not raised."""
    params = optimizer.ask()
    start = time.perf_counter()
    try:
        with time_limit(timeout):
            value = objective(copy.copy(params))  # which the objective may change
    except (Exception, SystemExit) as error:
        seconds = round(time.perf_counter() - start, 4)
        trial = optimizer.fail(params, f"{described(error)}{place(error)}", seconds)
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
    """Evaluate the recommended parameters again; return the values and the number of failures. Ctrl-C ends it."""
    values: list[float] = []
    failed = 0
    with contextlib.suppress(KeyboardInterrupt):
        for _ in Bar(range(times if result.params is not None else 0), desc="again", disable=not progress, leave=False):
            try:
                with time_limit(timeout):
                    value = checks.real(objective(copy.copy(result.params)))
            except (Exception, SystemExit):  # whatever an objective may raise
                value = math.nan
            if math.isfinite(value):
                values.append(value)
            else:
                failed += 1
    return values, failed


def described(error: BaseException) -> str:
    """Return type and text of an exception, whatever that text is and does."""
    try:
        return _encodable(f"{type(error).__name__}: {error}")
    except Exception:
        return f"{type(error).__name__} (its text cannot be shown)"


def place(error: BaseException) -> str:
    """Return the file and line in which an exception was raised."""
    frames = list(traceback.walk_tb(error.__traceback__))
    if not frames:
        return ""
    frame, line = frames[-1]
    return _encodable(f" ({os.path.basename(frame.f_code.co_filename)}, line {line})")


def _encodable(text: str) -> str:
    """Return a text that UTF-8 can write, with escapes for the bytes of names and messages that were not in it."""
    return text.encode(errors="backslashreplace").decode()


def _done(optimizer: Optimizer) -> int:
    return len(optimizer.completed()) + len(optimizer.failed())


def _show(bar: Bar, optimizer: Optimizer) -> None:
    values = () if bar.disable else [trial.value for trial in optimizer.completed() if trial.value is not None]
    if values:
        bar.set_postfix(best=f"{(max if optimizer.maximize else min)(values):.4g}")
