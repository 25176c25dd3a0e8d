"""How datasets are obtained: addresses, licences, steps, expected layout."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from pydantic import TypeAdapter

from plumbline.catalog.files import parse_yaml
from plumbline.errors import ConfigError, DatasetError

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


# --- Where the data of each reader comes from


@dataclass(frozen=True)
class HubSource:
    """A public repository with the data, and the files in it that the reader reads."""

    repository: str
    patterns: tuple[str, ...]


@dataclass(frozen=True)
class Obtaining:
    """How the data of one reader is obtained.

    Attributes
    ----------
    title, licence : str
        The dataset, and the terms of its data as far as its publishers state them.
    page : str or None
        The dataset's own page.
    hub : HubSource or None
        None where it must be asked for.
    steps, layout : tuple of str
        What to do, and what the reader looks for below the dataset's root.
    """

    title: str
    licence: str
    page: str | None
    steps: tuple[str, ...]
    layout: tuple[str, ...]
    hub: HubSource | None = None

    def instructions(self, dataset: str) -> str:
        """Return the text that a person follows, for a dataset of the audit file."""
        last = f"put the files there, or run `plumbline fetch {dataset} --archive FILE` with what you got"
        lines = [self.title, f"  licence:  {self.licence}", f"  page:     {self.page or 'see the paper'}"]
        steps = self.steps if self.hub else (*self.steps, last)
        lines += [f"  {number}. {step}" for number, step in enumerate(steps, 1)]
        return "\n".join([*lines, f"  expected: {'; '.join(self.layout)}"])


@cache
def _all() -> dict[str, Obtaining]:
    content = parse_yaml(files("plumbline.datasets").joinpath("obtaining.yaml").read_text("utf-8"))
    return TypeAdapter(dict[str, Obtaining]).validate_python(content["datasets"])


def obtaining(reader: str) -> Obtaining:
    """Return how the data of a reader is obtained.

    Raises
    ------
    ConfigError
        If the data file says nothing of this reader.
    """
    known = _all()
    if reader not in known:
        raise ConfigError("nothing is known of where this data comes from", found=reader, expected=", ".join(known))
    return known[reader]
