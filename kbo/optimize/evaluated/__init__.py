"""Results that are known before a run begins, and points to try first."""
