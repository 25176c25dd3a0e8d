"""The documentation site: what of it is generated, and how the repository's own pages become pages of it."""
