"""Strategies of search: each proposes the parameters of the next trial, or leaves it to the next one."""
