"""The planted world: procedural faces, datasets in native formats, and tiny checkpoints with a bias of known size."""
