"""How each result was last computed: by which code, from what, and what it stored. Written last, beside the lake."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from upath import UPath

from plumbline.digests import canonical_json, digest_bytes
from plumbline.storage.files import commit_bytes
from plumbline.storage.lake import BUILDS, Lake

_CODE = "code"
_UNTOLD = "untold.json"
_PARTS = "parts.json"


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


def write_parts(lake: Lake, asset: str, partition: str, parts: Mapping[str, Collection[Any]], *, code: str) -> None:
    """Keep the parts of a result, by digest of what each was computed from; see `plumbline.parts`."""
    rows = json.dumps(parts, separators=(",", ":"), ensure_ascii=False)
    content = f"{code} {digest_bytes(rows.encode())}\n{rows}"
    commit_bytes(_folder(lake, asset, partition) / _PARTS, content.encode())


def read_parts(lake: Lake, asset: str, partition: str, *, code: str) -> dict[str, list[Any]]:
    """Return the parts of a result as they were last computed by this code; none where the file is damaged."""
    try:
        head, _, rows = (_folder(lake, asset, partition) / _PARTS).read_bytes().partition(b"\n")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    if head.decode("utf-8", "replace") != f"{code} {digest_bytes(rows)}":
        return {}
    parts: dict[str, list[Any]] = json.loads(rows)
    return parts


def forget_parts(lake: Lake, asset: str, partition: str) -> None:
    """Let all of a result be computed the next time."""
    with suppress(FileNotFoundError, NotADirectoryError):
        (_folder(lake, asset, partition) / _PARTS).unlink()


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
