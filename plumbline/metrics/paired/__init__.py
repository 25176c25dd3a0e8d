"""Paired comparisons: two checkpoints, or one before and after a mitigation, on the same images."""
