"""The planted world's datasets, written on first use as the real datasets lie on disk."""

from __future__ import annotations

import os
import shutil
import tempfile
from functools import cache
from importlib import import_module
from importlib.resources import files
from pathlib import Path

from plumbline.digests import digest_json
from plumbline.errors import ConfigError
from plumbline.world.layouts.layout import TRUTH_FILE, Layout

__all__ = ["KINDS", "PLANTED", "TRUTH_FILE", "bad_files", "ensure", "world_version"]

PLANTED = "planted:"
"""Begins the root of a dataset of the planted world."""

KINDS = (
    "causalface", "celeba", "fairface", "folder", "idenprof", "neutral", "pata", "socialcounterfactuals",
    "socialcounterfactuals_parquet", "utkface",
)  # fmt: skip
"""What may follow it; each has a module of its name in `layouts`."""

_GENERATORS = ("faces.py", "looks.py", "layouts/layout.py", "sources.yaml")


@cache
def world_version(kind: str) -> str:
    """Return ten hex digits that change whenever the generator of a kind, its data or the JPEG encoder changes."""
    import PIL

    package = files("plumbline.world")
    # The Parquet form of a dataset is written with the layout of the other one.
    layouts = dict.fromkeys(f"layouts/{name}.py" for name in (kind.removesuffix("_parquet"), kind))
    sources = [(package / name).read_text("utf-8") for name in (*_GENERATORS, *layouts)]
    return digest_json([PIL.__version__, *sources])[:10]


def ensure(kind: str, base: Path) -> Path:
    """Write a planted dataset folder unless it is there already.

    The folder is ``base/<kind>-<world version>/<kind>``; beside it lies `planted_truth.csv` with each good
    file's true attributes and latents, which no reader sees. It is written under another name and moved into
    place whole, so that two processes may call this at once and a killed one leaves nothing half-made under
    the final name. The same version gives the same bytes. What each kind holds, its module in `layouts` says;
    every kind has files that are bad on purpose, see `bad_files`.

    Parameters
    ----------
    kind : str
        One of `KINDS`.
    base : pathlib.Path
        Where planted folders are kept.

    Returns
    -------
    pathlib.Path
        The dataset's root.

    Raises
    ------
    ConfigError
        If there is no such kind.
    """
    layout = _layout(kind)
    final = base / f"{kind}-{world_version(kind)}"
    if not final.is_dir():
        base.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{kind}-", dir=base))
        try:
            layout.write(partial / kind)
            partial.chmod(0o755)
            _move_into_place(partial, final)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return final / kind


def bad_files(kind: str) -> dict[str, str]:
    """Return the paths that are bad on purpose, relative to the dataset's root, each with its fault."""
    return dict(_layout(kind).bad_files)


def _layout(kind: str) -> Layout:
    if kind not in KINDS:
        raise ConfigError("the planted world has no such dataset", found=kind, expected=", ".join(KINDS))
    layout: Layout = import_module(f"plumbline.world.layouts.{kind}").LAYOUT
    return layout


def _move_into_place(partial: Path, final: Path) -> None:
    try:
        os.rename(partial, final)  # noqa: PTH104 - Path.rename says nothing of a folder that is in the way
    except OSError:
        # Another process has put the same content there first.
        if not final.is_dir():
            raise
