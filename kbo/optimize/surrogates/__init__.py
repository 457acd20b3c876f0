"""Surrogates: what is believed about a quantity after some trials, and the settings that fit them."""
