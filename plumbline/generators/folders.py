"""Checkpoints of generative models: their families, files, identity, and how one is loaded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from plumbline.catalog.files import text_within
from plumbline.checkpoints.addresses import TRANSFORMERS_CONFIG, parse_address
from plumbline.checkpoints.device import Placement
from plumbline.checkpoints.folders import (
    MOST_SETTINGS,
    CheckpointFiles,
    FolderContents,
    family_of_folder,
    noting,
    read_configuration,
    transformers_contents,
)
from plumbline.checkpoints.loading import architecture_of, ready_libraries, require_sizes
from plumbline.checkpoints.pickled import CONVERTED, readable_folder
from plumbline.errors import CheckpointError
from plumbline.generators.backend import Backend
from plumbline.generators.families import GENERATOR_FAMILIES, IMAGE_TEXT, NOT_MEANT, WITHOUT_TEMPLATE, GeneratorFamily
from plumbline.generators.thinking import SWITCHES, switch_in
from plumbline.imports import import_class

if TYPE_CHECKING:
    import torch

CHAT_TEMPLATE = "chat_template.jinja"
_MORE_TEMPLATES = "additional_chat_templates"
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


PROCESSOR_TEMPLATES = (CHAT_TEMPLATE, "chat_template.json", "processor_config.json")
"""Files in which transformers looks for the chat template of a processor, in its order."""

_TEMPLATES = (*PROCESSOR_TEMPLATES, "tokenizer_config.json")


class GeneratorContents(NamedTuple):
    """The family of a folder, the `model_type` of the language model inside, and what decides in it."""

    family: GeneratorFamily
    text_model: str
    contents: FolderContents


def generator_contents(
    folder: Path, name: str, *, thinking: bool | None = None, sizes: Path | None = None
) -> GeneratorContents:
    """Return what decides a generative model: safetensors whole or in parts, tokenizers, a chat template.

    Parameters
    ----------
    name : str
        Id in the audit file, for messages.
    thinking : bool, optional
        What the audit file says of it.
    sizes : Path, optional
        Folder of what was found of sizes: given, weights of other sizes than the configuration's are refused.

    Raises
    ------
    CheckpointError
        If it is of no known family; or with everything else that is wrong: no safetensors weights, image processor,
        tokenizer or chat template, no switch for `thinking` in it, or code, weights, an attention or a quantisation of
        its own.
    """
    of = f"model `{name}`"
    hint = "serve it behind an OpenAI-compatible address, and give that address in the audit file"
    _refuse_not_meant(folder, of)
    family = family_of_folder(GENERATOR_FAMILIES, folder, of, hint=hint)
    wrong: list[CheckpointError] = []
    contents, text_model = FolderContents((), {}), ""

    def of_these_sizes(weights: Sequence[Path]) -> None:
        if sizes is not None:
            build = partial(_architecture, folder, family.name)
            require_sizes(folder, weights, build, configuration=TRANSFORMERS_CONFIG, kept=sizes)

    with noting(wrong):
        contents = transformers_contents(
            folder,
            of,
            tokenizer=_TOKENIZER,
            image_processor=family.sees,
            parts=True,
            subfolders=(QFORMER_TOKENIZER,) if family.name == "instructblip" else (),
            also=of_these_sizes,
        )
    with noting(wrong):
        text_model = _text_model(folder, family, of)
    with noting(wrong):
        _require_template(folder, family, of, thinking)
    with noting(wrong):
        _refuse_second_default(folder)
    if wrong:
        raise CheckpointError.all_of(wrong)
    templates = [path for path in (folder / CHAT_TEMPLATE, *_more_templates(folder)) if path.is_file()]
    contents.deciding.update({path.relative_to(folder).as_posix(): path for path in templates})
    return GeneratorContents(family, text_model, contents)


def _architecture(folder: Path, family: str) -> torch.nn.Module:
    """Return the model of a folder, built without numbers."""
    ready_libraries()
    import transformers

    model_class = getattr(transformers, class_of_model(family, _model_type(folder)))
    return architecture_of(model_class, folder, attention=attention_of(family))


ATTENTION = "sdpa"


def attention_of(family: str) -> str | None:
    """Return the attention that a family is loaded with; None where its class decides."""
    return None if family == IMAGE_TEXT else ATTENTION


def class_of_model(family: str, model_type: str) -> str:
    """Return the class of transformers that holds a model."""
    if family != IMAGE_TEXT:
        return GENERATOR_FAMILIES[family].model_class
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

    return str(MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES[model_type])


def _require_template(folder: Path, family: GeneratorFamily, of: str, thinking: bool | None) -> None:
    """Refuse a folder without the chat template that its family needs, or without the switch that is asked for."""
    template = chat_template(folder)
    if template is None and family.name == IMAGE_TEXT and _model_type(folder) not in WITHOUT_TEMPLATE:
        raise CheckpointError(
            f"the checkpoint of {of} has no chat template, and none is documented for its type",
            where=folder,
            found=f"model_type: {_model_type(folder)}, no {CHAT_TEMPLATE}",
            expected=f"{CHAT_TEMPLATE}, or a template in {', '.join(_TEMPLATES[1:])}",
        )
    if thinking is not None and (template is None or switch_in(template) is None):
        raise CheckpointError(
            f"the thinking of {of} cannot be switched {'on' if thinking else 'off'}: its chat template has no switch",
            where=folder,
            found=f"thinking: {str(thinking).lower()}, and "
            + ("no chat template" if template is None else f"a template that reads none of {' and '.join(SWITCHES)}"),
            expected=f"a chat template that reads {' or '.join(SWITCHES)}",
            hint="leave `thinking` out: what a model thinks is kept apart from its answer, counted, and never scored",
        )


def _more_templates(folder: Path) -> list[Path]:
    """Return the chat templates beside the default one, such as that for tools."""
    return sorted((folder / _MORE_TEMPLATES).glob("*.jinja"))


def _refuse_second_default(folder: Path) -> None:
    """Refuse a default template among the further ones: of the two, tokenizers take this one, processors the other."""
    if (second := folder / _MORE_TEMPLATES / "default.jinja").is_file():
        raise CheckpointError(
            "the default chat template of this checkpoint lies among its further ones",
            where=second,
            found=second.name,
            expected=f"the default template in {CHAT_TEMPLATE}, as transformers writes it",
            hint=f"move it to {folder / CHAT_TEMPLATE}, if that is the template to audit with",
        )


def chat_template(folder: Path, names: Sequence[str] = _TEMPLATES) -> str | None:
    """Return the chat template that transformers would find in a folder; None without one.

    Parameters
    ----------
    names : sequence of str
        Files to look into, in this order.
    """
    for name in names:
        if not (path := folder / name).is_file():
            continue
        if name == CHAT_TEMPLATE:
            return _template_text(path)
        template = read_configuration(path).get("chat_template")
        if isinstance(template, list):
            # Several, by their names.
            named = [one for one in template if isinstance(one, dict)]
            template = next((one.get("template") for one in named if one.get("name") == "default"), None)
        if isinstance(template, str):
            return template
    return None


def _template_text(path: Path) -> str:
    try:
        return text_within(path, MOST_SETTINGS)
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise CheckpointError("this chat template cannot be read", where=path, found=why) from error


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
    thinking : bool or None
        What the audit file says of it; None where the chat template decides.
    """

    model_type: str
    text_model: str
    sees: bool
    own_decoding: dict[str, Any]
    thinking: bool | None = None

    @property
    def switches(self) -> dict[str, bool]:
        """Return what the chat template is told beside the messages: whether to think, by its own name for that."""
        template = chat_template(self.folder) or ""
        return {} if self.thinking is None else {str(switch_in(template)): self.thinking}


def generator_files(
    name: str, address: str, *, project: Path, fetched: Path, thinking: bool | None = None, sizes: Path | None = None
) -> GeneratorFiles:
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
    thinking, sizes
        See `generator_contents`.

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
    family, text_model, contents = generator_contents(folder, name, thinking=thinking, sizes=sizes)
    return GeneratorFiles.read(
        name, folder, contents, family.name, model_type=_model_type(folder), text_model=text_model, sees=family.sees,
        own_decoding=own_decoding(folder), thinking=thinking,
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
