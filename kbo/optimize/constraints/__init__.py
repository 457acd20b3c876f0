"""Limits on measured quantities: as a user states them, and what is known of them at a point."""
