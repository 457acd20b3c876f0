"""BoTorch models whose posterior is a posterior of kbo.

* ``base.py``: ``PosteriorModel``, the base; fantasies, and drawn functions as BoTorch's paths
* ``streaming.py``: ``StreamingGP``, the base of models that hold data
* ``kernel_ridge.py``, ``nystrom.py``: the exact and the sketched posterior
* ``any_posterior.py``: ``PosteriorGP``, any posterior; ``AdaptiveRidgeGP``, noise of unknown level
* ``likelihoods.py``: the noise of the models

Names are imported when they are first used, because BoTorch takes a second to import.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
