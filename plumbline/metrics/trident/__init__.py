"""Trident probe tests: accuracy, misclassification as the probe, and label error."""
