"""Addresses of checkpoints in the audit file, resolved to folders on this disk, never to a download."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from plumbline.errors import CheckpointError

_HUB = re.compile(r"hf-hub:(?P<repo>[\w.-]+/[\w.-]+)(@(?P<revision>[\w.-]+))?")
_TAGGED = re.compile(r"(?P<architecture>[\w.-]+)/(?P<tag>[\w.-]+)")
_COMMIT = re.compile(r"[0-9a-f]{40}")

OPEN_CLIP_CONFIG = "open_clip_config.json"
TRANSFORMERS_CONFIG = "config.json"

FETCHED = "fetched"
"""Stands for a commit that the first `plumbline fetch` chooses, records, and keeps to, as with `ARCHITECTURE/TAG`."""


STORED = "stored:"
"""Begins the address of predictions that were made elsewhere: a table, or a folder of tables."""


@dataclass(frozen=True)
class Address:
    """A parsed address: exactly one of `folder`, `repository` and `architecture` is set.

    `revision` is a commit; None where the first fetch chooses it.
    """

    text: str
    folder: Path | None = None
    repository: str | None = None
    revision: str | None = None
    architecture: str | None = None
    tag: str | None = None

    @property
    def slug(self) -> str:
        """Return the folder name under which `plumbline fetch` keeps the checkpoint."""
        return re.sub(r"[^\w.-]+", "--", self.text.removeprefix("hf-hub:"))

    def folder_in(self, fetched: Path) -> Path:
        """Return where the checkpoint lies, whether it is there or not; `fetched` is where fetching puts others."""
        return self.folder or fetched / self.slug

    def folder_with(self, configurations: Sequence[str], *, fetched: Path, what: str, fetch: str) -> Path:
        """Return the folder of a checkpoint that is on this disk.

        Parameters
        ----------
        configurations : sequence of str
            Names of files, of which one must be there.
        what, fetch : str
            What is looked for, and how it is got from the hub, for the message.

        Raises
        ------
        CheckpointError
            If it is not there, or is an address of open_clip and none of the names is of its configuration.
        """
        if self.architecture is not None and OPEN_CLIP_CONFIG not in configurations:
            raise CheckpointError(
                f"{what} has an address of open_clip, which has only encoders",
                found=self.text,
                expected="local-dir:PATH or hf-hub:ORG/NAME@COMMIT",
            )
        folder = self.folder_in(fetched)
        if not any((folder / name).is_file() for name in configurations):
            raise CheckpointError(
                f"{what} is not on this disk",
                where=folder,
                found=" and ".join(f"no {name}" for name in configurations),
                expected=f"the files of {self.text}",
                hint=f"run {fetch}" if self.folder is None else "correct the path in the audit file",
            )
        return folder


def parse_address(text: str, *, project: Path) -> Address:
    """Parse `local-dir:PATH`, `stored:PATH`, `hf-hub:ORG/NAME@COMMIT`, `hf-hub:ORG/NAME@fetched` or `ARCHITECTURE/TAG`.

    Parameters
    ----------
    project : Path
        Where relative paths start; `~` is the home folder.

    Raises
    ------
    CheckpointError
        If it is none of these, or a hub address names no commit: branches and tags move.
    """
    for kind in ("local-dir:", STORED):
        if text.startswith(kind) and (path := text.removeprefix(kind).strip()):
            return Address(text, folder=_folder(path, project))
    if hub := _HUB.fullmatch(text):
        if hub["revision"] == FETCHED:
            return Address(text, repository=hub["repo"])
        if not _COMMIT.fullmatch(hub["revision"] or ""):
            raise CheckpointError(
                "a hub address must name a commit, so that the audit says what it audited",
                found=text,
                expected="hf-hub:ORG/NAME@COMMIT, a revision of 40 hexadecimal digits; branches and tags move",
                hint="take the commit from the repository's history; @fetched keeps to that of the first fetch",
            )
        return Address(text, repository=hub["repo"], revision=hub["revision"])
    if tagged := _TAGGED.fullmatch(text):
        return Address(text, architecture=tagged["architecture"], tag=tagged["tag"])
    raise CheckpointError(
        "this is not a checkpoint address",
        found=text,
        expected="local-dir:PATH, hf-hub:ORG/NAME@COMMIT or ARCHITECTURE/TAG such as ViT-B-32-quickgelu/openai",
    )


def _folder(path: str, project: Path) -> Path:
    try:
        return (project / Path(path).expanduser()).resolve()
    except RuntimeError as error:
        raise CheckpointError("this user has no home folder", found=path, expected="a path") from error
