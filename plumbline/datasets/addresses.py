"""Datasets on a hub: the address that the audit file gives, and the folder where fetching puts the files."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from plumbline.errors import DatasetError

HUB = "hf-hub:"

_HUB_DATASET = re.compile(r"hf-hub:datasets/(?P<repo>[\w-][\w.-]*/[\w-][\w.-]*)(@(?P<revision>[\w.-]+))?")
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class DatasetAddress:
    """A repository of data at one commit."""

    text: str
    repository: str
    revision: str

    @property
    def slug(self) -> str:
        """Return the folder name under which `plumbline fetch` keeps the data."""
        return re.sub(r"[^\w.-]+", "--", f"{self.repository}@{self.revision}")


def parse_dataset_address(text: str) -> DatasetAddress:
    """Parse `hf-hub:datasets/ORG/NAME@COMMIT`.

    Raises
    ------
    DatasetError
        If it is not of this form, or names no commit: branches and tags move.
    """
    expected = "hf-hub:datasets/ORG/NAME@COMMIT, a revision of 40 hexadecimal digits"
    match = _HUB_DATASET.fullmatch(text)
    if match is None:
        raise DatasetError("this is not the address of a dataset on a hub", found=text, expected=expected)
    if not _COMMIT.fullmatch(match["revision"] or ""):
        raise DatasetError(
            "a hub address must name a commit, so that the audit says what it audited",
            found=text,
            expected=f"{expected}; branches and tags move",
            hint="take the commit from the dataset's history",
        )
    return DatasetAddress(text, match["repo"], match["revision"])


def dataset_folder(address: DatasetAddress | str, home: Path) -> Path:
    """Return where `plumbline fetch` puts a hub dataset, whether it is there or not.

    Parameters
    ----------
    address : DatasetAddress or str
        A string is parsed, with the errors of `parse_dataset_address`.
    home : Path
        Plumbline's home, `.plumbline` by default.
    """
    parsed = parse_dataset_address(address) if isinstance(address, str) else address
    return home / "datasets" / parsed.slug
