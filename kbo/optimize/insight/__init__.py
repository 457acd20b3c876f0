"""Statistics of a run by its model: numbers with intervals, without a guarantee unless the setting has one.

``Insight`` has one method for each question; the other modules compute the answers.

* ``insight.py``: ``Insight``; ``answers.py``: the answers in a summary
* more trials: ``expected_gain.py``
* draws of the objective, and the optimum of each: ``optima.py``
* effects of parameters: ``importance.py``, ``credible_sets.py``
* trials: ``comparison.py`` (of two points, and with those that are worth new evaluations), ``outlier.py``
* several objectives: ``front.py``
* what is proved: ``gap/``
"""
