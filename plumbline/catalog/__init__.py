"""Data of the studies: prompts, word lists, checkpoints, and the schema of the metric table."""
