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
        If the file cannot be read, lacks a parameter, has another one, or one is of another shape, of no floating
        type, or not finite in float32: with how many numbers, and row and column of the first.
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
    parameters: dict[str, NDArray[np.float32]] = {}
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
        if array.dtype.kind != "f" or not array.size:
            raise MetricError(
                f"the parameter `{name}` holds no floating-point numbers",
                where=path,
                found=f"{array.dtype} of shape {array.shape}",
                expected="at least one, of a floating type",
            )
        with np.errstate(over="ignore"):
            parameters[name] = array.astype(np.float32)
        if len(wrong := np.argwhere(~np.isfinite(parameters[name]))):
            place = ", ".join(f"{axis} {at + 1}" for axis, at in zip(("row", "column"), wrong[0]))
            raise MetricError(
                f"{len(wrong)} of {array.size} numbers of the parameter `{name}` are not finite",
                where=f"{path}, {place}",
                found=array[tuple(wrong[0])],
                expected="numbers that float32 has",
            )
    return Artefact(parameters, digest_file(path))
