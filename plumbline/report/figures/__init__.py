"""Figures as inline SVG and small PNG, drawn from the metric table."""
