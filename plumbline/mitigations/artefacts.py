"""Parameters of a mitigation that others have fitted, from a safetensors file: every shape is checked before use.

A file may be that of `plumbline export-mitigation`, or of the authors of a method, with its tensors named as here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from plumbline.digests import digest_file
from plumbline.errors import MetricError


@dataclass(frozen=True)
class Artefact:
    """Parameters by name, float32, and the sha256 of the file that they are from."""

    parameters: dict[str, NDArray[np.float32]]
    sha256: str


def read_artefact(path: Path, shapes: Mapping[str, tuple[str | int, ...]]) -> Artefact:
    """Return the parameters that a file holds.

    Parameters
    ----------
    path : Path
        A safetensors file; it may be of any floating type.
    shapes : mapping of str to tuple
        Name of each parameter -> its shape: lengths, or letters for lengths that are equal wherever they stand.

    Raises
    ------
    MetricError
        If the file cannot be read, lacks a parameter, has another one, or one is of another shape, no number type, or
        not finite.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        tensors = load_file(path)
    except (OSError, SafetensorError, ValueError) as error:
        raise MetricError(
            "the parameters of a mitigation cannot be read", where=path, found=error, expected="a safetensors file"
        ) from error
    if set(tensors) != set(shapes):
        raise MetricError(
            "a file holds other parameters than this mitigation has",
            where=path,
            found=", ".join(sorted(tensors)) or "nothing",
            expected=", ".join(sorted(shapes)),
        )
    lengths: dict[str, int] = {}
    for name, shape in shapes.items():
        array = tensors[name]
        known = [length if isinstance(length, int) else lengths.get(length) for length in shape]
        fits = array.ndim == len(shape) and all(k in (None, n) for k, n in zip(known, array.shape))
        if not fits:
            raise MetricError(
                f"the parameter `{name}` is of another shape than this encoder and its other parameters need",
                where=path,
                found=array.shape,
                expected=f"({', '.join(str(s if k is None else k) for s, k in zip(shape, known))})",
            )
        lengths |= {length: n for length, n in zip(shape, array.shape) if isinstance(length, str)}
        if array.dtype.kind != "f" or not array.size or not np.isfinite(array).all():
            raise MetricError(
                f"the parameter `{name}` holds what is no finite number",
                where=path,
                found=f"{int((~np.isfinite(array)).sum()) if array.dtype.kind == 'f' else array.dtype} of {array.size}",
                expected="finite floating-point numbers",
            )
    return Artefact({name: tensors[name].astype(np.float32) for name in shapes}, digest_file(path))
