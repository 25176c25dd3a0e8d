"""The versions of the installed package and of libraries; part of the identity of what is computed."""

from functools import cache
from importlib.metadata import version

__version__ = version("plumbline")


@cache
def library_version(name: str) -> str:
    """Return the version of an installed package; its metadata are parsed once: each time takes milliseconds.

    Raises
    ------
    importlib.metadata.PackageNotFoundError
        If it is not installed.
    """
    return version(name)
