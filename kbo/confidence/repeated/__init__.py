"""Confidence sequences for repeated evaluations of one point: of the mean and of the median."""
