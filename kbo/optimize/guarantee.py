"""What stands behind the intervals of a belief, in words."""

from __future__ import annotations

from kbo.optimize.belief import Belief

NONE = "none: the method has no bounds, or there are too few trials for one"


def proved(belief: Belief) -> str | None:
    """What is proved of the bound that is reported; None if nothing is."""
    state, confidence = belief.state, belief.reported()
    return confidence.guarantee_on(state) if state is not None and confidence is not None else None


def guarantee(belief: Belief, lost: int = 0, fate: str = "failed") -> str:
    """What holds and what was given up.

    Args:
        belief: What is known.
        lost: Trials without a value, whose noise might have to do with it.
        fate: What became of them.
    """
    if belief.state is None or belief.reported() is None:
        return NONE
    if not belief.certified:
        return f"practical, not certified: {belief.estimates()}, so the interval may be too narrow"
    if statement := proved(belief):
        proviso = f", and if whether a trial fails does not depend on its noise ({lost} {fate})" if lost else ""
        return f"certified: the interval {statement}{proviso}"
    if not belief.norm_is_given:
        return (
            "not certified: kernel and noise level are given, but this method's norm bound follows the data, which can "
            "refute a norm bound and never prove one"
        )
    return "not certified: nothing is proved of this method's bound on this posterior"
