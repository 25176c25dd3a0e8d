"""Asking a hub for files: whatever fails on the way becomes one clear error."""

from collections.abc import Iterator
from contextlib import contextmanager

from plumbline.errors import PlumblineError


@contextmanager
def asking_the_hub(kind: type[PlumblineError], wanted: str, where: str) -> Iterator[None]:
    """Turn what the hub's client raises into an error of the given kind.

    Parameters
    ----------
    wanted : str
        Id in the audit file, for the message.
    where : str
        Repository and revision.
    """
    from huggingface_hub import errors

    try:
        yield
    # A failed connection is the HTTP client's own error, one of xet's transfers a RuntimeError.
    except (OSError, ValueError, RuntimeError, errors.HTTPError, errors.RevisionResolutionError) as error:
        raise kind(
            f"the hub did not give `{wanted}`",
            where=where,
            found=f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}",
            hint="check the network and the address; `plumbline fetch` can be repeated, it resumes",
        ) from error
