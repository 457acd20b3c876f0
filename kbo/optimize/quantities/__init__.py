"""Surrogates of the objective and of the limited quantities after the trials of a run."""
