"""How many images a dataset has: as read, as listed in its folder, or, where it is not here, as published."""

from plumbline.catalog.studies import DatasetSize, published_sizes
from plumbline.datasets.records import Refusal
from plumbline.errors import ConfigError
from plumbline.storage import Committed
from resources.places import PLANTED, Places


def absent_datasets(places: Places) -> dict[str, DatasetSize]:
    """Return dataset -> published size, for the datasets that are used and are not on this disk.

    Raises
    ------
    ConfigError
        If nobody has published how large such a dataset is.
    """
    used = places.audit.used_datasets
    return {dataset: _published(places, dataset) for dataset in used if _is_absent(places, dataset)}


def images_of(places: Places, dataset: str) -> int:
    """Return how many images a dataset on this disk has: accepted ones, or unread what it lists; none is opened."""
    if made := recorded(places, dataset):
        return made.rows
    listed = places.dataset_entry(dataset).open_reader().entries(places.dataset_root(dataset))
    return sum(not isinstance(entry, Refusal) for entry in listed)


def recorded(places: Places, dataset: str) -> Committed | None:
    """Return the records of a dataset; None without any, or where its name meant other data when they were made."""
    made = places.lake.committed("records", partition=dataset)
    return made if made and made.details.get("read_as") == places.dataset_entry(dataset).read_as else None


def _is_absent(places: Places, dataset: str) -> bool:
    # Asking for the folder of the planted world would write it.
    if places.dataset_entry(dataset).root.startswith(PLANTED) or recorded(places, dataset):
        return False
    return not places.dataset_root(dataset).is_dir()


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
