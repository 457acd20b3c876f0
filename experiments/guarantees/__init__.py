"""Tables of the pages about guarantees; ``python -m experiments.guarantees.NAME`` prints one.

Functions and noise are known here, so every statement of kbo is compared with the truth. ``widths``, ``draws``,
``sketches``, ``hypotheses`` and ``noise_classes``: bounds. ``proofs``, ``fronts``, ``safe`` and ``confirmation``:
proofs, fronts, safe exploration and confirmations. ``parallel_trials`` and ``recommendation_limit``: regret.
``sequences`` and ``attacks``: random sequences of calls.
"""
