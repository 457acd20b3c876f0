"""Surrogates: what is believed about one quantity after some evaluations."""
