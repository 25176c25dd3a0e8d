"""What can be seen of a source without reading it: whether it may have changed since it was digested."""

import contextlib
import os
import time
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

from assets.sources import source_names
from plumbline.digests import digest_json, digest_sequence
from plumbline.errors import PlumblineError
from plumbline.world.folders import world_version
from resources.places import PLANTED, Places

_ENDPOINT_S = 3600
"""An endpoint is asked once an hour what it is: that costs a token."""


def source_stamps(places: Places) -> dict[str, str]:
    """Return a stamp for every source of the audit file, by `source` or `source partition`.

    A stamp is a digest of names, sizes, times and inodes of all files: one that differs says only that the source
    has to be read. A source whose place is not known is left out.
    """
    found = {}
    for asset, partition in source_names(places):
        try:
            found[" ".join(filter(None, (asset, partition)))] = _stamp(places, asset, partition)[:16]
        except PlumblineError:
            continue
    return found


def folder_stamp(folder: Path) -> str:
    """Return the stamp of a folder with all that is in it; of one that is not there that of an empty one."""
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


def _stamp(places: Places, asset: str, partition: str | None) -> str:
    if partition is None:
        return folder_stamp(Path(str(files("plumbline.tables"))))
    if asset == "lvlm_checkpoint" and (endpoint := places.lvlm_entry(partition).endpoint) is not None:
        hour = int(time.time()) // _ENDPOINT_S if endpoint.follow else None
        return digest_json([endpoint.model_dump(mode="json"), hour])
    folder, entry = _place(places, asset, partition)
    return digest_json([entry, folder_stamp(folder)])


def _place(places: Places, asset: str, partition: str) -> tuple[Path, object]:
    """Return where a source lies, and what the audit file says of how it is read."""
    if asset == "dataset_folder":
        root = places.dataset_entry(partition).root
        if root.startswith(PLANTED):
            # Of one that is not there yet nothing is written here: that takes longer than a look may.
            kind = root.removeprefix(PLANTED)
            return places.home / "world" / f"{kind}-{world_version(kind)}", root
        return places.dataset_root(partition), places.dataset_entry(partition).model_dump(mode="json")
    if asset == "encoder_checkpoint":
        entry = places.audit.encoders[partition]
        return places.checkpoint_folder(entry.address), entry.model_dump(mode="json")
    address = places.lvlm_entry(partition).address
    return places.checkpoint_folder(str(address)), address
