"""Several objectives: as a user states them, and the hypervolume of their front."""
