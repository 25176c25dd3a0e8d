"""Metrics: pure functions on arrays, and the families that tabulate them."""
