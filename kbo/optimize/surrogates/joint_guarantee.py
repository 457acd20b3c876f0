"""The guarantee of the intervals of several objectives at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kbo._base.terminal import beside
from kbo.optimize.surrogates.guarantee import Guarantee
from kbo.optimize.surrogates.surrogate import Surrogate


def joint_guarantee(surrogates: Mapping[str, Surrogate], selected: Sequence[str] = ()) -> Guarantee:
    """Return the guarantee of the intervals of all objectives at once.

    Args:
        surrogates: The surrogates of the objectives, by name.
        selected: As for ``Surrogate.guarantee``.
    """
    guarantees = {name: surrogate.guarantee(selected) for name, surrogate in surrogates.items()}
    delta = sum(guarantee.delta for guarantee in guarantees.values())
    unproved = {name: guarantee for name, guarantee in guarantees.items() if not guarantee}
    if unproved:
        first = next(iter(unproved.values()))
        objections = _statements(unproved)
        return Guarantee(first.kind, "; ".join(objections), delta, tuple(objections))
    joint = f"with probability at least {beside(1 - delta, 1.0)} for all objectives at once"
    statement = "; ".join([joint, *_statements(guarantees)])
    return Guarantee("certified", statement, delta)


def _statements(guarantees: Mapping[str, Guarantee]) -> list[str]:
    """Return the statement of each objective, with its name before it."""
    return [f"{name}: {guarantee.statement}" for name, guarantee in guarantees.items()]
