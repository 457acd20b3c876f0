"""BoTorch acquisition functions, made of a model and a confidence.

* ``base.py``: ``ConfidenceAcquisition``, the base
* ``ucb.py``: ``KernelUCB``, the upper confidence bound, with any confidence
* ``constrained.py``, ``safe.py``: upper bounds under limits on other functions; safe exploration
* ``thompson.py``: Thompson sampling, with draws as wide as the bounds
* ``input_constructors.py``: entries in BoTorch's table, for BoTorch and Ax

Names are imported when they are first used, because BoTorch takes a second to import.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
