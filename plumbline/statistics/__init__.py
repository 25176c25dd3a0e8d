"""Intervals, resampling, permutation and multiplicity."""
