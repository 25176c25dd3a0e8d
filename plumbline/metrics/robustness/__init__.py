"""Robustness to prompt templates: directional bias, harm by its size, and agreement of templates."""
