"""Where checkpoints are: addresses of the audit file, resolved to folders on this disk, never to a download."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from plumbline.digests import digest_file, digest_json
from plumbline.encoders.families import FAMILIES, Family, family_of_model_type, find_family
from plumbline.encoders.folder_contents import FolderContents, read_configuration
from plumbline.encoders.open_clip_folder import CONFIG as OPEN_CLIP_CONFIG
from plumbline.encoders.open_clip_folder import open_clip_contents
from plumbline.encoders.transformers_folder import CONFIG as TRANSFORMERS_CONFIG
from plumbline.encoders.transformers_folder import transformers_contents
from plumbline.errors import CheckpointError

_HUB = re.compile(r"hf-hub:(?P<repo>[\w.-]+/[\w.-]+)(@(?P<revision>[\w.-]+))?")
_TAGGED = re.compile(r"(?P<architecture>[\w.-]+)/(?P<tag>[\w.-]+)")
_COMMIT = re.compile(r"[0-9a-f]{40}")

FETCHED = "fetched"
"""Stands for a commit that the first `plumbline fetch` chooses, records, and keeps to, as with `ARCHITECTURE/TAG`."""


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
            If it is not there.
        """
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


@dataclass(frozen=True)
class CheckpointFiles:
    """A checkpoint on disk.

    Attributes
    ----------
    weights : Path
        The safetensors file that is loaded; the only one.
    weights_sha256 : str
        Of that file.
    digest : str
        Of every file that decides what the checkpoint computes: weights, configuration, tokenizer.
    family : str
        Name in `plumbline.encoders.families.FAMILIES`: which adapter loads it.
    deciding : tuple of (str, str)
        Name and sha256 of each of these files.
    """

    folder: Path
    weights: Path
    weights_sha256: str
    digest: str
    family: str
    deciding: tuple[tuple[str, str], ...] = ()


def parse_address(text: str, *, project: Path) -> Address:
    """Parse `local-dir:PATH`, `hf-hub:ORG/NAME@COMMIT`, `hf-hub:ORG/NAME@fetched` or `ARCHITECTURE/TAG`.

    Parameters
    ----------
    project : Path
        Where relative paths start; `~` is the home folder.

    Raises
    ------
    CheckpointError
        If it is none of these, or a hub address names no commit: branches and tags move.
    """
    if text.startswith("local-dir:") and (path := text.removeprefix("local-dir:").strip()):
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


def locate(address: Address, *, fetched: Path, encoder: str, family: str | None = None) -> CheckpointFiles:
    """Return the files of a checkpoint that is on this disk, with their digests.

    Parameters
    ----------
    fetched : Path
        Folder in which `plumbline fetch` keeps what it got.
    encoder : str
        Id in the audit file, for the message.
    family : str, optional
        Name in `FAMILIES`; by default found from the files. `open_clip_config.json` means open_clip, and wins where
        both libraries' configurations are there; else the `model_type` of `config.json` decides.

    Raises
    ------
    CheckpointError
        If it is not on disk, of no known family or of another than `family`, has no safetensors weights or several,
        the library would load another file than the one that is digested, or the configuration asks for parts that
        are not on disk or for code of its own.
    """
    folder = address.folder_with(
        (OPEN_CLIP_CONFIG, TRANSFORMERS_CONFIG),
        fetched=fetched,
        what=f"the checkpoint of encoder `{encoder}`",
        fetch=f"`plumbline fetch {encoder}`",
    )
    found, (weights, files) = checkpoint_contents(folder, encoder=encoder, family=family)
    shas = {name: digest_file(path) for name, path in files.items()}
    deciding = tuple(sorted(shas.items()))
    return CheckpointFiles(folder, weights, shas[weights.name], digest_json(shas), found.name, deciding)


class CheckpointContents(NamedTuple):
    """The family of a checkpoint folder, and what decides in it."""

    family: Family
    contents: FolderContents


def checkpoint_contents(folder: Path, *, encoder: str, family: str | None = None) -> CheckpointContents:
    """Return the family of a checkpoint folder and the files that decide what it computes; no weights are read.

    Raises
    ------
    CheckpointError
        As `locate` does.
    """
    found = _family(folder, encoder, family)
    contents = open_clip_contents if found.name == "open_clip" else transformers_contents
    return CheckpointContents(found, contents(folder, encoder))


def _family(folder: Path, encoder: str, wanted: str | None) -> Family:
    """Return the family of a folder, or the wanted one if the folder can be read as it."""
    if wanted is not None:
        find_family(wanted)
    is_open_clip = (folder / OPEN_CLIP_CONFIG).is_file()
    if wanted == "open_clip" and not is_open_clip:
        raise _not_of(folder, encoder, wanted, f"no {OPEN_CLIP_CONFIG}", OPEN_CLIP_CONFIG)
    if is_open_clip and wanted in (None, "open_clip"):
        return FAMILIES["open_clip"]
    config = folder / TRANSFORMERS_CONFIG
    if not config.is_file():
        raise _not_of(folder, encoder, str(wanted), f"no {TRANSFORMERS_CONFIG}", TRANSFORMERS_CONFIG)
    model_type = str(read_configuration(config).get("model_type"))
    if wanted is not None:
        if model_type not in FAMILIES[wanted].reads:
            raise _not_of(
                folder, encoder, wanted, f"model_type: {model_type}", " or ".join(FAMILIES[wanted].reads)
            )
        return FAMILIES[wanted]
    found = family_of_model_type(model_type)
    if found is None:
        known = [model_type for family in FAMILIES.values() for model_type in family.model_types]
        raise CheckpointError(
            f"the checkpoint of encoder `{encoder}` is of no family that can be audited",
            where=config,
            found=f"model_type: {model_type}",
            expected=f"one of {', '.join(known)}, or a folder of open_clip with {OPEN_CLIP_CONFIG}",
        )
    return found


def _not_of(folder: Path, encoder: str, wanted: str, found: str, expected: str) -> CheckpointError:
    return CheckpointError(
        f"the checkpoint of encoder `{encoder}` is not of the family {FAMILIES[wanted].title}",
        where=folder,
        found=found,
        expected=expected,
        hint="correct `family` in the audit file, or leave it out: it is found from the files",
    )


def _folder(path: str, project: Path) -> Path:
    try:
        return (project / Path(path).expanduser()).resolve()
    except RuntimeError as error:
        raise CheckpointError("this user has no home folder", found=path, expected="a path") from error
