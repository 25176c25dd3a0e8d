"""One client for HTTP endpoints: retries, key safety and size limits."""
