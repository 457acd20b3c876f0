"""The interface of a strategy, which proposes the parameters of the next trial or leaves it to the next strategy.

A setting holds a list of strategies (``kbo.Practical(strategies=[...])``). They are tried in order, and the first one
that returns parameters decides (``propose``). ``Alternate`` lets several take turns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from kbo._base import checks
from kbo.confidence import Confidence
from kbo.errors import InvalidInput
from kbo.optimize.search.search import Search
from kbo.space import Params


class Strategy(ABC):
    """A way to choose the parameters of the next trial; subclass it for a strategy of your own.

    Example:
        >>> class RepeatTheBest(Strategy):
        ...     def propose(self, search):
        ...         return search.best if search.number % 10 == 9 else None
    """

    @abstractmethod
    def propose(self, search: Search) -> Params | None:
        """Return the parameters of the next trial; None where the strategy does not apply.

        Args:
            search: The trials so far, the surrogates, and the methods that maximise a score.
        """

    def describe(self) -> str:
        """Return the strategy in a few words, for reports and ``Optimizer.explain``; by default the class name."""
        return type(self).__name__

    def confidence(self, search: Search) -> Confidence | None:
        """Return the confidence whose upper bound the strategy maximises; None, the default, if there is none.

        ``Optimizer.explain`` shows its bound and its width. A strategy that maximises the bound of the method, itself
        or by ``UpperBoundPoint().propose(search)``, returns ``search.confidence``.
        """
        return None

    def active(self, search: Search) -> Strategy:
        """Return the strategy that chooses this trial: itself, or one of the strategies that it holds."""
        return self


@dataclass(frozen=True)
class Alternate(Strategy):
    """Strategies that take turns: strategy ``number % len(strategies)`` chooses trial ``number``.

    Args:
        strategies: The strategies, at least one.
    """

    strategies: tuple[Strategy, ...]

    def __init__(self, *strategies: Strategy) -> None:
        if not strategies:
            raise InvalidInput("Alternate needs at least one strategy, got none.")
        object.__setattr__(self, "strategies", checked_strategies(strategies))

    def active(self, search: Search) -> Strategy:
        """Return the strategy whose turn it is."""
        turn = self.strategies[search.number % len(self.strategies)]
        return turn.active(search)

    def propose(self, search: Search) -> Params | None:
        return self.active(search).propose(search)

    def describe(self) -> str:
        return "in turn: " + ", ".join(strategy.describe() for strategy in self.strategies)


class Proposal(NamedTuple):
    """The parameters of a trial, and the strategy that chose them.

    Attributes:
        params: The parameters.
        strategy: The strategy, in words.
        proposed: The parameters that the strategy returned.
        confidence: The confidence whose upper bound the strategy maximised; None if it maximised none.
        replaced: The reason why random parameters replaced ``proposed``; empty if they did not.
    """

    params: Params
    strategy: str
    proposed: Params
    confidence: Confidence | None
    replaced: str = ""


def propose(strategies: Sequence[Strategy], search: Search) -> Proposal:
    """Return the proposal of the first strategy that returns parameters.

    Without noise nothing is learned from parameters that were tried before. So they are replaced by random ones, unless
    a context or choices are given.

    Raises:
        InvalidInput: No strategy returns parameters.
    """
    for strategy in strategies:
        params = strategy.propose(search)
        if params is None:
            continue
        active = strategy.active(search)
        proposal = Proposal(params, active.describe(), params, active.confidence(search))
        if not _is_known(params, search):
            return proposal
        generator = torch.Generator().manual_seed(search.generator.initial_seed())
        random = replace(search, generator=generator).random()
        reason = "they had been tried, and the objective has no noise"
        return proposal._replace(params=random, replaced=reason)
    names = ", ".join(strategy.describe() for strategy in strategies)
    raise InvalidInput(
        f"no strategy returned parameters for trial {search.number}, of [{names}]: end the list with one that always "
        "does, as InitialDesign() and after it UpperBoundPoint()."
    )


def _is_known(params: Params, search: Search) -> bool:
    """Return whether the objective has no noise, and parameters were tried before, so that their value is known."""
    if not search.is_noiseless or search.subspace.partial:
        return False
    point = search.space.unit(params)
    return bool((search.tried == point).all(-1).any())


def checked_strategies(strategies: object) -> tuple[Strategy, ...]:
    """Return the checked argument ``strategies``, as a tuple.

    Raises:
        InvalidInput: Not a list of at least one strategy.
    """
    expected = "strategies must be a list of kbo.optimize.strategies.Strategy objects, at least one"
    if isinstance(strategies, (str, Strategy)) or not isinstance(strategies, Sequence):
        raise InvalidInput(f"{expected}, got {checks.shown(strategies)}.")
    for strategy in strategies:
        if isinstance(strategy, type) and issubclass(strategy, Strategy):
            raise InvalidInput(f"{expected}, one is a class: write {strategy.__name__}().")
        if not isinstance(strategy, Strategy):
            raise InvalidInput(f"{expected}, one of them is {checks.shown(strategy)}.")
        checks.text(f"describe() of {type(strategy).__name__}", strategy.describe())
    if not strategies:
        raise InvalidInput(f"{expected}, got none.")
    return tuple(strategies)
