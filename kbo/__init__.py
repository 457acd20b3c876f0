"""kbo: Bayesian optimisation with guarantees, at scale, on PyTorch, GPyTorch and BoTorch.

Names, listed in ``__init__.pyi``, are imported when they are first used, so that ``import kbo``
costs next to nothing.
"""

import lazy_loader

__version__ = "1.0.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__.remove("report")  # pyright: ignore[reportUnsupportedDunderAll]  # a star import needs no extra
