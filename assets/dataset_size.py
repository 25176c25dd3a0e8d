"""How many images a dataset has: as read, as listed in its folder, or, where it is not here, as published."""

from plumbline.catalog.studies import DatasetSize, published_sizes
from plumbline.datasets.records import Refusal
from plumbline.errors import ConfigError
from plumbline.storage import Committed
from plumbline.world.folders import PLANTED
from resources.workspace import Workspace


def absent_datasets(workspace: Workspace) -> dict[str, DatasetSize]:
    """Return dataset -> published size, for the datasets that are used and are not on this disk.

    Raises
    ------
    ConfigError
        If nobody has published how large such a dataset is.
    """
    used = workspace.audit.used_datasets
    return {dataset: _published(workspace, dataset) for dataset in used if _is_absent(workspace, dataset)}


def images_of(workspace: Workspace, dataset: str) -> int:
    """Return how many images a dataset on this disk has: accepted ones, or unread what it lists; none is opened."""
    if made := recorded(workspace, dataset):
        return made.rows
    listed = workspace.dataset_entry(dataset).open_reader().entries(workspace.dataset_root(dataset))
    return sum(not isinstance(entry, Refusal) for entry in listed)


def recorded(workspace: Workspace, dataset: str) -> Committed | None:
    """Return the records of a dataset; None without any, or where its name meant other data when they were made."""
    made = workspace.lake.committed("records", partition=dataset)
    return made if made and made.details.get("read_as") == workspace.dataset_entry(dataset).read_as else None


def _is_absent(workspace: Workspace, dataset: str) -> bool:
    # Asking for the folder of the planted world would write it.
    if workspace.dataset_entry(dataset).root.startswith(PLANTED) or recorded(workspace, dataset):
        return False
    return not workspace.dataset_root(dataset).is_dir()


def _published(workspace: Workspace, dataset: str) -> DatasetSize:
    entry, known = workspace.dataset_entry(dataset), published_sizes()
    if entry.reader not in known:
        raise ConfigError(
            f"the dataset `{dataset}` is not on this disk, and nobody has published how large it is",
            where=workspace.audit_path,
            found=entry.root,
            expected=f"a folder, or the data of one of {', '.join(known)}",
        )
    return known[entry.reader]
