"""Generation with what is shared against row by row."""
