"""Plumbline: audits of the social bias of vision-language models. The pure library."""

__version__ = "0.5.0"
