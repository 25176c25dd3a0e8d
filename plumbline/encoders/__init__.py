"""Encoders: one adapter a family, and the engine that embeds images and texts."""
