"""Mitigations against the loops that their published code runs."""
