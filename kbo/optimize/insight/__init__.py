"""Statistics of a run by its model: numbers with intervals, without a guarantee unless the setting has one.

``Insight`` has one method for each question; the other modules compute the answers.

* ``insight.py``: ``Insight``; ``answers.py``: the answers in a summary
* more trials: ``expected_gain.py``
* draws of the objective, and the optimum of each: ``drawn_objective.py``, ``optima.py``
* effects of parameters: ``importance.py``, ``credible_sets.py``
* trials: ``comparison.py`` (of two points), ``outlier.py``, ``finalists.py`` (worth new evaluations)
* several objectives: ``front.py``
* what is proved: ``gap/``; what new evaluations show without a model: ``confirmation/``
"""
