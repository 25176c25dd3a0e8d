"""Where the checkout is: the one place that knows, and where relative paths start."""

from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent


def from_checkout(path: str) -> Path:
    """Return where a path that the user names leads: a relative one starts at the checkout, `~` is the home folder."""
    return (PROJECT / Path(path).expanduser()).resolve()
