"""Posteriors of the same data under several kernels, noise levels or prior means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from kbo._base import checks
from kbo.errors import InvalidInput
from kbo.regression.posterior import Posterior
from kbo.regression.views.hypothetical import Hypothetical
from kbo.regression.views.view import View


class Several(View):
    """Posteriors of the same data; its own answers are those of the first.

    Args:
        states: The posteriors, at least one.

    Raises:
        InvalidInput: There is none.
    """

    saved: tuple[str, ...] = ("_states",)

    def __init__(self, states: Sequence[Posterior]) -> None:
        if not isinstance(states, (list, tuple)) or not states:
            raise InvalidInput(
                f"states must be a list of posteriors, at least one, got {checks.shown(states)}."
            )
        self._states: list[Posterior] = [
            checks.instance("states", state, Posterior) for state in states
        ]
        super().__init__(self._states[0])

    @property
    def states(self) -> Sequence[Posterior]:
        return tuple(self._states)

    def update(self, X: Tensor, y: Tensor, weights: Tensor | None = None) -> None:
        for state in self._states[1:]:
            state.check_data(X, y, weights)
        for state in self._states:
            state.update(X, y) if weights is None else state.update(X, y, weights)
        self.changed()

    def fork_frozen(self) -> Posterior:
        return Several([state.fork_frozen() for state in self._states])

    def note(self, *caveats: str, **changes: Any) -> None:
        for state in self._states:
            state.note(*caveats, **changes)

    def _restored(self) -> None:
        self.state = self._states[0]
        super()._restored()

    def _check_state(self, state: dict[str, Any], *more: str) -> None:
        super()._check_state(state, *more)
        if len(state["_states"]) != len(self._states):
            raise InvalidInput(
                f"a Several of {len(self._states)} posteriors loads the state dict of as many, got that of "
                f"{len(state['_states'])}."
            )


def hypothetical(state: Posterior, P: Tensor, targets: Tensor | None = None) -> Posterior:
    """Return a posterior, or each of several, with hypothetical observations.

    Args:
        state: The posterior.
        P: Points [p d], as for ``Hypothetical``.
        targets: Targets [p]; by default the means.
    """
    states = checks.instance("state", state, Posterior).states
    found: list[Posterior] = [Hypothetical(one, P, targets) for one in states]
    return found[0] if len(found) == 1 else Several(found)
