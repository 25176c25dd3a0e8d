"""Getting checkpoints from the hub: an explicit step of its own, at a pinned revision, safetensors only."""

import json
from pathlib import Path
from typing import Any

from upath import UPath

from plumbline.encoders.addresses import CONFIG, Address, locate, parse_address
from plumbline.errors import CheckpointError
from plumbline.storage.atomic import commit_bytes
from plumbline.torchvision_operators import declare_missing_operators
from resources.places import PROJECT, Places

_WANTED = ["open_clip*.safetensors", "*.json", "*.txt", "*.model"]


def fetch_checkpoint(places: Places, encoder: str, *, hub: Any = None) -> Path:
    """Fetch the checkpoint of an encoder of the audit file into `.plumbline/checkpoints`.

    Parameters
    ----------
    hub : object, optional
        With `snapshot_download` and `model_info` as huggingface_hub has them; for tests.

    Returns
    -------
    Path
        The folder, which loads by `local-dir:`. `fetched.json` in it records repository, commit and digests.

    Raises
    ------
    CheckpointError
        If the address is a local folder, the hub cannot be reached, or what it gave cannot be audited.
    """
    entry = places.audit.encoders.get(encoder)
    if entry is None:
        raise CheckpointError("the audit file has no such encoder", where=places.audit_path, found=encoder)
    address = parse_address(entry.address, project=PROJECT)
    if address.folder is not None:
        raise CheckpointError("a local folder needs no fetching", found=entry.address)
    if hub is None:
        import huggingface_hub as hub
    from huggingface_hub import errors

    folder = places.fetched / address.slug
    repository, config = _source(address)
    try:
        commit = hub.model_info(repository, revision=address.revision).sha
        hub.snapshot_download(repository, revision=commit, local_dir=folder, allow_patterns=_WANTED)
    # A failed connection is the HTTP client's own error, one of xet's transfers a RuntimeError.
    except (OSError, ValueError, RuntimeError, errors.HTTPError, errors.RevisionResolutionError) as error:
        raise CheckpointError(
            f"the hub did not give the checkpoint of `{encoder}`",
            where=f"{repository}@{address.revision or 'newest commit'}",
            found=f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}",
            hint="check the network and the address; `plumbline fetch` can be repeated, it resumes",
        ) from error
    _require_audited_files(folder, encoder, repository, written=config is not None)
    if config is not None:
        commit_bytes(UPath(folder / CONFIG), json.dumps(config, indent=2).encode())
    files = locate(address, fetched=places.fetched, encoder=encoder)
    note = {
        "repository": repository,
        "commit": commit,
        "sha256": {files.weights.name: files.weights_sha256},
    }
    commit_bytes(UPath(folder / "fetched.json"), json.dumps(note, indent=2).encode())
    return folder


def _require_audited_files(folder: Path, encoder: str, repository: str, *, written: bool) -> None:
    found = sorted(p.name for p in folder.iterdir() if p.is_file()) if folder.is_dir() else []
    if not any(name.endswith(".safetensors") for name in found):
        raise CheckpointError(
            f"the repository of `{encoder}` has no safetensors weights, and no other format is opened",
            where=repository,
            found=", ".join(found) or "none of " + ", ".join(_WANTED),
        )
    if not written and CONFIG not in found:
        raise CheckpointError(
            f"the repository of `{encoder}` is no open_clip checkpoint",
            where=repository,
            found=", ".join(found),
            expected=CONFIG,
        )


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
