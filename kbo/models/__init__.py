"""BoTorch models whose posterior is a posterior of kbo.

``StreamingGP`` builds the posterior from data, kernel and ridge; its subclasses say which one.
Names are imported when they are first used, because BoTorch takes a second to import.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
