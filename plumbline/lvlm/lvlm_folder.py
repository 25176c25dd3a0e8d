"""A folder of a generative model: safetensors whole or in parts, tokenizers, a chat template, no code of its own."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from plumbline.encoders.folder_contents import (
    TRANSFORMERS_ATTENTION,
    model_files,
    no_safetensors,
    read_configuration,
    refuse_code,
    require_files,
)
from plumbline.encoders.transformers_folder import CONFIG, IMAGE_PROCESSOR, WEIGHTS, refuse_adapter
from plumbline.errors import CheckpointError
from plumbline.lvlm.families import LVLM_FAMILIES, LvlmFamily, lvlm_family_of

INDEX = "model.safetensors.index.json"
CHAT_TEMPLATE = "chat_template.jinja"
QFORMER_TOKENIZER = "qformer_tokenizer"

_TOKENIZER = (("tokenizer.json",), ("tokenizer.model",), ("vocab.txt",), ("vocab.json", "merges.txt"))


class LvlmContents(NamedTuple):
    """What a folder holds.

    Attributes
    ----------
    family : LvlmFamily
    text_model : str
        `model_type` of the language model inside.
    weights : tuple of Path
        The safetensors files that transformers loads, by name.
    deciding : dict of name to Path
        Every file that decides what the model answers, weights included.
    """

    family: LvlmFamily
    text_model: str
    weights: tuple[Path, ...]
    deciding: dict[str, Path]


def lvlm_contents(folder: Path, name: str) -> LvlmContents:
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
    family, text_model = _family(folder / CONFIG, name)
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
    return LvlmContents(family, text_model, weights, named)


def _family(config: Path, name: str) -> tuple[LvlmFamily, str]:
    """Return the family and the language model inside, as `config.json` says them."""
    content = read_configuration(config)
    model_type = str(content.get("model_type"))
    family = lvlm_family_of(model_type)
    if family is None:
        known = [each for other in LVLM_FAMILIES.values() for each in other.model_types]
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
    if (folder / WEIGHTS).is_file():
        return (folder / WEIGHTS,)
    if not (folder / INDEX).is_file():
        found = sorted(p.name for p in folder.glob("*.safetensors"))
        if not found:
            raise no_safetensors(folder, name, expected=f"{WEIGHTS}, or its parts with {INDEX}")
        raise CheckpointError(
            f"the checkpoint of model `{name}` has weights, but not under the name that transformers loads",
            where=folder,
            found=", ".join(found),
            expected=f"{WEIGHTS}, or its parts with {INDEX}",
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
