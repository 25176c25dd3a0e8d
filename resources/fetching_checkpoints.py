"""Getting checkpoints from the hub: an explicit step of its own, at a pinned revision, ending in safetensors."""

import json
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Literal, NamedTuple

from upath import UPath

from plumbline.checkpoints.addresses import OPEN_CLIP_CONFIG, TRANSFORMERS_CONFIG, Address, parse_address
from plumbline.checkpoints.conversion import SUFFIXES, convert_to_safetensors
from plumbline.checkpoints.folders import NOTES
from plumbline.checkpoints.operators import declare_missing_operators
from plumbline.commands.places import here
from plumbline.digests import digest_file
from plumbline.encoders.folders import locate
from plumbline.errors import CheckpointError
from plumbline.generators.folders import generator_contents
from plumbline.scorers.classifier import classifier_files
from plumbline.storage.files import commit_bytes
from resources.fetched_note import CLIENT_NOTES, NOTE, file_digests, is_whole, read_note, write_note
from resources.fetching_aside import built_aside, settle
from resources.hub import asking_the_hub, require_commit, writing
from resources.workspace import Workspace


@dataclass(frozen=True)
class Library:
    """What a library's checkpoint repository holds that an audit needs.

    Attributes
    ----------
    settings, weights : tuple of str
        Patterns of file names that are fetched; of the weights, any one will do.
    pickled : tuple of str
        Patterns of weights to convert where there are no others, best first.
    converted : str
        Name of the file that comes of it.
    """

    settings: tuple[str, ...]
    weights: tuple[str, ...]
    pickled: tuple[str, ...]
    converted: str

    def weights_in(self, names: Iterable[str]) -> list[str]:
        """Return the weights among the names of a folder's or a repository's files."""
        return _at_the_top(names, self.weights)

    def pickled_in(self, names: Iterable[str]) -> list[str]:
        """Return the weights that can be converted, best first."""
        return _at_the_top(names, self.pickled)


_OPEN_CLIP = Library(
    settings=("*.json", "*.txt", "*.model"),
    weights=("open_clip*.safetensors",),
    pickled=tuple(f"open_clip*{suffix}" for suffix in SUFFIXES),
    converted="open_clip_model.safetensors",
)
_TRANSFORMERS = Library(
    settings=(
        TRANSFORMERS_CONFIG, "preprocessor_config.json", "processor_config.json", "tokenizer.json",
        "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json", "vocab.txt",
        "merges.txt", "*.model",
    ),
    weights=("model.safetensors",),
    pickled=("pytorch_model.bin",),
    converted="model.safetensors",
)  # fmt: skip

_GENERATIVE = Library(
    settings=(
        *_TRANSFORMERS.settings, "generation_config.json", "chat_template.jinja", "chat_template.json",
        "model.safetensors.index.json", "qformer_tokenizer/*.json", "qformer_tokenizer/*.txt",
    ),
    weights=("model.safetensors", "model-*-of-*.safetensors"),
    pickled=("pytorch_model.bin",),
    converted="model.safetensors",
)  # fmt: skip


def _at_the_top(names: Iterable[str], patterns: Sequence[str]) -> list[str]:
    top = [name for name in names if "/" not in name]
    return [name for pattern in patterns for name in top if fnmatch(name, pattern)]


def library_of(
    names: Sequence[str], family: str | None, encoder: str, repository: str, *, written: bool, generative: bool = False
) -> Library:
    """Choose as `locate` will: open_clip where its configuration is there and no other family is asked for."""
    if generative and TRANSFORMERS_CONFIG in names:
        return _GENERATIVE
    if written or (OPEN_CLIP_CONFIG in names and family in (None, "open_clip")):
        return _OPEN_CLIP
    if TRANSFORMERS_CONFIG in names and family != "open_clip":
        return _TRANSFORMERS
    raise CheckpointError(
        f"the repository of `{encoder}` is no checkpoint of open_clip or transformers",
        where=repository,
        found=", ".join(names) or "no file",
        expected=OPEN_CLIP_CONFIG if family == "open_clip" else f"{OPEN_CLIP_CONFIG} or {TRANSFORMERS_CONFIG}",
    )


class Source(NamedTuple):
    """Where a checkpoint is on the hub.

    Attributes
    ----------
    repository : str
    config : dict or None
        For `ARCHITECTURE/TAG`: the open_clip configuration to write beside the weights.
    """

    repository: str
    config: dict[str, Any] | None


