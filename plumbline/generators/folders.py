"""Checkpoints of generative models: their families, files, identity, and how one is loaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

from plumbline.checkpoints.addresses import TRANSFORMERS_CONFIG, parse_address
from plumbline.checkpoints.device import Placement
from plumbline.checkpoints.families import family_of_folder
from plumbline.checkpoints.folders import CheckpointFiles, FolderContents, read_configuration, transformers_contents
from plumbline.checkpoints.pickled import CONVERTED, readable_folder
from plumbline.errors import CheckpointError
from plumbline.generators.backend import Backend
from plumbline.generators.families import GENERATOR_FAMILIES, NOT_MEANT, GeneratorFamily
from plumbline.imports import import_class

CHAT_TEMPLATE = "chat_template.jinja"
QFORMER_TOKENIZER = "qformer_tokenizer"

_TOKENIZER = (("tokenizer.json",), ("tokenizer.model",), ("vocab.txt",), ("vocab.json", "merges.txt"))
_DEFAULTS = "generation_config.json"
DRAWN_AS: dict[str, tuple[type, Callable[[float], bool]]] = {
    "temperature": (float, lambda value: value >= 0),
    "top_k": (int, lambda value: value >= 0),
    "top_p": (float, lambda value: 0 < value <= 1),
}
"""What of a checkpoint's own decoding is drawn with -> its type, and whether a value is one."""
_NO_DECODING = ("_from_model_config", "transformers_version", "max_length", "max_new_tokens", "use_cache")


class GeneratorContents(NamedTuple):
    """The family of a folder, the `model_type` of the language model inside, and what decides in it."""

    family: GeneratorFamily
    text_model: str
    contents: FolderContents


def generator_contents(folder: Path, name: str) -> GeneratorContents:
    """Return what decides a generative model: safetensors whole or in parts, tokenizers, a chat template.

    Parameters
    ----------
    name : str
        Id in the audit file, for messages.

    Raises
    ------
    CheckpointError
        If it is of no known family, has no safetensors weights, image processor or tokenizer, or asks for code,
        weights, an attention or a quantisation of its own.
    """
    of = f"model `{name}`"
    hint = "serve it behind an OpenAI-compatible address, and give that address in the audit file"
    _refuse_not_meant(folder, of)
    family = family_of_folder(GENERATOR_FAMILIES, folder, of, hint=hint)
    contents = transformers_contents(
        folder,
        of,
        tokenizer=_TOKENIZER,
        image_processor=family.sees,
        parts=True,
        subfolders=(QFORMER_TOKENIZER,) if family.name == "instructblip" else (),
    )
    if (template := folder / CHAT_TEMPLATE).is_file():
        contents.deciding[CHAT_TEMPLATE] = template
    return GeneratorContents(family, _text_model(folder, family, of), contents)


def _model_type(folder: Path) -> str:
    return str(read_configuration(folder / TRANSFORMERS_CONFIG).get("model_type"))


def _refuse_not_meant(folder: Path, of: str) -> None:
    if (reason := NOT_MEANT.get(model_type := _model_type(folder))) is not None:
        raise CheckpointError(
            f"the checkpoint of {of} cannot be audited: {reason}",
            where=folder / TRANSFORMERS_CONFIG,
            found=f"model_type: {model_type}",
            expected="a model that reads an image and follows instructions in words",
        )


def _text_model(folder: Path, family: GeneratorFamily, of: str) -> str:
    """Return the language model inside, as `config.json` says it."""
    config = folder / TRANSFORMERS_CONFIG
    content = read_configuration(config)
    inside = content.get("text_config") if family.sees else content
    # transformers' own default of both families that see, where the configuration leaves it out.
    text_model = str((inside if isinstance(inside, dict) else {}).get("model_type", "llama"))
    if family.text_models and text_model not in family.text_models:
        raise CheckpointError(
            f"the language model of {of} is of no kind that {family.title} is known to have",
            where=config,
            found=f"text_config.model_type: {text_model}",
            expected=" or ".join(family.text_models),
        )
    return text_model


