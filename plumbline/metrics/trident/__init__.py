"""Trident: scores of a probe within its own class and over all classes; definition, label error, rows."""
