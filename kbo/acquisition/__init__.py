"""BoTorch acquisition functions: a confidence on a model, and the rule that makes one value of its bounds.

``ConfidenceAcquisition`` has model and confidence; ``KernelUCB`` is the upper bound; the others are
made of it, or draw functions as wide as the bounds. Names are imported when they are first used,
because BoTorch takes a second to import.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
