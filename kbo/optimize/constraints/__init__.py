"""Constraints on measured quantities: as a user states them, and as the surrogates of their quantities see them."""
