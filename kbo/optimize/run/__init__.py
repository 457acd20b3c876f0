"""The record of a run: trials, events and the journal, without models."""
