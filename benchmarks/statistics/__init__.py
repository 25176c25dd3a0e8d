"""Statistics from counts, cumulative counts and matrix products, beside the loops and libraries they must beat."""
