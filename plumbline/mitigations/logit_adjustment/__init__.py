"""Adaptive logit adjustment: fit, the cells it is applied to, and its rows."""
