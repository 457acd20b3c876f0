"""Output of experiments. ``tables``: tables. ``lines``: pictures of lines. ``styles``: the line of every method."""
