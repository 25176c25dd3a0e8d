"""Plumbline: audits of the social bias of vision-language models. The pure library."""

from importlib.metadata import version

__version__ = version("plumbline")
