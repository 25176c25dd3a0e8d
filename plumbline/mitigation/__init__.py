"""Mitigations: fit and apply."""
