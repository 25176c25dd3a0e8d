"""How many images a dataset has: as read, as listed in its folder, or, where it is not here, as published."""

from plumbline.datasets.addresses import HUB, dataset_folder
from plumbline.datasets.records import Refusal
from plumbline.errors import ConfigError
from plumbline.storage import Committed
from plumbline.tables.dataset_sizes import DatasetSize, published_sizes
from resources.places import PLANTED, PROJECT, Places


def absent_datasets(places: Places) -> dict[str, DatasetSize]:
    """Return dataset -> published size, for the datasets that are asked for and are not on this disk.

    Raises
    ------
    ConfigError
        If nobody has published how large such a dataset is.
    """
    asked = dict.fromkeys(dataset for dataset, _ in places.audit.cells)
    asked |= dict.fromkeys(dataset for _, dataset in places.audit.designs)
    return {dataset: _published(places, dataset) for dataset in asked if _is_absent(places, dataset)}


def size_of(places: Places, dataset: str) -> DatasetSize:
    """Return the size of a dataset that is on this disk; no image is opened."""
    if made := recorded(places, dataset):
        return DatasetSize(made.rows, "accepted")
    listed = places.dataset_entry(dataset).open_reader().entries(places.dataset_root(dataset))
    return DatasetSize(sum(not isinstance(entry, Refusal) for entry in listed), "listed in its folder")


def recorded(places: Places, dataset: str) -> Committed | None:
    """Return the records of a dataset; None without any, or where its name meant other data when they were made."""
    made = places.lake.committed("records", partition=dataset)
    return made if made and made.details.get("declared") == places.dataset_entry(dataset).declared else None


def _is_absent(places: Places, dataset: str) -> bool:
    root = places.dataset_entry(dataset).root
    if root.startswith(PLANTED) or recorded(places, dataset):
        return False
    folder = dataset_folder(root, places.home) if root.startswith(HUB) else PROJECT / root
    return not folder.expanduser().is_dir()


def _published(places: Places, dataset: str) -> DatasetSize:
    entry, known = places.dataset_entry(dataset), published_sizes()
    if entry.reader not in known:
        raise ConfigError(
            f"the dataset `{dataset}` is not on this disk, and nobody has published how large it is",
            where=places.audit_path,
            found=entry.root,
            expected=f"a folder, or the data of one of {', '.join(known)}",
        )
    return known[entry.reader]
