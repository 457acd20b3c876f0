"""Tests on a second device: a GPU, or one that needs no hardware. ``make test-device`` runs them."""
