"""Figures and tables of experiments."""
