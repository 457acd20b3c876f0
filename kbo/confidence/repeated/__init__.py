"""Confidence sequences for the mean (``mean.py``) and the median (``median.py``) of repeated values."""
