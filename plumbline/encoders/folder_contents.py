"""What is read in a checkpoint folder, whatever library wrote it."""

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
