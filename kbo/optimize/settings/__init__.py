"""Settings: the assumptions of a run. Each fits surrogates, and names the strategies of the search."""
