"""Speed as ratios of CPU time in one process."""
