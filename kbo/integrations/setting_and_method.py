"""The setting and the method of an optimiser inside another library."""

from __future__ import annotations

from kbo.errors import InvalidInput
from kbo.optimize.settings.choice import resolve
from kbo.optimize.settings.setting import Setting


def resolved(
    setting: Setting | None, method: str | None, n_trials: int | None
) -> tuple[Setting, str]:
    """Return setting and method as ``kbo.optimize.settings.choice.resolve`` does.

    Raises:
        InvalidInput: ``resolve`` raises it, or the setting is safe: here the first trials would not be safe.
    """
    setting, method = resolve(setting, method, n_trials)
    if setting.explores_safely:
        raise InvalidInput(
            "setting: kbo.Safe is for kbo.minimize and kbo.Optimizer. Here the first trials fill the space, whether "
            "that is safe or not."
        )
    return setting, method
