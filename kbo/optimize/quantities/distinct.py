"""Trials without repetitions of the same parameters."""

from __future__ import annotations

from collections.abc import Sequence

from kbo.optimize.run.trials import Trial


def distinct(trials: Sequence[Trial], best: Trial) -> list[Trial]:
    """Return trials with different parameters, one for all with the same, the recommended trial first.

    The others follow in reverse order. Of trials with the same parameters the first one is returned.
    """
    others = {}
    for trial in reversed(trials):
        if trial.params != best.params:
            others[repr(trial.params)] = trial
    return [best, *others.values()]
