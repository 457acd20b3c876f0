"""Bandit problems with a finite set of arms in every round, and the loop over rounds that a method plays."""

from kbo.bandit.loop import play
from kbo.bandit.problem import Bandit

__all__ = ["Bandit", "play"]
