"""Experiments: one file per paper, listed in ``papers``; ``compare`` is ``kbo run``, ``speed`` is ``kbo bench``.

They share the runner (``runner``, ``cells``, ``pool``), bandit games as cells (``games``), ``tables`` and ``plots``.
"""
