"""Definitions, jobs, schedules and the command line."""
