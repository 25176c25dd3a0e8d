"""Scorers of texts: how toxic, insulting, attacking or flirtatious; each with an id and a version in every row."""
