"""Draws of the function from a posterior: at finite sets of points, and as functions."""
