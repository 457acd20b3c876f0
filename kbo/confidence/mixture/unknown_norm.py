"""Martingale mixtures for functions of unknown norm."""

from __future__ import annotations

import math

from kbo._base import checks
from kbo.confidence.delegated import Delegated
from kbo.confidence.mixture.bound import MartingaleMixture
from kbo.confidence.mixture.least_norm import norm_lower_bound
from kbo.confidence.mixture.radius import Scale
from kbo.regression import Posterior

PRACTICAL_MULTIPLE = 1.25
"""Multiple of ``norm_lower_bound`` that serves as a norm bound in practice, as measured."""

_ABOVE = 1 + 1e-6
"""Multiple that exceeds ``B_low``, where F is a single point, by more than rounding."""


class UnknownNorm(Delegated):
    """Mixture bounds for functions of unknown norm, which is estimated; without a guarantee.

    The norm bound follows ``B_low``, the lower confidence bound of the norm at all times. Data can
    refute a norm bound but never prove one, so there is no guarantee; but data never refute the
    norm bound in force at that moment, and with probability 1 - delta the interval holds at all
    times at which ``norm_bound_on(state)`` is at least the norm. That bound is a function of the data
    alone, and may fall again: ``B_low`` is not monotone.

    * ``multiple=None`` doubles ``guess`` until the data do not refute it. Every value that is ever
      in force is ``guess`` times a power of two, all on one event: no union over the guesses is
      needed.
    * ``multiple=m`` takes m times ``B_low``, at least ``guess``: tighter, and in practice often
      right.

    Args:
        noise_std: Sub-Gaussian constant of the noise, in units of the targets.
        delta: Probability that ``B_low`` may fail, ever.
        kind: The kind of the mixture: "amm", "dmm" or "cmm".
        scale: Covariance scale of the mixture, or several.
        guess: The least norm bound, in units of the targets over sqrt(kernel); by default
            ``noise_std``.
        multiple: None, or a number of at least 1.

    Raises:
        InvalidInput: A number out of its range, or an unknown kind.
    """

    covers: frozenset[str] = MartingaleMixture.covers  # only the norm is unknown

    def __init__(
        self,
        noise_std: float,
        delta: float,
        kind: str = "cmm",
        scale: Scale = 1.0,
        guess: float | None = None,
        multiple: float | None = None,
    ) -> None:
        self.noise_std: float = checks.positive("noise_std", noise_std)
        if guess is None:
            guess = self.noise_std
        self.guess: float = checks.positive("guess", guess)
        mixture = MartingaleMixture(noise_std, self.guess, delta, kind, scale)  # checks the numbers
        self.delta: float = mixture.delta
        self.kind: str = mixture.kind
        self.scale: Scale = mixture.scale
        self.multiple: float | None = checks.maybe(checks.at_least, "multiple", multiple, 1.0)

    def norm_bound_on(self, state: Posterior) -> float:
        """Return the norm bound in force after the data of ``state``."""
        B_low = norm_lower_bound(state, self.noise_std, self.delta, self.scale, rounded_down=False)
        if self.multiple is not None:
            return max(self.guess, self.multiple * B_low, _ABOVE * B_low)
        doublings = math.ceil(math.log2(max(_ABOVE * B_low / self.guess, 1.0)))
        return self.guess * 2.0**doublings

    def choose(self, state: Posterior) -> MartingaleMixture:
        """Return the mixture with that norm bound."""
        norm_bound = self.norm_bound_on(state)
        return MartingaleMixture(self.noise_std, norm_bound, self.delta, self.kind, self.scale)
