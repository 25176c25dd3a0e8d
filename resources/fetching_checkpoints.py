"""Getting checkpoints from the hub: an explicit step of its own, at a pinned revision, ending in safetensors."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from upath import UPath

from plumbline.bin_conversion import SUFFIXES, convert_to_safetensors
from plumbline.digests import digest_file
from plumbline.encoders.addresses import Address, locate, parse_address
from plumbline.encoders.open_clip_folder import CONFIG
from plumbline.encoders.transformers_folder import CONFIG as TRANSFORMERS_CONFIG
from plumbline.errors import CheckpointError
from plumbline.storage.atomic import commit_bytes
from plumbline.torchvision_operators import declare_missing_operators
from resources.fetched_note import NOTE, file_digests, read_note, write_note
from resources.hub import asking_the_hub
from resources.places import PROJECT, Places


@dataclass(frozen=True)
class _Library:
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


_OPEN_CLIP = _Library(
    settings=("*.json", "*.txt", "*.model"),
    weights=("open_clip*.safetensors",),
    pickled=tuple(f"open_clip*{suffix}" for suffix in SUFFIXES),
    converted="open_clip_model.safetensors",
)
_TRANSFORMERS = _Library(
    settings=(
        TRANSFORMERS_CONFIG, "preprocessor_config.json", "processor_config.json", "tokenizer.json",
        "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json", "vocab.txt",
        "merges.txt", "*.model",
    ),
    weights=("model.safetensors",),
    pickled=("pytorch_model.bin",),
    converted="model.safetensors",
)  # fmt: skip


def fetch_checkpoint(places: Places, encoder: str, *, newest: bool = False, hub: Any = None) -> Path:
    """Fetch the checkpoint of an encoder of the audit file into `.plumbline/checkpoints`.

    An address without a commit (`ARCHITECTURE/TAG`) gets the newest one at its first fetch, and the same at every
    later one: what was audited does not change by fetching again.

    Weights that exist only as a pickle are converted to safetensors in a process of its own, once; the pickle is
    kept nowhere.

    Parameters
    ----------
    newest : bool
        Get the newest commit after all; it takes the place of the earlier one.
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
    address, family = _wanted(places, encoder, newest)
    if hub is None:
        import huggingface_hub as hub

    folder = places.fetched / address.slug
    repository, config = _source(address)
    earlier = _commit_of(folder, repository)
    revision = address.revision or (None if newest else earlier)
    with asking_the_hub(CheckpointError, encoder, f"{repository}@{revision or 'newest commit'}"):
        about = hub.model_info(repository, revision=revision)
        names = sorted(sibling.rfilename for sibling in about.siblings or ())
        library = _library(names, family, encoder, repository, written=config is not None)
        weights = _matching(names, library.weights)
        wanted = [*library.settings, *library.weights]
        # Two commits in one folder would be a checkpoint that nobody published; and until the newer one is whole, the
        # earlier one stays.
        made = folder if earlier in (None, about.sha) else folder.with_name(f".{folder.name}.{about.sha}")
        hub.snapshot_download(repository, revision=about.sha, local_dir=made, allow_patterns=wanted)
    converted = None
    if not weights:
        pickled = _pickled(names, library, encoder, repository)
        converted = _converted(made, about.sha) or _convert(
            hub, repository, about.sha, pickled, made / library.converted, encoder
        )
    if config is not None:
        commit_bytes(UPath(made / CONFIG), json.dumps(config, indent=2).encode())
    if made != folder:
        shutil.rmtree(folder)
        made.rename(folder)
    files = locate(address, fetched=places.fetched, encoder=encoder, family=family)
    write_note(
        folder / NOTE,
        repository=repository,
        commit=about.sha,
        sha256=file_digests(folder, known={files.weights.name: files.weights_sha256}),
        **({"converted": converted} if converted else {}),
    )
    return folder


def pinned_commit(places: Places, encoder: str) -> str | None:
    """Return the commit that later fetches keep to where the address names none; None where it names one."""
    address, _ = _wanted(places, encoder, newest=False)
    if address.revision is not None:
        return None
    return _commit_of(places.fetched / address.slug, _source(address)[0])


