"""Exact kernel ridge regression: a Cholesky factor for one ridge, an eigenbasis for all of them."""