def source_of(address: Address) -> Source:
    """Return where an address leads on the hub; raises CheckpointError where open_clip has no such checkpoint."""
    if address.repository is not None:
        return Source(address.repository, None)
    declare_missing_operators()
    import open_clip
    from open_clip.pretrained import get_pretrained_cfg

    architecture, tag = str(address.architecture), str(address.tag)
    model, pretrained = open_clip.get_model_config(architecture), get_pretrained_cfg(architecture, tag)
    if model is None or not pretrained.get("hf_hub"):
        known = open_clip.list_pretrained_tags_by_model(architecture)
        raise CheckpointError(
            "open_clip has no such pretrained checkpoint on the hub",
            found=address.text,
            expected=f"{architecture} with one of {', '.join(known)}" if known else "an architecture of open_clip",
        )
    if bool(pretrained.get("quick_gelu", False)) != bool(model.get("quick_gelu", False)):
        raise CheckpointError(
            "these weights were trained with another activation than this architecture has",
            found=address.text,
            expected=f"{architecture.removesuffix('-quickgelu')}"
            + ("-quickgelu" if pretrained.get("quick_gelu") else "")
            + f"/{tag}",
        )
    preprocess = {k: pretrained[k] for k in ("mean", "std", "interpolation", "resize_mode") if pretrained.get(k)}
    config = {"model_cfg": model, "preprocess_cfg": preprocess}
    return Source(pretrained["hf_hub"].rsplit("/", 1)[0], config)


Kind = Literal["encoder", "lvlm", "scorer"]


@dataclass(frozen=True)
class _Wanted:
    """A checkpoint of the audit file that can be fetched.

    Attributes
    ----------
    id, kind, family
        In the audit file, which part of it, and the family that it names.
    address : Address
        Without a folder.
    """

    id: str
    kind: Kind
    address: Address
    family: str | None

    def require_usable(self, folder: Path) -> dict[str, str]:
        """Read a folder as an audit will, wherever it lies now; return the sha256 of weights that were digested."""
        if self.kind == "lvlm":
            generator_contents(folder, self.id)
            return {}
        if self.kind == "scorer":
            classifier = classifier_files(f"local-dir:{folder}", project=here(), fetched=folder)
            return {classifier.weights[0].name: classifier.weights_sha256}
        in_folder = Address(self.address.text, folder=folder)
        files = locate(in_folder, fetched=folder, encoder=self.id, family=self.family)
        return {files.weights[0].name: files.weights_sha256}


@dataclass(frozen=True)
class _Snapshot:
    """One commit of a checkpoint's repository: the names of its files, and what of them an audit needs."""

    id: str
    repository: str
    commit: str
    names: tuple[str, ...]
    library: Library

    @property
    def pickled(self) -> str:
        """Return the weights to convert."""
        convertible = self.library.pickled_in(self.names)
        if not convertible:
            raise CheckpointError(
                f"the repository of `{self.id}` has no safetensors weights, and none that can be converted",
                where=self.repository,
                found=", ".join(self.names) or "no file",
                expected=f"{' or '.join(self.library.weights)}; or one file {' or '.join(self.library.pickled)}",
            )
        return convertible[0]

    def download(self, hub: Any, folder: Path, patterns: list[str]) -> None:
        with asking_the_hub(CheckpointError, self.id, f"{self.repository}@{self.commit}"):
            # What a repository calls so is no note of ours.
            hub.snapshot_download(
                self.repository,
                revision=self.commit,
                local_dir=folder,
                allow_patterns=patterns,
                ignore_patterns=list(NOTES),
            )
        require_commit(CheckpointError, self.id, self.repository, self.commit, folder)


def fetch_checkpoint(
    workspace: Workspace, encoder: str, *, kind: Kind = "encoder", newest: bool = False, hub: Any = None
) -> Path:
    """Fetch the checkpoint of an encoder, generative model or scorer of the audit file into `.plumbline/checkpoints`.

    An address without a commit (`ARCHITECTURE/TAG`, `hf-hub:ORG/NAME@fetched`) gets the newest one at its first fetch,
    and the same at every later one: what was audited does not change by fetching again. What is there whole is not
    fetched again.

    Weights that exist only as a pickle are converted to safetensors in a process of its own, once; the pickle is
    kept nowhere.

    Parameters
    ----------
    encoder : str
        Id in the audit file.
    kind : {"encoder", "lvlm", "scorer"}
        Which part of the audit file it is in.
    newest : bool
        Get the newest commit after all; it takes the place of the earlier one when it is known to be usable.
    hub : object, optional
        With `snapshot_download` and `model_info` as huggingface_hub has them; for tests.

    Returns
    -------
    Path
        The folder, which loads by `local-dir:`. `fetched.json` in it records repository, commit, digests and, where
        weights were converted, from what and to what.

    Raises
    ------
    CheckpointError
        If the address is a local folder, or names its commit and `newest` is asked for, the hub cannot be reached,
        or what it gave cannot be audited.
    """
    wanted = _wanted(workspace, encoder, newest, kind)
    if hub is None:
        import huggingface_hub as hub

    folder, source = workspace.fetched / wanted.address.slug, source_of(wanted.address)
    with writing(CheckpointError, encoder, folder):
        settle(folder)
        revision = wanted.address.revision or (None if newest else _commit_of(folder, source.repository))
        snapshot = _snapshot(hub, wanted, source, revision)
        whole = is_whole(folder, source.repository, snapshot.commit)
        if whole and snapshot.library.weights_in(path.name for path in folder.iterdir()):
            wanted.require_usable(folder)
            return folder
        with built_aside(folder, snapshot.commit) as built:
            if whole:
                # For an encoder of the other library: both then load from this folder.
                shutil.copytree(folder, built, dirs_exist_ok=True)
            converted = _fill(built, snapshot, source.config, hub)
            known = wanted.require_usable(built)
            _write_note(built, snapshot, known, converted)
    return folder


