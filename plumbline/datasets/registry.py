"""The readers by name."""

from __future__ import annotations

from plumbline.datasets.folder import ColumnMap
from plumbline.datasets.own import OwnReader
from plumbline.datasets.records import Reader
from plumbline.errors import ConfigError
from plumbline.imports import import_class
from plumbline.own_code import is_reference

READERS = {
    "causalface": "causalface:CausalFace",
    "celeba": "celeba:CelebA",
    "coco": "coco:COCOCaptions",
    "counts": "counts:CountTable",
    "fairface": "fairface:FairFace",
    "folder": "folder:MappedFolder",
    "idenprof": "image_folder:IdenProf",
    "image_folder": "image_folder:ImageFolder",
    "img2dataset": "img2dataset:Img2Dataset",
    "listing": "folder:Listing",
    "neutral": "image_folder:NeutralPortraits",
    "pata": "pata:PATA",
    "socialcounterfactuals": "socialcounterfactuals:SocialCounterfactuals",
    "utkface": "image_folder:UTKFace",
}
"""Name in the audit file -> `module:Class` below `plumbline.datasets`."""

MAPPED = ("folder", "listing", "counts")
"""The readers that take a column map."""


IMAGE_TEXT_PAIRS = ("coco", "img2dataset")
"""The readers of pictures with captions and without labels: to train on, and to judge retrieval by."""


def reader_names() -> tuple[str, ...]:
    """Return the names that `reader_for` knows."""
    return tuple(READERS)


def reader_for(name: str, column_map: ColumnMap | None = None) -> Reader:
    """Return the reader of a kind of dataset; its `declaration` has base attribute, class set and filters.

    Parameters
    ----------
    column_map : ColumnMap, optional
        For the readers of `MAPPED`, and only for them: which column is what.

    Raises
    ------
    ConfigError
        If there is no such reader, or one of `MAPPED` comes without a map, or another reader with one.
    """
    if is_reference(name):
        return OwnReader(name)
    if name not in READERS:
        raise ConfigError("there is no reader for this dataset", found=name, expected=", ".join(reader_names()))
    if (name in MAPPED) != (column_map is not None):
        raise ConfigError(
            f"a column map belongs to the readers {', '.join(MAPPED)}, and these need one",
            found=f"{name} {'without' if column_map is None else 'with'} `map`",
            expected=f"`map` with {' or '.join(MAPPED)} only",
        )
    reader = import_class(READERS[name], below="plumbline.datasets")
    instance: Reader = reader(column_map) if column_map is not None else reader()
    return instance
