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
"""Multiple of ``norm_lower_bound`` that serves as a norm bound in practice, by measurement."""

_ABOVE = 1 + 1e-6
"""Multiple of ``B_low``, where F is a single function, that exceeds it by more than rounding."""


class UnknownNorm(Delegated):
    """Mixture bounds for functions of unknown norm, which is estimated; without a guarantee.

    The norm bound follows ``B_low``, a lower confidence bound of the norm. Data can refute a norm
    bound but never prove one, so there is no guarantee. But the data never refute the present norm
    bound; and with probability 1 - delta the interval holds at all times when
    ``norm_bound_on(state)`` is at least the norm. This norm bound depends only on the data, and may
    fall again, because ``B_low`` is not monotone.

    * ``multiple=None`` doubles ``guess`` until the data do not refute it. All values are ``guess``
      times a power of two, and all hold on one event, so no union over them is needed.
    * ``multiple=m`` takes m times ``B_low``, but at least ``guess``: tighter, and in practice often
      right.

    Args:
        noise_std: Sub-Gaussian constant of the noise, in units of the targets.
        delta: Probability that ``B_low`` fails at any time.
        kind: The kind of the mixture: "amm", "dmm" or "cmm".
        scale: Covariance scale of the mixture, or several.
        guess: The least norm bound, in units of the targets over sqrt(kernel); by default
            ``noise_std``.
        multiple: The multiple m of ``B_low``, at least 1; None to double ``guess``.

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
        """Return the estimated norm bound, in units of the targets over sqrt(kernel)."""
        B_low = norm_lower_bound(state, self.noise_std, self.delta, self.scale, rounded_down=False)
        if self.multiple is not None:
            return max(self.guess, self.multiple * B_low, _ABOVE * B_low)
        doublings = math.ceil(math.log2(max(_ABOVE * B_low / self.guess, 1.0)))
        return self.guess * 2.0**doublings

    def choose(self, state: Posterior) -> MartingaleMixture:
        """Return the mixture with the norm bound ``norm_bound_on(state)``."""
        norm_bound = self.norm_bound_on(state)
        return MartingaleMixture(self.noise_std, norm_bound, self.delta, self.kind, self.scale)
