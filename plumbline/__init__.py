"""Plumbline: audits of the social bias of vision-language models. The pure library."""

from plumbline.version import __version__ as __version__
