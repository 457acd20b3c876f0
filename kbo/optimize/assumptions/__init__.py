"""Assumptions of a user about a measured quantity: kernel, noise level and norm bound."""
