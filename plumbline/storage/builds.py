"""How each result was last computed: by which code, from what, and what it stored. Written last, beside the lake."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from upath import UPath

from plumbline.digests import canonical_json
from plumbline.storage.files import commit_bytes

if TYPE_CHECKING:
    from plumbline.storage.lake import Committed, Lake

BUILDS = "builds"
"""Folder of the lake; no table has this name."""
_CODE = "code"
_UNTOLD = "untold.json"


@dataclass(frozen=True)
class Build:
    """The last computation of one partition of an asset.

    Attributes
    ----------
    asset, partition : str
        The partition is empty where the asset has none.
    code : str
        Version of the code that computed it.
    inputs : dict of str to JSON value
        What it read, as `plumbline.recording.Recording.inputs` gives it.
    outputs : list of (name, partition, version)
        What it stored in the lake.
    data_version : str
        As Dagster was told.
    run : str
        The run of Dagster that computed it.
    """

    asset: str
    partition: str
    code: str
    inputs: dict[str, Any]
    outputs: list[list[str]]
    data_version: str
    run: str


def _folder(lake: Lake, asset: str, partition: str) -> UPath:
    return lake.folder(BUILDS).joinpath(asset, *(part for part in partition.split("|") if part))


def write_build(lake: Lake, build: Build, *, parts: Mapping[str, str] | None) -> None:
    """Keep how a result was computed, and once what its code version is made of (None where it is declared)."""
    code = lake.folder(BUILDS) / _CODE / f"{build.code}.json"
    if parts is not None and not code.exists():
        commit_bytes(code, canonical_json(dict(parts)).encode())
    commit_bytes(_folder(lake, build.asset, build.partition) / "build.json", canonical_json(asdict(build)).encode())


def read_build(lake: Lake, asset: str, partition: str = "") -> Build | None:
    """Return how a result was last computed; None where that is not known."""
    try:
        return Build(**json.loads((_folder(lake, asset, partition) / "build.json").read_text("utf-8")))
    except (FileNotFoundError, NotADirectoryError, ValueError, TypeError):
        return None


def forget_producer(lake: Lake, damaged: Committed) -> None:
    """Let what was found damaged be computed again by the next audit: forget how the result that stored it came about.

    Of an audit of the past, whose result has been replaced since, nothing is forgotten; nor on a disk that is
    read-only.
    """
    output = [damaged.name, damaged.partition, damaged.version]
    for path in lake.folder(BUILDS).rglob("build.json"):
        with suppress(OSError, ValueError, KeyError):
            if output in json.loads(path.read_text("utf-8"))["outputs"]:
                path.unlink()


def write_untold(lake: Lake, results: Collection[tuple[str, str]]) -> None:
    """Keep what was computed or found anew, by asset or source and partition, until Dagster has been told."""
    commit_bytes(lake.folder(BUILDS) / _UNTOLD, canonical_json(sorted(results)).encode())


def read_untold(lake: Lake) -> set[tuple[str, str]]:
    """Return what `write_untold` kept."""
    try:
        return {
            (asset, partition) for asset, partition in json.loads((lake.folder(BUILDS) / _UNTOLD).read_text("utf-8"))
        }
    except (FileNotFoundError, NotADirectoryError, ValueError, TypeError):
        return set()


def read_code(lake: Lake, version: str) -> dict[str, str] | None:
    """Return what a code version is made of: module, data file, library or `python` -> digest or version."""
    try:
        parts: dict[str, str] = json.loads((lake.folder(BUILDS) / _CODE / f"{version}.json").read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return parts


def damaged_output(lake: Lake, build: Build) -> Iterator[str]:
    """Yield what a result stored that is not there any more as it was: another manifest, no file, or another size."""
    for name, partition, version in build.outputs:
        committed = lake.committed(name, partition=partition)
        if committed is None or committed.version != version:
            yield name
        elif lake.size(committed) != committed.bytes:
            yield f"the file of {name}"
