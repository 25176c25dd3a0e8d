"""Differences between two audits."""
