"""A tuning problem: a space, and an objective that is noisy and costs time."""

from __future__ import annotations

from abc import ABC, abstractmethod

from kbo.space import Params, Space


class TuningProblem(ABC):
    """Something to tune, called with parameters of its space; smaller is better.

    Attributes:
        name: Its name on the command line.
        space: Its parameters.
        optimum: The least value without noise, if it is known.
    """

    name: str
    space: Space
    optimum: float | None = None

    @abstractmethod
    def __call__(self, params: Params) -> float:
        """One noisy evaluation."""

    def noiseless(self, params: Params) -> float | None:
        """The value without noise, if it is known."""
        return None
