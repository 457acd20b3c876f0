"""Surrogates: what is believed about one quantity after some evaluations.

* ``surrogate.py``: the interface; its parts are in ``evaluation.py``, ``search_problem.py``, ``bound.py`` and
  ``guarantee.py``
* certified: ``certified_surrogate.py``; a list of hypotheses: ``hypotheses_surrogate.py``, ``union.py``
* practical: ``practical_surrogate.py``; ``model.py`` fits it by ``fitting.py``, with ``bowl.py`` as trend,
  ``outcome_transform.py`` and ``error_bars.py``, when ``schedule.py`` says so
* means, intervals and draws over kernels and noise levels: ``predictive.py``, ``functions.py``
* the guarantee of several objectives at once: ``joint_guarantee.py``
* ``order.py``: the order in which values enter a certified bound; ``inducing_points.py``: points of a sketch
"""
