"""The planted world's datasets, written on first use as the real datasets lie on disk."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from functools import cache
from importlib.resources import files
from pathlib import Path

import numpy as np
import polars as pl

from plumbline.digests import digest_json
from plumbline.errors import ConfigError
from plumbline.world import layouts, layouts_of_pairs, layouts_of_sets, sources
from plumbline.world.layouts import bad_files

__all__ = ["KINDS", "PLANTED", "TRUTH_FILE", "bad_files", "ensure", "world_version"]

_HOUR_S = 3600.0

PLANTED = "planted:"
"""Begins the root of a dataset of the planted world."""

LAYOUTS = {
    "causalface": layouts_of_sets.causalface,
    "celeba": layouts.celeba,
    "coco": layouts_of_pairs.coco,
    "fairface": layouts.fairface,
    "folder": layouts.folder,
    "idenprof": layouts.idenprof,
    "image_folder": layouts.image_folder,
    "img2dataset": layouts_of_pairs.img2dataset,
    "neutral": layouts.neutral,
    "pata": layouts.pata,
    "socialcounterfactuals": layouts_of_sets.socialcounterfactuals,
    "socialcounterfactuals_parquet": layouts_of_sets.socialcounterfactuals_parquet,
    "utkface": layouts.utkface,
}
"""Kind -> what writes the dataset below a root, with draws of a generator, and returns each good file's true attributes
and latents, with its `path`."""

KINDS = tuple(LAYOUTS)
"""What may follow `PLANTED`."""

TRUTH_FILE = "planted_truth.csv"

_GENERATORS = (
    "faces.py", "layouts.py", "layouts_of_pairs.py", "layouts_of_sets.py", "layouts.yaml", "looks.yaml",
    "sources.yaml",
)  # fmt: skip


@cache
def world_version() -> str:
    """Return ten hex digits that change whenever the generators, their data or the JPEG encoder change."""
    import PIL

    package = files("plumbline.world")
    return digest_json([PIL.__version__, *((package / name).read_text("utf-8") for name in _GENERATORS)])[:10]


def ensure(kind: str, base: Path) -> Path:
    """Write a planted dataset folder unless it is there already.

    The folder is ``base/<kind>-<world version>/<kind>``; beside it lies `planted_truth.csv` with each good
    file's true attributes and latents, which no reader sees. It is written under another name and moved into
    place whole, so that two processes may call this at once and a killed one leaves nothing half-made under
    the final name. The same version gives the same bytes. What each kind holds, `layouts.yaml` says; every kind has
    files that are bad on purpose, see `bad_files`.

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
    if kind not in LAYOUTS:
        raise ConfigError("the planted world has no such dataset", found=kind, expected=", ".join(KINDS))
    final = base / f"{kind}-{world_version()}"
    for left in base.glob(f".{kind}-*"):  # by a process that was killed; another may be at it now
        with contextlib.suppress(FileNotFoundError):
            if left.stat().st_mtime < time.time() - _HOUR_S:
                shutil.rmtree(left, ignore_errors=True)
    if not final.is_dir():
        base.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{kind}-", dir=base))
        try:
            # The two forms of one dataset share a seed.
            rng = np.random.default_rng(sources.seed("auditing", kind.removesuffix("_parquet")))
            truth = LAYOUTS[kind](partial / kind, rng)
            first = [column for column in ("path", "age") if column in truth.columns]
            truth.select(*first, pl.exclude(first)).write_csv(partial / TRUTH_FILE)
            partial.chmod(base.stat().st_mode & 0o777)
            os.rename(partial, final)  # noqa: PTH104 - Path.rename says nothing of a folder that is in the way
        except OSError:
            # Another process may have put the same content there first.
            if not final.is_dir():
                raise
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return final / kind
