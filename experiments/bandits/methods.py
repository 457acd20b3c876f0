"""Named methods of papers that only experiments use: ``kbo.bandit.register(*PAPER_METHODS)``.

"supk-ucb" is the method of Valko et al. (2013). "kernel-ucb-oracle" and "kernel-ts-oracle" of Durand et al. (2018,
Sec. 6) are given the noise level, and "...-fixed" an upper bound on it. "c-bkb" and "c-bbkb" are BKB and BBKB with a
context in every point, as in the contextual literature (Zenati et al. 2022).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from experiments.bandits.elimination import StagedMethod, stage_width
from kbo.bandit import Facts, NamedMethod, ThompsonSampling, get
from kbo.bandit.methods import exact
from kbo.confidence import Confidence, SelfNormalized
from kbo.regression import KernelRidge, Posterior


def _largest_level(facts: Facts, is_given: bool) -> float:
    """Return the noise level, or its upper bound where the level is not known."""
    if is_given:
        return facts.noise_std
    assert facts.noise_upper is not None  # it is among the needs of the method
    return facts.noise_upper


def at_largest_noise(facts: Facts, is_given: bool) -> Posterior:
    """Return an exact posterior at ridge ``noise_std^2 / norm_bound^2``."""
    ridge = (_largest_level(facts, is_given) / facts.norm_bound) ** 2
    return KernelRidge(facts.kernel, ridge)


def bound_of_largest_noise(facts: Facts, is_given: bool, share: float) -> Confidence:
    """Return the self-normalised bound, with a share of delta."""
    level = _largest_level(facts, is_given)
    return SelfNormalized(level, facts.norm_bound, share * facts.delta)


_THOMPSON_SHARE = 1 / 12
"""Share of delta for the radius of Thompson sampling (Durand et al. 2018, Sec. 6.4)."""

PAPER_METHODS: tuple[NamedMethod, ...] = (
    StagedMethod(
        "supk-ucb",
        exact,
        stage_width,
        needs=("noise_std", "norm_bound", "delta", "horizon", "n_points"),
        options=("ridge", "multiplier"),
    ),
    replace(get("bkb"), name="c-bkb"),
    replace(get("bbkb"), name="c-bbkb"),
    NamedMethod(
        "kernel-ucb-oracle",
        partial(at_largest_noise, is_given=True),
        partial(bound_of_largest_noise, is_given=True, share=1.0),
    ),
    NamedMethod(
        "kernel-ts-oracle",
        partial(at_largest_noise, is_given=True),
        partial(bound_of_largest_noise, is_given=True, share=_THOMPSON_SHARE),
        ThompsonSampling(),
    ),
    NamedMethod(
        "kernel-ucb-fixed",
        partial(at_largest_noise, is_given=False),
        partial(bound_of_largest_noise, is_given=False, share=1.0),
        needs=("noise_upper", "norm_bound", "delta"),
        noise="upper bound",
    ),
    NamedMethod(
        "kernel-ts-fixed",
        partial(at_largest_noise, is_given=False),
        partial(bound_of_largest_noise, is_given=False, share=_THOMPSON_SHARE),
        ThompsonSampling(),
        needs=("noise_upper", "norm_bound", "delta"),
        noise="upper bound",
    ),
)
