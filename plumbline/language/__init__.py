"""Metrics of generated texts, by group."""