def pinned_commit(workspace: Workspace, encoder: str, kind: Kind = "encoder") -> str | None:
    """Return the commit that later fetches keep to where the address names none; None where it names one."""
    wanted = _wanted(workspace, encoder, newest=False, kind=kind)
    if wanted.address.revision is not None:
        return None
    return _commit_of(workspace.fetched / wanted.address.slug, source_of(wanted.address).repository)


def _commit_of(folder: Path, repository: str) -> str | None:
    """Return the commit that an earlier fetch ended with, if it was of this repository."""
    note = read_note(folder / NOTE)
    commit = note.get("commit")
    return commit if note.get("repository") == repository and isinstance(commit, str) else None


def _wanted(workspace: Workspace, encoder: str, newest: bool, kind: Kind) -> _Wanted:
    """Return a checkpoint of the audit file; refuse one that cannot be fetched."""
    audit = workspace.audit
    entries: dict[str, Mapping[str, object]] = {
        "encoder": audit.encoders, "lvlm": audit.lvlms, "scorer": audit.scorers,
    }  # fmt: skip
    entry = entries[kind].get(encoder)
    if entry is None:
        raise CheckpointError(f"the audit file has no such {kind}", where=workspace.audit_path, found=encoder)
    text = getattr(entry, "loaded_address", getattr(entry, "address", None))
    if text is None:
        raise CheckpointError(f"this {kind} has no checkpoint to fetch", found=encoder)
    address = parse_address(text, project=here())
    if address.folder is not None:
        raise CheckpointError("a local folder needs no fetching", found=text)
    if newest and address.revision is not None:
        raise CheckpointError(
            f"the address of `{encoder}` names its commit, and no other is fetched",
            where=workspace.audit_path,
            found=text,
            hint="write the newer commit into the audit file",
        )
    return _Wanted(encoder, kind, address, getattr(entry, "family", None))


_COMMIT = re.compile("[0-9a-f]{40}")


def _snapshot(hub: Any, wanted: _Wanted, source: Source, revision: str | None) -> _Snapshot:
    with asking_the_hub(CheckpointError, wanted.id, f"{source.repository}@{revision or 'newest commit'}"):
        about = hub.model_info(source.repository, revision=revision)
    if revision is not None and _COMMIT.fullmatch(revision) and about.sha != revision:
        raise CheckpointError(
            f"the hub has another commit of `{wanted.id}` than was asked for",
            where=source.repository,
            found=about.sha,
            expected=revision,
            hint="nothing was fetched: a hub or mirror that answers so gives other weights than were audited",
        )
    if not _COMMIT.fullmatch(str(about.sha)):
        raise CheckpointError(
            f"the hub does not say which commit of `{wanted.id}` it has",
            where=source.repository,
            found=repr(about.sha),
            expected="40 hexadecimal digits",
            hint="nothing was fetched: later fetches could not keep to it",
        )
    names = tuple(sorted(sibling.rfilename for sibling in about.siblings or ()))
    library = library_of(
        names,
        wanted.family,
        wanted.id,
        source.repository,
        written=source.config is not None,
        generative=wanted.kind == "lvlm",
    )
    return _Snapshot(wanted.id, source.repository, about.sha, names, library)


def _fill(made: Path, snapshot: _Snapshot, config: dict[str, Any] | None, hub: Any) -> dict[str, Any] | None:
    """Download what the snapshot has for an audit; return the record of the conversion, if weights needed one."""
    library = snapshot.library
    pickled = None if library.weights_in(snapshot.names) else snapshot.pickled
    snapshot.download(hub, made, [*library.settings, *library.weights])
    if config is not None:
        commit_bytes(UPath(made / OPEN_CLIP_CONFIG), json.dumps(config, indent=2).encode())
    earlier = _converted(made)
    return earlier if pickled is None or earlier else _convert(made, snapshot, pickled, hub)


def _converted(made: Path) -> dict[str, Any] | None:
    """Return the record of a conversion of this commit if its result is still there."""
    try:
        converted: dict[str, Any] = read_note(made / NOTE)["converted"]
        to = converted["to"]
        inside = Path(to["name"]).name == to["name"]
        return converted if inside and digest_file(made / to["name"]) == to["sha256"] else None
    except (OSError, KeyError, TypeError):
        return None


def _convert(made: Path, snapshot: _Snapshot, pickled: str, hub: Any) -> dict[str, Any]:
    # Where nothing is loaded from, and nothing stays; kept over an interrupted download, never over a conversion.
    aside = made / CLIENT_NOTES / "unconverted"
    snapshot.download(hub, aside, [pickled])
    try:
        return convert_to_safetensors(aside / pickled, made / snapshot.library.converted)
    finally:
        shutil.rmtree(aside)


def _write_note(made: Path, snapshot: _Snapshot, known: dict[str, str], converted: dict[str, Any] | None) -> None:
    write_note(
        made / NOTE,
        repository=snapshot.repository,
        commit=snapshot.commit,
        sha256=file_digests(made, known=known),
        **({"converted": converted} if converted else {}),
    )
