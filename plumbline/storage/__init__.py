"""Content-addressed storage with an atomic commit rule."""
