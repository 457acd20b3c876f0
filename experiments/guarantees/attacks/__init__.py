"""Functions whose truth is known, and random sequences of calls on posteriors, models and runs."""
