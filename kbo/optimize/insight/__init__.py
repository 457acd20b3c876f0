"""What the model says about a run: numbers with intervals, and no guarantee unless the setting has one.

``Insight`` has one method for each question, and the other modules compute the answers.

* ``insight.py``: ``Insight``; ``answers.py``: the answers of a summary
* more trials: ``expected_gain.py``
* draws of the objective, and where each is largest: ``drawn_objective.py``, ``optima.py``
* effects of parameters: ``importance.py``, ``credible_sets.py``
* trials: ``comparison.py``, ``outlier.py``, ``finalists.py``
* several objectives: ``front.py``
* what is proved: ``gap/``; what new evaluations say: ``confirmation/``
"""
