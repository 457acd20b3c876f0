"""The next point: regions of a space, searches in them, and proposers."""
