"""Encoders: one adapter per family, and the engine that embeds images and texts."""
