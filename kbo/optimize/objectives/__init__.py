"""Several objectives: as a user states them (``objective.py``), and the volume of their front (``hypervolume.py``)."""
