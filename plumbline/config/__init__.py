"""The audit file: its schema, its validation, and messages that name line and key."""
