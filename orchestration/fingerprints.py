"""What can be seen of a source without reading it: whether it may have changed since it was digested."""

import contextlib
import os
import time
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from assets.lineage import dataset_root
from assets.sources import source_names
from plumbline.digests import digest_json, digest_sequence
from plumbline.errors import PlumblineError
from plumbline.world.folders import PLANTED
from resources.workspace import Workspace

_ENDPOINT_S = 3600
"""An endpoint is asked once an hour what it is: that costs a token."""


def source_fingerprints(workspace: Workspace) -> dict[str, str]:
    """Return a fingerprint for every source of the audit file, by `source` or `source partition`.

    A fingerprint is a digest of names, sizes, times and inodes of all files: one that differs says only that the source
    has to be read. A source whose place is not known is left out.
    """
    found = {}
    for asset, partition in source_names(workspace):
        try:
            found[" ".join(filter(None, (asset, partition)))] = _fingerprint(workspace, asset, partition)[:16]
        except PlumblineError:
            continue
    return found


def folder_fingerprint(folder: Path) -> str:
    """Return the fingerprint of a folder with all that is in it; of one that is not there that of an empty one."""
    return digest_sequence(sorted(_entries(folder, ""))) if folder.is_dir() else digest_sequence([])


def _entries(folder: Path, inside: str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            name = f"{inside}/{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                if entry.name != "__pycache__":
                    yield from _entries(Path(entry.path), name)
                continue
            with contextlib.suppress(FileNotFoundError):  # gone since, or a link to nothing
                stat = entry.stat()
                yield f"{name} {stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns} {stat.st_ino}"


def _fingerprint(workspace: Workspace, asset: str, partition: str | None) -> str:
    if partition is None:
        return folder_fingerprint(Path(str(files("plumbline.catalog"))))
    if asset == "lvlm_checkpoint" and (endpoint := workspace.lvlm_entry(partition).endpoint) is not None:
        hour = int(time.time()) // _ENDPOINT_S if endpoint.follow else None
        return digest_json([endpoint.model_dump(mode="json"), hour])
    place = _place(workspace, asset, partition)
    return digest_json([place.entry, folder_fingerprint(place.folder)])


class _Place(NamedTuple):
    """Where a source lies, and what the audit file says of how it is read."""

    folder: Path
    entry: object


def _place(workspace: Workspace, asset: str, partition: str) -> _Place:
    if asset == "dataset_folder":
        # Of a planted one that is not there yet nothing is written here: that takes longer than a look may.
        entry, folder = workspace.dataset_entry(partition), dataset_root(workspace, partition)
        if entry.root.startswith(PLANTED):
            return _Place(folder.parent, entry.root)
        return _Place(folder, entry.model_dump(mode="json"))
    if asset == "encoder_checkpoint":
        entry = workspace.audit.encoders[partition]
        return _Place(workspace.checkpoint_folder(entry.address), entry.model_dump(mode="json"))
    address = workspace.lvlm_entry(partition).address
    return _Place(workspace.checkpoint_folder(str(address)), address)
