"""Statistics of a run, from its trials and surrogates.

* ``insight.py``: ``Insight``, one method a question; ``answers.py``: the answers of a summary
* effects: ``importance.py``, ``credible_sets.py``, ``optima.py``, ``outlier.py``, ``comparison.py``
* more trials: ``expected_gain.py``
* several objectives: ``front.py``, ``front_gap.py``
* optimality gap: ``gap.py``, ``run_gap.py``, ``branch_and_bound.py``, ``cells.py``, ``infeasibility.py``,
  ``pessimistic.py``
* new evaluations of the best trials: ``confirmation.py``, ``race.py``, ``finalists.py``
"""
