"""Certified bounds after a change of the space: they hold if the kernel stays the same function of the parameters."""

from __future__ import annotations

from kbo.bandit import methods
from kbo.errors import InvalidInput
from kbo.space import Space


def check_bounds_go_on(method: str, former: Space, space: Space) -> None:
    """Raise InvalidInput unless the certified bounds of a method still hold after a change of the space.

    Args:
        method: The name of the method.
        former: The space before the change.
        space: The new space.
    """
    if methods.get(method).fixed_kernel:
        raise InvalidInput(
            f"the bound of method {method!r} is about the points of one finite space, which cannot change: "
            "begin a new run; evaluated=... takes the results over."
        )
    check_same_kernel(former, space.replacing(former, same_scale=True))


def check_same_kernel(former: Space, space: Space) -> None:
    """Raise InvalidInput unless parameters have the same features in two spaces: then kernels are the same, too."""
    reasons = []
    if space.labels != former.labels:
        reasons.append(f"it compares {space.labels} in place of {former.labels}")
    for name, parameter in space.compared.items():
        if former.compared.get(name) not in (None, parameter):
            reasons.append(
                f"{name!r} has another scale: {parameter} in place of {former.compared[name]}"
            )
    if reasons:
        raise InvalidInput(
            "in the certified setting a space can change only where the kernel stays the same function of the "
            f"parameters: {'; '.join(reasons)}. Begin a new run there; evaluated=... takes the results over."
        )
