"""Getting datasets: from a hub at a pinned revision, or from an archive that a person was given."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from upath import UPath

from plumbline.archives import Extracted, extract_archive
from plumbline.datasets.addresses import HUB, DatasetAddress, dataset_folder, parse_dataset_address
from plumbline.datasets.obtaining import obtaining
from plumbline.errors import DatasetError
from plumbline.storage.atomic import commit_bytes
from resources.hub import asking_the_hub
from resources.places import PLANTED, PROJECT, Places

# For a repository that obtaining.yaml does not know: tables and pictures, never a script.
_TABLES_AND_PICTURES = ("*.parquet", "*.csv", "*.json", "*.txt", "*.jpg", "*.jpeg", "*.png", "*.webp")


def fetch_dataset(places: Places, dataset: str, *, hub: Any = None) -> Path | None:
    """Fetch a dataset whose root in the audit file is on a hub; None for one that must be asked for.

    Parameters
    ----------
    hub : object, optional
        With `snapshot_download` as huggingface_hub has it; for tests.

    Returns
    -------
    Path or None
        The folder, complete. Beside it a note `NAME.fetched.json` records repository, commit and licence.

    Raises
    ------
    DatasetError
        If the dataset is planted, its address names no commit, or the hub cannot be reached or gave no file.
    """
    entry = places.dataset_entry(dataset)
    if entry.root.startswith(PLANTED):
        raise DatasetError("a dataset of the planted world needs no fetching", found=entry.root)
    if not entry.root.startswith(HUB):
        return None
    address = parse_dataset_address(entry.root)
    folder = dataset_folder(address, places.home)
    if folder.is_dir():
        return folder
    if hub is None:
        import huggingface_hub as hub

    known = obtaining(entry.reader)
    same = known.hub is not None and known.hub.repository == address.repository
    patterns = list(known.hub.patterns if same else _TABLES_AND_PICTURES)
    # An interrupted download is gone on with, and is never taken for the dataset.
    unfinished = folder.with_name(f".{folder.name}.unfinished")
    with asking_the_hub(DatasetError, dataset, f"{address.repository}@{address.revision}"):
        hub.snapshot_download(
            address.repository,
            repo_type="dataset",
            revision=address.revision,
            local_dir=unfinished,
            allow_patterns=patterns,
        )
    _finish(address, unfinished, folder, licence=known.licence if same else "see the dataset's page")
    return folder


def extract_dataset(
    places: Places, dataset: str, archive: Path, *, progress: Callable[[int], None] | None = None
) -> tuple[Path, Extracted]:
    """Extract an archive that a person was given into the dataset's folder of the audit file.

    Raises
    ------
    DatasetError
        If the dataset is planted or on a hub, or the archive is refused; nothing is left behind then.
    """
    root = places.dataset_entry(dataset).root
    if root.startswith((PLANTED, HUB)):
        raise DatasetError(
            "an archive goes into a dataset's own folder, and this dataset has none",
            where=places.audit_path,
            found=f"root: {root}",
            expected="root: the folder to extract into",
            hint=f"write that folder as `root` of `{dataset}`",
        )
    folder = (PROJECT / Path(root).expanduser()).resolve()
    return folder, extract_archive(archive, folder, progress=progress)


def _finish(address: DatasetAddress, unfinished: Path, folder: Path, *, licence: str) -> None:
    # The client's notes for going on, which would be listed as part of the dataset.
    shutil.rmtree(unfinished / ".cache", ignore_errors=True)
    if not any(path.is_file() for path in unfinished.rglob("*")):
        raise DatasetError(
            "the repository has none of the wanted files",
            where=f"{address.repository}@{address.revision}",
            expected="tables or pictures",
        )
    note = {"repository": address.repository, "commit": address.revision, "licence": licence}
    commit_bytes(UPath(folder.with_name(f"{folder.name}.fetched.json")), json.dumps(note, indent=2).encode())
    unfinished.replace(folder)
