"""The planted world: procedural faces, datasets in native formats, tiny checkpoints with a known bias."""
