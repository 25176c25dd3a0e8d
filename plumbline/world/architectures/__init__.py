"""The tiny models of the planted world, one module a family, and how they are put on disk."""
