"""What `plumbline fetch` can get: the ids of the audit file, and what each of them needs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from plumbline.checkpoints.addresses import parse_address
from plumbline.commands.places import here
from plumbline.datasets.sources import HUB, obtaining
from plumbline.errors import ConfigError
from plumbline.world.folders import PLANTED
from resources.fetched_note import NOTE
from resources.workspace import Workspace

Kind = Literal["encoder", "lvlm", "scorer", "dataset"]


@dataclass(frozen=True)
class Wanted:
    """One id of the audit file, and which part of it it is in."""

    kind: Kind
    id: str


@dataclass(frozen=True)
class Fetchable:
    """One line of what can be fetched: where it comes from, how it is got, and whether it is there."""

    wanted: Wanted
    source: str
    how: str
    there: bool


def wanted(workspace: Workspace, name: str) -> Wanted:
    """Tell what a name on the command line means: ID, or with its part of the audit file such as `encoder:ID`.

    Raises
    ------
    ConfigError
        If the audit file has no such id, or several parts have it.
    """
    known: dict[Kind, tuple[str, ...]] = {
        "encoder": tuple(workspace.audit.encoders),
        "lvlm": tuple(workspace.audit.lvlms),
        "scorer": tuple(name for name, entry in workspace.audit.scorers.items() if hasattr(entry, "address")),
        "dataset": tuple(workspace.audit.datasets),
    }
    prefix, _, rest = name.partition(":")
    meant = [Wanted(kind, name) for kind, ids in known.items() if name in ids]
    meant += [Wanted(kind, rest) for kind, ids in known.items() if kind == prefix and rest in ids]
    if len(meant) > 1:
        raise ConfigError(
            f"this id is {' and '.join(choice.kind for choice in meant)} in one",
            where=workspace.audit_path,
            found=name,
            expected=" or ".join(f"{choice.kind}:{choice.id}" for choice in meant),
        )
    if not meant:
        raise ConfigError(
            "the audit file has nothing of this id that can be fetched",
            where=workspace.audit_path,
            found=name,
            expected="; ".join(f"{kind}s: {', '.join(ids)}" for kind, ids in known.items() if ids),
        )
    return meant[0]


def fetchable(workspace: Workspace) -> list[Fetchable]:
    """Return every checkpoint and dataset that does not come with the checkout, in the order of the audit file."""
    lines = []
    audit = workspace.audit
    parts: dict[Kind, Mapping[str, Any]] = {"encoder": audit.encoders, "lvlm": audit.lvlms, "scorer": audit.scorers}
    for kind, name, entry in ((k, n, e) for k, entries in parts.items() for n, e in entries.items()):
        text = getattr(entry, "loaded_address", getattr(entry, "address", None))
        address = None if text is None else parse_address(text, project=here())
        if address is not None and address.folder is None:
            there = (workspace.fetched / address.slug / NOTE).is_file()
            lines.append(Fetchable(Wanted(kind, name), address.text, "from the hub", there))
    for dataset, entry in workspace.audit.datasets.items():
        if entry.root.startswith(PLANTED):
            continue
        about = obtaining(entry.reader)
        how = "from the hub" if entry.root.startswith(HUB) else f"to be asked for; licence: {about.licence}"
        there = workspace.dataset_root(dataset).is_dir()
        lines.append(Fetchable(Wanted("dataset", dataset), entry.root, how, there))
    return lines
