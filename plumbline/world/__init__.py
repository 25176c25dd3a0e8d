"""The planted world: faces, folders and checkpoints whose bias is known."""
