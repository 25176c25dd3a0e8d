"""The command `plumbline` as the package alone has it; in a checkout the pipeline's commands stand in its place."""
