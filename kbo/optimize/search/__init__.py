"""The search for one point: a space or a part of it, and the maximisation of a score over it."""
