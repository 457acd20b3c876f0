"""Experiments: one file per paper, plus ``speed``, the benchmark behind ``kbo bench``."""
