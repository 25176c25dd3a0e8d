"""Checkpoints of generative models: their families, files, identity, and how one is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, cast

from plumbline.checkpoints.addresses import Address, parse_address
from plumbline.checkpoints.device import Placement
from plumbline.checkpoints.folders import (
    IMAGE_PROCESSOR,
    TRANSFORMERS_ATTENTION,
    TRANSFORMERS_CONFIG,
    TRANSFORMERS_WEIGHTS,
    model_files,
    no_safetensors,
    read_configuration,
    refuse_adapter,
    refuse_code,
    require_files,
)
from plumbline.digests import digest_file, digest_json
from plumbline.errors import CheckpointError
from plumbline.generators.backend import Backend
from plumbline.imports import import_class


@dataclass(frozen=True)
class GeneratorFamily:
    """Checkpoints that one adapter loads.

    Attributes
    ----------
    name : str
    title : str
        For people.
    sees : bool
        Whether it takes images.
    model_types : tuple of str
        Values of `model_type` in `config.json` that mean this family.
    text_models : tuple of str
        Values of `model_type` of the language model inside; its documented prompt format is known for these.
    model_class : str
        Class of transformers that holds the model.
    adapter : str
        `module:Class` below `plumbline.generators`, called with (files, placement).
    version : int
        Of the adapter, as part of every backend's identity. Raise it with any change of Plumbline's own code by which
        the same files give other texts (prompt format, tokens, pixels, how tokens are drawn): answers of the earlier
        code are then left aside. Versions of libraries are seen by themselves.
    """

    name: str
    title: str
    sees: bool
    model_types: tuple[str, ...]
    text_models: tuple[str, ...]
    model_class: str
    adapter: str
    version: int


GENERATOR_FAMILIES: dict[str, GeneratorFamily] = {
    family.name: family
    for family in (
        GeneratorFamily(
            "llava", "LLaVA", True, ("llava",), ("llama", "mistral", "gemma"),
            "LlavaForConditionalGeneration", "llava:LlavaBackend", 1,
        ),
        GeneratorFamily(
            "instructblip", "InstructBLIP", True, ("instructblip",), ("llama",),
            "InstructBlipForConditionalGeneration", "instructblip:InstructBlipBackend", 1,
        ),
        GeneratorFamily(
            "language_model", "Language model", False, ("llama", "mistral", "gemma"), ("llama", "mistral", "gemma"),
            "AutoModelForCausalLM", "language_model:LanguageModelBackend", 1,
        ),
    )
}  # fmt: skip
"""LLaVA-1.5, BakLLaVA (Mistral inside) and LLaVA-Gemma are one architecture of transformers, and so one family."""


def family_of_model_type(model_type: str) -> GeneratorFamily | None:
    """Return the family that a `model_type` of `config.json` means, or None."""
    return next((family for family in GENERATOR_FAMILIES.values() if model_type in family.model_types), None)


# --- A folder of a generative model: safetensors whole or in parts, tokenizers, a chat template, no code
# of its own.

INDEX = "model.safetensors.index.json"
CHAT_TEMPLATE = "chat_template.jinja"
QFORMER_TOKENIZER = "qformer_tokenizer"

_TOKENIZER = (("tokenizer.json",), ("tokenizer.model",), ("vocab.txt",), ("vocab.json", "merges.txt"))


class GeneratorContents(NamedTuple):
    """What a folder holds.

    Attributes
    ----------
    family : GeneratorFamily
    text_model : str
        `model_type` of the language model inside.
    weights : tuple of Path
        The safetensors files that transformers loads, by name.
    deciding : dict of name to Path
        Every file that decides what the model answers, weights included.
    """

    family: GeneratorFamily
    text_model: str
    weights: tuple[Path, ...]
    deciding: dict[str, Path]


def generator_contents(folder: Path, name: str) -> GeneratorContents:
    """Return what decides a generative model.

    Parameters
    ----------
    name : str
        Id in the audit file, for messages.

    Raises
    ------
    CheckpointError
        If it is of no known family, weights, image processor or tokenizer are absent, or a configuration asks for
        code, weights, an attention or a quantisation of its own.
    """
    family, text_model = _family(folder / TRANSFORMERS_CONFIG, name)
    folders = [folder]
    if family.name == "instructblip":
        folders.append(folder / QFORMER_TOKENIZER)
    for each in folders:
        # Which attention computes is said when the model is loaded, whatever the configuration names.
        refuse_code(each, attention=TRANSFORMERS_ATTENTION)
    weights = _weights(folder, name)
    lacking = f"the checkpoint of model `{name}` has no files of"
    if family.sees:
        require_files(folder, IMAGE_PROCESSOR, lacking=f"{lacking} an image processor")
    for each in folders:
        require_files(each, _TOKENIZER, lacking=f"{lacking} a tokenizer")
    deciding = [*weights, *(path for each in folders for path in model_files(each))]
    if (template := folder / CHAT_TEMPLATE).is_file():
        deciding.append(template)
    named = {path.relative_to(folder).as_posix(): path for path in deciding}
    return GeneratorContents(family, text_model, weights, named)


def _family(config: Path, name: str) -> tuple[GeneratorFamily, str]:
    """Return the family and the language model inside, as `config.json` says them."""
    content = read_configuration(config)
    model_type = str(content.get("model_type"))
    family = family_of_model_type(model_type)
    if family is None:
        known = [each for other in GENERATOR_FAMILIES.values() for each in other.model_types]
        raise CheckpointError(
            f"the checkpoint of model `{name}` is of no family that can be asked here",
            where=config,
            found=f"model_type: {model_type}",
            expected=f"one of {', '.join(known)}",
            hint="serve it behind an OpenAI-compatible address, and give that address in the audit file",
        )
    inside = content.get("text_config") if family.sees else content
    # transformers' own default of both families that see, where the configuration leaves it out.
    text_model = str((inside if isinstance(inside, dict) else {}).get("model_type", "llama"))
    if text_model not in family.text_models:
        raise CheckpointError(
            f"the language model of `{name}` is of no kind that {family.title} is known to have",
            where=config,
            found=f"text_config.model_type: {text_model}",
            expected=" or ".join(family.text_models),
        )
    return family, text_model


def _weights(folder: Path, name: str) -> tuple[Path, ...]:
    """Return the files that transformers loads: the one file where there is one, else the parts of the index."""
    refuse_adapter(folder)
    if (folder / TRANSFORMERS_WEIGHTS).is_file():
        return (folder / TRANSFORMERS_WEIGHTS,)
    if not (folder / INDEX).is_file():
        found = sorted(p.name for p in folder.glob("*.safetensors"))
        if not found:
            raise no_safetensors(folder, name, expected=f"{TRANSFORMERS_WEIGHTS}, or its parts with {INDEX}")
        raise CheckpointError(
            f"the checkpoint of model `{name}` has weights, but not under the name that transformers loads",
            where=folder,
            found=", ".join(found),
            expected=f"{TRANSFORMERS_WEIGHTS}, or its parts with {INDEX}",
        )
    return _parts(folder, name)


def _parts(folder: Path, name: str) -> tuple[Path, ...]:
    listed = read_configuration(folder / INDEX).get("weight_map")
    parts = sorted({str(part) for part in listed.values()}) if isinstance(listed, dict) else []
    # Parts lie in this folder: an index that points elsewhere would load what nobody digested.
    odd = [part for part in parts if Path(part).name != part or not part.endswith(".safetensors")]
    if odd or not parts:
        raise CheckpointError(
            f"the index of the weights of model `{name}` does not name safetensors files of its folder",
            where=folder / INDEX,
            found=", ".join(odd[:5]) or "no weight_map",
            expected="names such as model-00001-of-00003.safetensors",
        )
    absent = [part for part in parts if not (folder / part).is_file()]
    if absent:
        raise CheckpointError(
            f"{len(absent)} of {len(parts)} parts of the weights of model `{name}` are not on this disk",
            where=folder,
            found=", ".join(p.name for p in sorted(folder.glob("*.safetensors"))) or "none",
            expected=", ".join(parts),
            hint=f"run `plumbline fetch {name}` again",
        )
    return tuple(folder / part for part in parts)


# --- From an address of the audit file to a generative model on a device.

_LARGE = 1 << 26
_DEFAULTS = "generation_config.json"
_NO_DECODING = ("_from_model_config", "transformers_version", "max_length", "max_new_tokens", "use_cache")


@dataclass(frozen=True)
class GeneratorFiles:
    """A generative model on disk.

    Attributes
    ----------
    name : str
        Id in the audit file.
    folder : Path
    weights : tuple of Path
        The safetensors files that are loaded; several of a large model.
    weights_sha256 : str
        Of the one weights file, as `sha256sum` prints it; of several, the digest of their names and sha256.
    digest : str
        Of every file that decides what the model answers: weights, configuration, tokenizers, chat template.
    family : str
        Name in `plumbline.generators.folders.GENERATOR_FAMILIES`.
    text_model : str
        `model_type` of the language model inside, such as `llama`.
    sees : bool
        Whether it takes images.
    own_decoding : dict
        What the checkpoint's `generation_config.json` says of how to draw tokens. The audit draws as its `Decoding`
        says and leaves this aside: Vicuna's file asks for temperature 0.9 and top-p 0.6. To be shown to people.
    """

    name: str
    folder: Path
    weights: tuple[Path, ...]
    weights_sha256: str
    digest: str
    family: str
    text_model: str
    sees: bool
    own_decoding: dict[str, Any]


def generator_files(name: str, address: str, *, project: Path, fetched: Path) -> GeneratorFiles:
    """Return the files of a generative model that is on this disk, with their digests.

    Parameters
    ----------
    name : str
        Id in the audit file, for messages.
    address : str
        `local-dir:PATH` or `hf-hub:ORG/NAME@COMMIT`.
    project : Path
        Where relative paths start.
    fetched : Path
        Folder in which `plumbline fetch` keeps what it got.

    Raises
    ------
    CheckpointError
        If it is not on disk, of no known family, without safetensors weights, image processor or tokenizer, or asks
        for code or parts that are not digested.
    """
    parsed = parse_address(address, project=project)
    folder = _folder(parsed, name, fetched)
    contents = generator_contents(folder, name)
    shas = {file: _digest(path) for file, path in contents.deciding.items()}
    parts = {path.name: shas[path.name] for path in contents.weights}
    return GeneratorFiles(
        name=name,
        folder=folder,
        weights=contents.weights,
        weights_sha256=next(iter(parts.values())) if len(parts) == 1 else digest_json(parts),
        digest=digest_json(shas),
        family=contents.family.name,
        text_model=contents.text_model,
        sees=contents.family.sees,
        own_decoding=_own_decoding(folder),
    )


def load_backend(files: GeneratorFiles, placement: Placement) -> Backend:
    """Load a generative model from disk through the adapter of its family.

    Raises
    ------
    CheckpointError
        If it cannot be loaded whole, from the digested files alone; nothing is downloaded and nothing is random.
    """
    adapter = import_class(GENERATOR_FAMILIES[files.family].adapter, below="plumbline.generators")
    return cast("Backend", adapter(files, placement))


def _digest(path: Path) -> str:
    """Return a file's sha256; a large one is read again only if it was written since this process read it.

    An audit asks for it with every slice, and the weights of a large model take minutes to read.
    """
    about = path.stat()
    if about.st_size < _LARGE:
        return digest_file(path)
    return _digest_of(path, about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino)


@lru_cache(maxsize=256)
def _digest_of(path: Path, *_written: int) -> str:
    return digest_file(path)


def _folder(address: Address, name: str, fetched: Path) -> Path:
    if address.architecture is not None:
        raise CheckpointError(
            f"model `{name}` has an address of open_clip, which has no generative models",
            found=address.text,
            expected="local-dir:PATH or hf-hub:ORG/NAME@COMMIT",
        )
    what, fetch = f"the checkpoint of model `{name}`", f"`plumbline fetch {name}`"
    return address.folder_with((TRANSFORMERS_CONFIG,), fetched=fetched, what=what, fetch=fetch)


def _own_decoding(folder: Path) -> dict[str, Any]:
    if not (folder / _DEFAULTS).is_file():
        return {}
    content = read_configuration(folder / _DEFAULTS)
    return {k: v for k, v in content.items() if k not in _NO_DECODING and not k.endswith("_token_id")}
