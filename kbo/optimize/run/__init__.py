"""What happened in a run: trials, events and the journal. It knows nothing of models."""
