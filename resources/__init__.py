"""What touches the world: the lake, encoders on a device, tracking."""
