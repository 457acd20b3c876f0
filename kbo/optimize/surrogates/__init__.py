"""Surrogates: the posterior of one quantity after some evaluations, and the bounds on it.

* ``surrogate.py``: the interface; ``evaluation.py``, ``search_problem.py``: what is fitted; ``bound.py``,
  ``guarantee.py``: bounds
* certified: ``certified_surrogate.py``; a list of hypotheses: ``hypotheses_surrogate.py``, ``union.py``
* practical: ``practical_surrogate.py``; ``schedule.py``: when ``model.py`` is fitted; ``fitting.py``: kernel and noise;
  ``bowl.py``: the trend; ``outcome_transform.py``, ``error_bars.py``: its targets and their noise
* averages over kernels and noise levels: ``predictive.py`` (intervals), ``functions.py`` (draws)
* the guarantee of several objectives at once: ``joint_guarantee.py``
* ``order.py``: the order in which values enter a certified bound; ``inducing_points.py``: points of a sketch
"""
