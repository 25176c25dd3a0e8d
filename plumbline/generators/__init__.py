"""Text generation from images and prompts: backends, per-row seeded sampling, caching, resuming, planning."""
