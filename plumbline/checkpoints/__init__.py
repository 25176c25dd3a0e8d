"""Checkpoints on disk: addresses, folders, weights and devices, for encoders, generators and scorers alike."""
