"""Chaining-UCB: bounds from hierarchical covers."""
