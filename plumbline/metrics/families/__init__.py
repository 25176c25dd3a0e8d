"""Metric families: what makes the metric rows of one cell."""
