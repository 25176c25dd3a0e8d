"""The version of the installed package; part of the identity of what is computed."""

from importlib.metadata import version

__version__ = version("plumbline")
