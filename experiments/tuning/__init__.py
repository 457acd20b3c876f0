"""Comparison of kbo with other tuners."""
