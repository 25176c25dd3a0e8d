"""What a checkpoint folder holds: configuration, weights and tokenizer of transformers and open_clip."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from plumbline.errors import CheckpointError

# Beside the weights these decide what a checkpoint computes; read-me files and licences do not.
_MODEL_FILES = ("*.json", "*.txt", "*.model", "*.bpe", "*.codes", "*.spm", "*.tiktoken")
_NOTES = ("training.json", "fetched.json")
# What transformers reads of a folder beside weights and vocabularies.
_SETTINGS = ("config.json", "preprocessor_config.json", "processor_config.json", "tokenizer_config.json")
# Any of these would have transformers run what it finds, fetch it, or load something else than the digested weights.
_CODE, _ATTENTION, _EXPERTS = "code of its own", "attention of its own", "experts of its own"
_REFUSED = {
    "auto_map": _CODE,
    "custom_pipelines": _CODE,
    "trust_remote_code": _CODE,
    "transformers_weights": "weights in another file",
    "quantization_config": "a quantiser",
    "attn_implementation": _ATTENTION,
    "_attn_implementation": _ATTENTION,
    "_attn_implementation_internal": _ATTENTION,
    "experts_implementation": _EXPERTS,
    "_experts_implementation": _EXPERTS,
    "_experts_implementation_internal": _EXPERTS,
}
# What published configurations write for "none".
_NOTHING: tuple[Any, ...] = (None, False, {})

PLAIN_ATTENTION = ("eager", "sdpa")
"""Names of attention that need nothing but torch; any other may have a kernel fetched from the hub."""

TRANSFORMERS_ATTENTION = (
    *PLAIN_ATTENTION, "flash_attention_2", "flash_attention_3", "flash_attention_4", "flex_attention", "paged|eager"
)  # fmt: skip
"""All that transformers 5 has itself; harmless only where the loader says another one, which then counts."""


class FolderContents(NamedTuple):
    """The one weights file of a checkpoint folder, and everything that decides what the checkpoint computes.

    Attributes
    ----------
    weights : Path
        A safetensors file.
    deciding : dict of name to Path
        Weights included.
    """

    weights: Path
    deciding: dict[str, Path]


def model_files(folder: Path) -> list[Path]:
    """Return configuration and tokenizer files of a folder, by name."""
    found = {path for pattern in _MODEL_FILES for path in folder.glob(pattern) if path.name not in _NOTES}
    return sorted(path for path in found if path.is_file())


def read_configuration(path: Path) -> dict[str, Any]:
    """Return a JSON object of a checkpoint folder, empty where the file has something else than an object.

    Raises
    ------
    CheckpointError
        If it is not JSON, or nested more deeply than any configuration is.
    """
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError("this configuration is not JSON", where=path, found=error) from error
    except RecursionError as error:
        raise CheckpointError(
            "this configuration is nested too deeply",
            where=path,
            found="hundreds of levels",
            expected="a JSON object of settings, a few levels deep",
            hint="check that this is the published file and not damaged",
        ) from error
    return content if isinstance(content, dict) else {}


def refuse_code(folder: Path, *, attention: Sequence[str] = PLAIN_ATTENTION) -> None:
    """Refuse a folder whose settings would have transformers run, fetch or load what was not digested.

    Parameters
    ----------
    attention : sequence of str
        Names of attention that it may ask for.

    Raises
    ------
    CheckpointError
        With the file and the key, at whatever depth it lies.
    """
    harmless = {_ATTENTION: attention, _EXPERTS: ("eager",)}
    for path in (folder / name for name in _SETTINGS):
        if not path.is_file():
            continue
        for key, value in _pairs(read_configuration(path)):
            what = _REFUSED.get(key)
            if what is not None and value not in (*_NOTHING, *harmless.get(what, ())):
                raise CheckpointError(
                    f"this checkpoint asks for {what}, and only transformers' own classes are used",
                    where=path,
                    found=f"{key}: {value}",
                    expected="a checkpoint of one of transformers' own architectures, in plain float weights",
                )


def _pairs(content: Any) -> Iterator[tuple[str, Any]]:
    """Return every key and value of a configuration: settings of a part may lie any number of levels down."""
    parts = [content]
    while parts:
        part = parts.pop()
        if isinstance(part, dict):
            yield from part.items()
            parts.extend(part.values())
        elif isinstance(part, list):
            parts.extend(part)


def require_files(folder: Path, choices: Sequence[Sequence[str]], *, lacking: str) -> None:
    """Refuse a folder in which none of several sets of files is whole.

    Parameters
    ----------
    lacking : str
        What is wrong then, for the message.

    Raises
    ------
    CheckpointError
        With the files that are there, and each set.
    """
    if not any(all((folder / name).is_file() for name in names) for names in choices):
        raise CheckpointError(
            lacking,
            where=folder,
            found=", ".join(path.name for path in model_files(folder)) or "nothing",
            expected=" or ".join(" with ".join(names) for names in choices),
        )


def no_safetensors(folder: Path, encoder: str, *, expected: str) -> CheckpointError:
    """Return the error for a folder without safetensors weights; names what is there instead."""
    others = sorted(p.name for kind in ("*.bin", "*.pt", "*.pth") for p in folder.glob(kind))
    return CheckpointError(
        f"the checkpoint of encoder `{encoder}` has no safetensors weights, and no other format is opened",
        where=folder,
        found=", ".join(others) or "no weights",
        expected=expected,
        hint=f"`plumbline fetch {encoder}` converts a hub checkpoint that has only .bin weights"
        if others
        else None,
    )


# --- A checkpoint folder of transformers: safetensors, a processor, a tokenizer, and no code of its own.

TRANSFORMERS_CONFIG = "config.json"
TRANSFORMERS_WEIGHTS = "model.safetensors"
IMAGE_PROCESSOR = (("preprocessor_config.json",), ("processor_config.json",))
"""Either holds the settings of an image processor."""

_TOKENIZER = (("tokenizer.json",), ("vocab.txt",), ("vocab.json", "merges.txt"))


def transformers_contents(folder: Path, encoder: str) -> FolderContents:
    """Return what decides a transformers checkpoint.

    Raises
    ------
    CheckpointError
        If its weights are not one file `model.safetensors`, the image processor or the tokenizer is absent, or a
        configuration asks for code, weights, an attention or a quantisation of its own.
    """
    # Which attention computes is said when the model is loaded, whatever the configuration names.
    refuse_code(folder, attention=TRANSFORMERS_ATTENTION)
    refuse_adapter(folder)
    weights = _weights(folder, encoder)
    for part, choices in {"an image processor": IMAGE_PROCESSOR, "a tokenizer": _TOKENIZER}.items():
        lacking = f"the checkpoint of encoder `{encoder}` has no files of {part}"
        require_files(folder, choices, lacking=lacking)
    return FolderContents(weights, {p.name: p for p in (weights, *model_files(folder))})


def refuse_adapter(folder: Path) -> None:
    """Refuse a folder of an adapter; raises CheckpointError."""
    if (folder / "adapter_config.json").is_file():
        raise CheckpointError(
            "this checkpoint is an adapter, to be merged with weights that are elsewhere",
            where=folder,
            found="adapter_config.json",
            expected=f"merged weights in {TRANSFORMERS_WEIGHTS}",
        )


def _weights(folder: Path, encoder: str) -> Path:
    found = sorted(p.name for p in folder.glob("*.safetensors") if p.is_file())
    if not found:
        raise no_safetensors(folder, encoder, expected=TRANSFORMERS_WEIGHTS)
    if TRANSFORMERS_WEIGHTS not in found:
        raise CheckpointError(
            f"the checkpoint of encoder `{encoder}` has "
            + ("several weights, and none" if len(found) > 1 else "weights, but not")
            + " under the name that transformers loads",
            where=folder,
            found=", ".join(found),
            expected=f"one file {TRANSFORMERS_WEIGHTS}",
            hint="merge the parts, or rename the one to audit",
        )
    return folder / TRANSFORMERS_WEIGHTS


# --- A checkpoint folder of open_clip: the one weights file that is loaded, and nothing from anywhere
# else.

OPEN_CLIP_CONFIG = "open_clip_config.json"
# In a folder, open_clip takes the first of these names, then any safetensors file, then any other, by name.
_PREFERENCE = (
    "open_clip_model.safetensors", "open_clip_pytorch_model.safetensors",
    "open_clip_pytorch_model.bin", "open_clip_pytorch_model.pth",
    "model.safetensors", "pytorch_model.bin", "pytorch_model.pth", "model.pth",
)  # fmt: skip
_OWN_NAMES = _PREFERENCE[:2]
# How texts are cleaned, which end token is dropped, and which language they are in. Others of open_clip's two
# tokenizers open files outside the folder, draw at random what is cut, or go on to transformers as they are.
_TOKENIZER_OPTIONS = frozenset({"clean", "strip_sep_token", "language"})


def open_clip_contents(folder: Path, encoder: str) -> FolderContents:
    """Return what decides an open_clip checkpoint.

    Raises
    ------
    CheckpointError
        If it has no safetensors weights or several, open_clip would load another file than that one, or the
        configuration asks for parts that are not on disk or for code of its own.
    """
    weights = _open_clip_weights(folder, encoder)
    text_folder = _text_folder(folder)
    deciding = {p.name: p for p in (weights, *model_files(folder))}
    if text_folder is not None:
        deciding |= {f"hf_model_name/{p.name}": p for p in model_files(text_folder)}
    return FolderContents(weights, deciding)


def chosen_by_open_clip(folder: Path) -> Path | None:
    """Return the weights file that open_clip 3 loads from a folder, or None where it finds none."""
    found = [p for kind in ("*.safetensors", "*.bin", "*.pth") for p in folder.glob(kind)]

    def rank(path: Path) -> tuple[int, bool, str]:
        known = _PREFERENCE.index(path.name) if path.name in _PREFERENCE else len(_PREFERENCE)
        return known, path.suffix != ".safetensors", path.name

    return min(found, key=rank, default=None)


def _open_clip_weights(folder: Path, encoder: str) -> Path:
    found = sorted(p for p in folder.glob("*.safetensors") if p.is_file())
    if not found:
        raise no_safetensors(folder, encoder, expected=_OWN_NAMES[0])
    own = [folder / name for name in _OWN_NAMES if folder / name in found]
    if not own and len(found) > 1:
        raise CheckpointError(
            f"the checkpoint of encoder `{encoder}` has several weights, and none is named as open_clip names its own",
            where=folder,
            found=", ".join(p.name for p in found),
            expected=f"one of {' and '.join(_OWN_NAMES)}, or a single safetensors file",
            hint="keep one file, or rename the one to audit",
        )
    weights = (own or found)[0]
    if (loaded := chosen_by_open_clip(folder)) is not None and loaded != weights:
        raise CheckpointError(
            f"open_clip would load other weights for encoder `{encoder}` than the safetensors file",
            where=folder,
            found=loaded.name,
            expected=weights.name,
            hint=f"remove {loaded.name} from the folder",
        )
    return weights


def _text_folder(folder: Path) -> Path | None:
    """Refuse a configuration that would download or run something; return the folder of its text model, if any."""
    content = read_configuration(folder / OPEN_CLIP_CONFIG)
    text, vision = (_part(content, "model_cfg", key) for key in ("text_cfg", "vision_cfg"))
    name, timm = text.get("hf_model_name"), str(vision.get("timm_model_name"))
    # A relative name would be looked for from where the process happens to run.
    local = not name or (Path(str(name)).is_absolute() and Path(str(name)).is_dir())
    unknown = sorted(_part(text, "tokenizer_kwargs").keys() - _TOKENIZER_OPTIONS)
    parts = {
        "text_cfg.hf_model_name": None if local else name,
        "vision_cfg.timm_model_name": timm if ":" in timm else None,
        "text_cfg.tokenizer_kwargs": ", ".join(unknown) or None,
    }
    for key, found in parts.items():
        if found is not None:
            raise CheckpointError(
                "this checkpoint needs parts that are not in its folder, and nothing is downloaded in a run",
                where=folder / OPEN_CLIP_CONFIG,
                found=f"model_cfg.{key}: {found}",
                expected="an architecture of open_clip or timm; for the text model the absolute path of a folder on "
                f"disk; of the tokenizer's options {', '.join(sorted(_TOKENIZER_OPTIONS))}",
            )
    if text.get("hf_tokenizer_name"):
        # open_clip takes this tokenizer from the checkpoint's own folder, whatever the name.
        refuse_code(folder)
    if name:
        refuse_code(Path(str(name)))
    return Path(str(name)) if name else None


def _part(content: Any, *keys: str) -> dict[str, Any]:
    """Return a nested mapping, empty where the file has something else: open_clip says what it lacks."""
    for key in keys:
        content = content.get(key) if isinstance(content, dict) else None
    return content if isinstance(content, dict) else {}


# --- Whether a safetensors file is there to its end: a copy that is still under way is shorter than its
# header says.

_LENGTH_BYTES = 8
_LONGEST_HEADER = 100_000_000
"""The format's own limit."""


def require_complete(path: Path) -> None:
    """Refuse a safetensors file that is not as long as its header says; the tensors are not read.

    Raises
    ------
    CheckpointError
        With both lengths.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        header = file.read(length) if length <= _LONGEST_HEADER else b""
    try:
        tensors = json.loads(header)
        ends = [entry["data_offsets"][1] for name, entry in tensors.items() if name != "__metadata__"]
        expected = _LENGTH_BYTES + length + max(ends, default=0)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        expected = -1
    if size != expected:
        raise CheckpointError(
            "the weights are not complete",
            where=path,
            found=f"{size} bytes",
            expected=f"{expected} bytes, as its header says" if expected >= 0 else "a whole safetensors file",
            hint="wait until the copy is done",
        )
