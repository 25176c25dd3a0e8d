"""The asset graph: one module a stage."""
