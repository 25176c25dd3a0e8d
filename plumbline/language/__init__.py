"""Metrics of generated texts: what a model says of whom."""
