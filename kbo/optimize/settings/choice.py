"""The setting and the method of a run, with their defaults."""

from __future__ import annotations

from kbo._base import checks
from kbo.bandit import methods
from kbo.errors import InvalidInput
from kbo.optimize.settings.practical import Practical
from kbo.optimize.settings.setting import Setting


def resolve(
    setting: Setting | None, method: str | None, n_trials: int | None
) -> tuple[Setting, str]:
    """Return setting and method with their defaults: ``Practical()``, and the default method of the setting.

    The arguments are checked as far as this needs no space.

    Raises:
        InvalidInput: Not a setting, or a method that cannot search a box, lacks the number of trials or does not fit
            the setting.
    """
    if setting is None:
        setting = Practical()
    n_trials = checks.maybe(checks.whole, "n_trials", n_trials, 1)
    if not isinstance(setting, Setting):
        expected = "kbo.Practical(), kbo.Certified(...) or kbo.Safe(...)"
        raise InvalidInput(f"setting must be {expected}, got {checks.shown(setting)}.")
    if method is None:
        method = setting.default_method
    named_method = methods.of_boxes(method)
    if named_method.needs_horizon and n_trials is None:
        raise InvalidInput(
            f"method {method!r} depends on the number of trials: pass n_trials=... ."
        )
    setting.check(method, n_trials)
    return setting, method
