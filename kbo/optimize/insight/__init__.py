"""Statistics about a run: functions of a surrogate and of trials, which return numbers."""
