"""That a model was loaded whole: transformers fills in what is absent with random numbers, and only logs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from plumbline.errors import CheckpointError


def require_every_weight(
    info: Mapping[str, Any], *, where: Path, of: str, may_be_left: Callable[[str], object]
) -> None:
    """Refuse a model of which some weights are not those of its files, or the files hold more.

    Parameters
    ----------
    info : mapping
        What `from_pretrained(..., output_loading_info=True)` says.
    where : Path
        The weights, or their folder.
    of : str
        Whose weights are expected, such as a class of transformers.
    may_be_left : callable
        Given the name of a weight that the model lacks: whether the files may hold it all the same.

    Raises
    ------
    CheckpointError
        With the names of the weights.
    """
    problems = {
        "absent from the files": info["missing_keys"],
        "not in the model": [name for name in info["unexpected_keys"] if not may_be_left(name)],
        "of another shape": info["mismatched_keys"],
    }
    for problem, names in problems.items():
        if names:
            listed = sorted(str(name) for name in names)
            raise CheckpointError(
                f"{len(listed)} weight(s) are {problem}; transformers would go on with random ones",
                where=where,
                found=", ".join(listed[:5]) + (" …" if len(listed) > 5 else ""),
                expected=f"exactly the weights of {of}",
            )
