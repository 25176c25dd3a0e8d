"""Where a number comes from: its chain of digests back to the sources, and the images that move it most."""
