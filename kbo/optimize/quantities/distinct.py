"""Trials with different parameters."""

from __future__ import annotations

from collections.abc import Sequence

from kbo.optimize.run.trials import Trial


def distinct(trials: Sequence[Trial], best: Trial) -> list[Trial]:
    """Return one trial for each of the parameters of some trials, and of the recommended one.

    The recommended trial is the first. The others follow in the reverse of their order; of several trials with the same
    parameters it is the first one.
    """
    others = {}
    for trial in reversed(trials):
        if trial.params != best.params:
            others[repr(trial.params)] = trial
    return [best, *others.values()]
