"""The loop of ``minimize`` and ``maximize``: trials begin and end until there is a reason to stop."""
