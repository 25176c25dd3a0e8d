"""Definitions, jobs, automation and the command line."""
