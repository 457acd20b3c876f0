"""Sweeps: cells of work, run in local processes or on Ray, resumed where they stopped."""
