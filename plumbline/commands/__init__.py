"""The command `plumbline` as the package alone has it; a checkout uses parts of it, and adds its own."""
