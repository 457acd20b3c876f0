"""kbo: Bayesian optimisation with guarantees, at scale, on PyTorch, GPyTorch and BoTorch.

Names, listed in ``__init__.pyi``, are imported when they are first used, so that ``import kbo``
costs next to nothing.
"""

from typing import Any

import lazy_loader

__version__ = "1.0.0"

_public, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__.remove("report")  # pyright: ignore[reportUnsupportedDunderAll]  # a star import needs no extra

_ELSEWHERE = {
    "Categorical": 'Choice, for example kbo.Choice(["relu", "tanh"])',
    "Integer": "Int, for example kbo.Int(1, 8)",
    "Real": "Float, for example kbo.Float(1e-4, 1e-1, log=True)",
    "Uniform": "Float, for example kbo.Float(0.0, 1.0)",
    "LogUniform": "Float, for example kbo.Float(1e-4, 1e-1, log=True)",
    "Study": "Optimizer, with ask and tell",
    "create_study": "Optimizer, with ask and tell",
    "fmin": "minimize",
    "gp_minimize": "minimize",
}
"""Names in kbo for names in Optuna, scikit-optimize, hyperopt and Ax."""


def __getattr__(name: str) -> Any:
    """Import and return a public name, or say what another library's name is called here."""
    if name in _ELSEWHERE:
        raise AttributeError(f"kbo has no {name}: it is called kbo.{_ELSEWHERE[name]}.")
    return _public(name)
