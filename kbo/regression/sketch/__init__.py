"""The sketched posterior (DTC, Nystrom) of a dictionary of points."""
