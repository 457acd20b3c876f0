"""The exact posterior: a Cholesky factor for one ridge, an eigenbasis for all."""
