"""Skew@k, Max Skew@k and NDKL: how groups are placed when images are ranked by a prompt."""