def _commit_of(folder: Path, repository: str) -> str | None:
    """Return the commit that an earlier fetch ended with, if it was of this repository."""
    note = read_note(folder / NOTE)
    commit = note.get("commit")
    return commit if note.get("repository") == repository and isinstance(commit, str) else None


def _wanted(places: Places, encoder: str, newest: bool) -> tuple[Address, str | None]:
    """Return the address of an encoder that can be fetched, and the family that the audit file names."""
    entry = places.audit.encoders.get(encoder)
    if entry is None:
        raise CheckpointError("the audit file has no such encoder", where=places.audit_path, found=encoder)
    address = parse_address(entry.address, project=PROJECT)
    if address.folder is not None:
        raise CheckpointError("a local folder needs no fetching", found=entry.address)
    if newest and address.revision is not None:
        raise CheckpointError(
            f"the address of `{encoder}` names its commit, and no other is fetched",
            where=places.audit_path,
            found=entry.address,
            hint="write the newer commit into the audit file",
        )
    return address, entry.family


def _library(
    names: Sequence[str], family: str | None, encoder: str, repository: str, *, written: bool
) -> _Library:
    """Choose as `locate` will: open_clip where its configuration is there and no other family is asked for."""
    if written or (CONFIG in names and family in (None, "open_clip")):
        return _OPEN_CLIP
    if TRANSFORMERS_CONFIG in names and family != "open_clip":
        return _TRANSFORMERS
    raise CheckpointError(
        f"the repository of `{encoder}` is no checkpoint of open_clip or transformers",
        where=repository,
        found=", ".join(names) or "no file",
        expected=CONFIG if family == "open_clip" else f"{CONFIG} or {TRANSFORMERS_CONFIG}",
    )


def _matching(names: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """Return the names at the top of the repository that match, in the order of the patterns."""
    return [name for pattern in patterns for name in names if "/" not in name and fnmatch(name, pattern)]


def _pickled(names: Sequence[str], library: _Library, encoder: str, repository: str) -> str:
    found = _matching(names, library.pickled)
    if not found:
        raise CheckpointError(
            f"the repository of `{encoder}` has no safetensors weights, and none that can be converted",
            where=repository,
            found=", ".join(names) or "no file",
            expected=f"{' or '.join(library.weights)}; or one file {' or '.join(library.pickled)}",
        )
    return found[0]


def _converted(folder: Path, commit: str) -> dict[str, Any] | None:
    """Return the record of an earlier conversion if its result is still there."""
    note = read_note(folder / NOTE)
    try:
        to = note["converted"]["to"]
        sound = note["commit"] == commit and digest_file(folder / to["name"]) == to["sha256"]
        return note["converted"] if sound else None
    except (OSError, KeyError, TypeError):
        return None


def _convert(
    hub: Any, repository: str, commit: str, pickled: str, target: Path, encoder: str
) -> dict[str, Any]:
    # Outside the folder that is loaded; kept over an interrupted download, never over a conversion.
    aside = target.parent.with_name(f".{target.parent.name}.unconverted")
    with asking_the_hub(CheckpointError, encoder, f"{repository}@{commit}"):
        hub.snapshot_download(repository, revision=commit, local_dir=aside, allow_patterns=[pickled])
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        return convert_to_safetensors(aside / pickled, target)
    finally:
        shutil.rmtree(aside)


def _source(address: Address) -> tuple[str, dict[str, Any] | None]:
    """Return the repository, and for `ARCHITECTURE/TAG` the open_clip configuration to write beside the weights."""
    if address.repository is not None:
        return address.repository, None
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
            expected=f"{architecture} with one of {', '.join(known)}"
            if known
            else "an architecture of open_clip",
        )
    if bool(pretrained.get("quick_gelu", False)) != bool(model.get("quick_gelu", False)):
        raise CheckpointError(
            "these weights were trained with another activation than this architecture has",
            found=address.text,
            expected=f"{architecture.removesuffix('-quickgelu')}"
            + ("-quickgelu" if pretrained.get("quick_gelu") else "")
            + f"/{tag}",
        )
    preprocess = {
        k: pretrained[k] for k in ("mean", "std", "interpolation", "resize_mode") if pretrained.get(k)
    }
    return pretrained["hf_hub"].rsplit("/", 1)[0], {"model_cfg": model, "preprocess_cfg": preprocess}
