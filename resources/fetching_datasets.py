"""Getting datasets: from a hub at a pinned revision, or from an archive that a person was given."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from plumbline.commands.places import from_here
from plumbline.datasets.sources import HUB, DatasetAddress, dataset_folder, obtaining, parse_dataset_address
from plumbline.datasets.unpacking import Extracted, extract_archive
from plumbline.errors import DatasetError
from plumbline.world.folders import PLANTED
from resources.fetched_note import NOTE, file_digests, write_note
from resources.fetching_aside import built_aside
from resources.hub import asking_the_hub, require_commit, writing
from resources.workspace import Workspace

# For a repository that obtaining.yaml does not know: tables and pictures, never a script.
_TABLES_AND_PICTURES = ("*.parquet", "*.csv", "*.json", "*.txt", "*.jpg", "*.jpeg", "*.png", "*.webp")


class ExtractedDataset(NamedTuple):
    """Where a dataset was extracted to, and how much that was."""

    folder: Path
    extracted: Extracted


def fetch_dataset(workspace: Workspace, dataset: str, *, hub: Any = None) -> Path | None:
    """Fetch a dataset whose root in the audit file is on a hub; None for one that must be asked for.

    Parameters
    ----------
    hub : object, optional
        With `snapshot_download` as huggingface_hub has it; for tests.

    Returns
    -------
    Path or None
        The folder, complete. Beside it a note `NAME.fetched.json` records repository, commit, licence and the
        digest of every file.

    Raises
    ------
    DatasetError
        If the dataset is planted, its address names no commit, or the hub cannot be reached or gave no file.
    """
    entry = workspace.dataset_entry(dataset)
    if entry.root.startswith(PLANTED):
        raise DatasetError("a dataset of the planted world needs no fetching", found=entry.root)
    if not entry.root.startswith(HUB):
        return None
    address = parse_dataset_address(entry.root)
    folder = dataset_folder(address, workspace.home)
    if folder.is_dir():
        return folder
    if hub is None:
        import huggingface_hub as hub

    known = obtaining(entry.reader)
    same = known.hub is not None and known.hub.repository == address.repository
    patterns = list(known.hub.patterns if same else _TABLES_AND_PICTURES)
    licence = known.licence if same else "see the dataset's page"
    with writing(DatasetError, dataset, folder), built_aside(folder, address.revision) as built:
        with asking_the_hub(DatasetError, dataset, f"{address.repository}@{address.revision}"):
            hub.snapshot_download(
                address.repository,
                repo_type="dataset",
                revision=address.revision,
                local_dir=built,
                allow_patterns=patterns,
            )
        require_commit(DatasetError, dataset, address.repository, address.revision, built)
        _write_note(address, built, beside=folder, licence=licence)
    return folder


def extract_dataset(
    workspace: Workspace, dataset: str, archive: Path, *, progress: Callable[[int], None] | None = None
) -> ExtractedDataset:
    """Extract an archive that a person was given into the dataset's folder of the audit file.

    Raises
    ------
    DatasetError
        If the dataset is planted or on a hub, or the archive is refused; nothing is left behind then.
    """
    root = workspace.dataset_entry(dataset).root
    if root.startswith((PLANTED, HUB)):
        raise DatasetError(
            "an archive goes into a dataset's own folder, and this dataset has none",
            where=workspace.audit_path,
            found=f"root: {root}",
            expected="root: the folder to extract into",
            hint=f"write that folder as `root` of `{dataset}`",
        )
    folder = from_here(root)
    return ExtractedDataset(folder, extract_archive(archive, folder, progress=progress))


def _write_note(address: DatasetAddress, made: Path, *, beside: Path, licence: str) -> None:
    """Write the note beside the dataset's folder, where it is not listed as part of the dataset."""
    digests = file_digests(made)
    if not digests:
        raise DatasetError(
            "the repository has none of the wanted files",
            where=f"{address.repository}@{address.revision}",
            expected="tables or pictures",
        )
    write_note(
        beside.with_name(f"{beside.name}.{NOTE}"),
        repository=address.repository,
        commit=address.revision,
        sha256=digests,
        licence=licence,
    )
