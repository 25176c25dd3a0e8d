"""What `plumbline fetch` can get: the ids of the audit file, and what each of them needs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from plumbline.datasets.addresses import HUB, dataset_folder
from plumbline.datasets.obtaining import obtaining
from plumbline.encoders.addresses import parse_address
from plumbline.errors import ConfigError
from resources.fetched_note import NOTE
from resources.places import PLANTED, PROJECT, Places

Kind = Literal["encoder", "dataset"]


@dataclass(frozen=True)
class Wanted:
    """One id of the audit file, and whether it is an encoder or a dataset."""

    kind: Kind
    id: str


@dataclass(frozen=True)
class Fetchable:
    """One line of what can be fetched: where it comes from, how it is got, and whether it is there."""

    wanted: Wanted
    source: str
    how: str
    there: bool


def wanted(places: Places, name: str) -> Wanted:
    """Tell what a name on the command line means: ID, `encoder:ID` or `dataset:ID`.

    Raises
    ------
    ConfigError
        If the audit file has no such id, or both an encoder and a dataset of it.
    """
    known: dict[Kind, tuple[str, ...]] = {
        "encoder": tuple(places.audit.encoders),
        "dataset": tuple(places.audit.datasets),
    }
    prefix, _, rest = name.partition(":")
    meant = [Wanted(kind, name) for kind, ids in known.items() if name in ids]
    meant += [Wanted(kind, rest) for kind, ids in known.items() if kind == prefix and rest in ids]
    if len(meant) > 1:
        raise ConfigError(
            "this id is an encoder and a dataset",
            where=places.audit_path,
            found=name,
            expected=" or ".join(f"{choice.kind}:{choice.id}" for choice in meant),
        )
    if not meant:
        raise ConfigError(
            "the audit file has no such encoder or dataset",
            where=places.audit_path,
            found=name,
            expected="; ".join(f"{kind}s: {', '.join(ids) or 'none'}" for kind, ids in known.items()),
        )
    return meant[0]


def fetchable(places: Places) -> list[Fetchable]:
    """Return every encoder and dataset that does not come with the checkout, in the order of the audit file."""
    lines = []
    for encoder, entry in places.audit.encoders.items():
        address = parse_address(entry.address, project=PROJECT)
        if address.folder is None:
            there = (places.fetched / address.slug / NOTE).is_file()
            lines.append(Fetchable(Wanted("encoder", encoder), entry.address, "from the hub", there))
    for dataset, entry in places.audit.datasets.items():
        if entry.root.startswith(PLANTED):
            continue
        about = obtaining(entry.reader)
        how = "from the hub" if entry.root.startswith(HUB) else f"to be asked for; licence: {about.licence}"
        lines.append(
            Fetchable(Wanted("dataset", dataset), entry.root, how, _folder(places, entry.root).is_dir())
        )
    return lines


def _folder(places: Places, root: str) -> Path:
    return dataset_folder(root, places.home) if root.startswith(HUB) else PROJECT / Path(root).expanduser()
