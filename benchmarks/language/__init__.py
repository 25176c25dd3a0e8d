"""Language metrics over millions of generated texts: time, memory, and what the usual tools take."""
