"""``minimize`` and ``maximize``: the whole loop, safe against failures, time-outs, Ctrl-C and kill."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tqdm import tqdm

from kbo import checks
from kbo.errors import InvalidInput, RefutedAssumptions, TooManyFailures
from kbo.optimize.optimizer import Optimizer, Trial
from kbo.optimize.settings import Settings
from kbo.space import Bounds, Params, Space

log = logging.getLogger("kbo")


@dataclass(frozen=True)
class Result:
    """What a run found, and what stands behind it.

    Attributes:
        params: The recommended parameters: those of the completed trial with the best pessimistic bound, not of the
            luckiest value.
        value: Posterior mean there (without noise), in units of the objective; the observed value while there
            is no posterior.
        lower, upper: Confidence bounds of the objective there; None while there is no bound.
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
    best_observed: float | None
    certified: bool
    guarantee: str
    assumptions: dict[str, Any]
    trials: list[Trial]
    stopped: str
    journal: str | None

    def __str__(self) -> str:
        failed = sum(trial.status == "failed" for trial in self.trials)
        lines = [f"{len(self.trials)} trials{f', {failed} failed' if failed else ''}; {self.stopped}"]
        if self.params is not None:
            lines.append(f"recommended    {format_params(self.params)}")
            bounds = f"  [{self.lower:.4g}, {self.upper:.4g}]" if self.lower is not None else ""
            lines.append(f"value there    {self.value:.4g}{bounds}")
            lines.append(f"best observed  {self.best_observed:.4g}")
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
    method: str = "dmm-ucb",
    seed: int = 0,
    journal: str | os.PathLike | None = None,
    timeout: float | None = None,
    max_failures: int = 5,
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
        method: A name of ``kbo.recipes.names()``.
        seed: Seed of every random choice.
        journal: Path of a crash-safe journal.
        timeout: Seconds after which a trial is stopped and recorded as failed (Unix, main thread).
        max_failures: Failures in a row after which the run stops.
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
    arguments = {k: v for k, v in locals().items() if k not in ("objective", "bounds", "n_trials")}
    return _run(objective, bounds, n_trials, maximize=False, **arguments)


def maximize(
    objective: Callable[[Any], float],
    bounds: Bounds | Space,
    n_trials: int,
    *,
    setting: Settings | None = None,
    method: str = "dmm-ucb",
    seed: int = 0,
    journal: str | os.PathLike | None = None,
    timeout: float | None = None,
    max_failures: int = 5,
    progress: bool = False,
    callback: Callable[[Optimizer, Trial], None] | None = None,
) -> Result:
    """Maximise a noisy, expensive function; arguments and result as ``minimize``."""
    arguments = {k: v for k, v in locals().items() if k not in ("objective", "bounds", "n_trials")}
    return _run(objective, bounds, n_trials, maximize=True, **arguments)


def _run(
    objective, bounds, n_trials, *, maximize, setting, method, seed, journal, timeout, max_failures, progress, callback
) -> Result:
    if n_trials != int(n_trials) or n_trials < 1:
        raise InvalidInput(f"n_trials must be a whole number of at least 1, got {n_trials!r}.")
    if timeout is not None:
        checks.positive("timeout", timeout)
    optimizer = Optimizer(
        bounds, setting=setting, method=method, maximize=maximize, n_trials=n_trials, seed=seed, journal=journal
    )
    stopped, in_a_row = f"all {n_trials} trials done", 0
    try:
        with tqdm(total=n_trials, initial=_done(optimizer), disable=not progress, desc="kbo", unit="trial") as bar:
            _show(bar, optimizer)
            while _done(optimizer) < n_trials:
                trial = evaluate(optimizer, objective, timeout)
                bar.update()
                _show(bar, optimizer)
                in_a_row = in_a_row + 1 if trial.status == "failed" else 0
                if trial.status == "failed":
                    log.warning("trial %d failed: %s", trial.number, trial.failure)
                if callback is not None:
                    callback(optimizer, trial)
                if in_a_row >= max_failures:
                    raise TooManyFailures(
                        f"{in_a_row} trials in a row failed, the last with: {trial.failure}. Mend the objective or its "
                        f"bounds{f'; what is known so far is in {journal}' if journal else ''}."
                    )
    except KeyboardInterrupt:
        stopped = f"interrupted after {_done(optimizer)} of {n_trials} trials"
        log.warning("%s", stopped)
    except RefutedAssumptions as error:
        if journal:
            error.add_note(f"The trials so far are in {journal}.")
        raise
    finally:
        optimizer.close()
    return result_of(optimizer, stopped, None if journal is None else os.fspath(journal))


def evaluate(optimizer: Optimizer, objective: Callable[[Any], float], timeout: float | None = None) -> Trial:
    """Ask, evaluate, tell: one trial, whose failure is recorded and not raised."""
    params = optimizer.ask()
    start = time.perf_counter()
    try:
        with _time_limit(timeout):
            value = objective(params)
    except Exception as error:
        return optimizer.fail(params, f"{type(error).__name__}: {error}", round(time.perf_counter() - start, 4))
    return optimizer.tell(params, value, round(time.perf_counter() - start, 4))


def result_of(optimizer: Optimizer, stopped: str, journal: str | None) -> Result:
    """The result of what an optimiser knows."""
    best, complete, belief = optimizer.recommended(), optimizer.completed(), optimizer.belief
    interval = optimizer.interval(best.params) if best else None
    lower, value, upper = interval or (None, best.value if best else None, None)
    pick = max if optimizer.maximize else min
    return Result(
        params=best.params if best else None,
        value=value,
        lower=lower,
        upper=upper,
        best_observed=pick((t.value for t in complete if t.value is not None), default=None),
        certified=belief.certified and interval is not None,
        guarantee=_guarantee(optimizer, interval is not None),
        assumptions=belief.assumptions() if interval else {},
        trials=list(optimizer.trials),
        stopped=stopped,
        journal=journal,
    )


def _guarantee(optimizer: Optimizer, bounded: bool) -> str:
    if not bounded:
        return "none: there are no bounds yet, or the method has none"
    confidence = optimizer.belief.confidence()
    statement = confidence.guarantee if confidence else None
    if optimizer.belief.certified and statement:
        return f"certified: the interval {statement}"
    numbers = optimizer.belief.assumptions()
    return (
        f"practical, not certified: kernel and noise ({numbers['noise_std']:.3g}) were fitted and the norm bound "
        f"({numbers['norm_bound']:.3g}) guessed from the same data"
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
def _time_limit(seconds: float | None) -> Iterator[None]:
    """Raise TimeoutError in the main thread after that many seconds."""
    if seconds is None:
        yield
        return
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        raise InvalidInput(
            "timeout needs a Unix system and the main thread; limit the time inside the objective instead."
        )

    def expire(signum, frame):
        raise TimeoutError(f"no value after {seconds:g} s")

    previous = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
