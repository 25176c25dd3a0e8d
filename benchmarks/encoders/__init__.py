"""Images and prompts through encoders, beside the loops that they must beat."""
