"""Trials of other tools in an optimiser of kbo, one module for each tool.

Names, listed in ``__init__.pyi``, are imported when they are first used, since each module needs the
library of its tool.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
