"""What touches the world: the store, encoders on a device, endpoints, downloads, data checks, tracking."""
