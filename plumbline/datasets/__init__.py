"""Readers: a dataset's own index and files into one table of records."""
