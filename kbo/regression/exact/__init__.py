"""Exact kernel ridge regression by a growing Cholesky factor, and at all ridges by an eigendecomposition."""