@dataclass(frozen=True)
class GeneratorFiles(CheckpointFiles):
    """A generative model on disk.

    Attributes
    ----------
    model_type : str
        As `config.json` says it.
    text_model : str
        `model_type` of the language model inside, such as `llama`.
    sees : bool
        Whether it takes images.
    own_decoding : dict
        What the checkpoint's `generation_config.json` says of how to draw tokens: see `own_decoding`.
    """

    model_type: str
    text_model: str
    sees: bool
    own_decoding: dict[str, Any]


def generator_files(name: str, address: str, *, project: Path, fetched: Path) -> GeneratorFiles:
    """Return the files of a generative model that is on this disk, with their digests.

    Weights that are pickles are converted to safetensors first, once (`plumbline.checkpoints.pickled`).

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
        If it is not on disk, of no known family, without weights, image processor or tokenizer, or asks for code or
        parts that are not digested.
    """
    what, fetch = f"the checkpoint of model `{name}`", f"`plumbline fetch {name}`"
    parsed = parse_address(address, project=project)
    folder = parsed.folder_with((TRANSFORMERS_CONFIG,), fetched=fetched, what=what, fetch=fetch)
    if parsed.folder is not None:
        folder = readable_folder(folder, f"model `{name}`", kept=fetched / CONVERTED)
    family, text_model, contents = generator_contents(folder, name)
    return GeneratorFiles.read(
        name, folder, contents, family.name, model_type=_model_type(folder), text_model=text_model, sees=family.sees,
        own_decoding=own_decoding(folder),
    )  # fmt: skip


def load_backend(files: GeneratorFiles, placement: Placement) -> Backend:
    """Load a generative model from disk through the adapter of its family.

    Raises
    ------
    CheckpointError
        If it cannot be loaded whole, from the digested files alone; nothing is downloaded and nothing is random.
    """
    adapter = import_class(GENERATOR_FAMILIES[files.family].adapter, below="plumbline.generators")
    return cast("Backend", adapter(files, placement))


def own_decoding(folder: Path) -> dict[str, Any]:
    """Return what a checkpoint's `generation_config.json` says of how to draw tokens; of Vicuna v1.5, a top-p of 0.6.

    Of it `DRAWN_AS` holds where the audit file says nothing. The rest, such as a penalty for repetition, is for people:
    no published audit used it, and neither does this one.
    """
    if not (folder / _DEFAULTS).is_file():
        return {}
    content = read_configuration(folder / _DEFAULTS)
    decoding = {k: v for k, v in content.items() if k not in _NO_DECODING and not k.endswith("_token_id")}
    for key, (_, fits) in DRAWN_AS.items():
        if decoding.get(key) is None:
            decoding.pop(key, None)
        elif not isinstance(decoding[key], int | float) or not fits(decoding[key]):
            raise CheckpointError(
                "a checkpoint's own decoding is out of range", where=folder / _DEFAULTS, found=f"{key}: {decoding[key]}"
            )
    return decoding


def image_tokens(folder: Path) -> int | None:
    """Return how many tokens an image is to the model in a folder, by its configuration; None where that is not said.

    LLaVA: the patches of its vision tower, without the class token. InstructBLIP: its queries.
    """
    config = read_configuration(folder / TRANSFORMERS_CONFIG) if (folder / TRANSFORMERS_CONFIG).is_file() else {}
    if config.get("model_type") == "instructblip":
        return int(config.get("num_query_tokens", 32))
    vision = config.get("vision_config")
    if config.get("model_type") != "llava" or not isinstance(vision, dict):
        return None
    patches = int(vision.get("image_size", 336)) // int(vision.get("patch_size", 14))
    return patches**2 + (config.get("vision_feature_select_strategy") == "full")
