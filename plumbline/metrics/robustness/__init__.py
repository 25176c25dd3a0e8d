"""Robustness to prompt templates: directional bias, calibration and agreement of templates."""
