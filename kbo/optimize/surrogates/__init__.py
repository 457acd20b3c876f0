"""Surrogates: the posterior of one quantity after some evaluations, and the bounds on it.

* ``surrogate.py``: the interface; ``evaluation.py``: what is fitted; ``guarantee.py``: what is proved
* certified: ``certified_surrogate.py``; ``order.py``: the order in which values enter its bound;
  ``hypotheses_surrogate.py``: a list of hypotheses
* practical: ``practical_surrogate.py``; ``schedule.py``: when ``model.py`` is fitted;
  ``process.py``: its Gaussian process; ``fitting.py``: kernel and noise; ``outcome_transform.py``: its targets;
  ``practical_posterior.py``: its posterior
* averages over kernels and noise levels: ``predictive.py`` (intervals), ``functions.py`` (draws)
"""
