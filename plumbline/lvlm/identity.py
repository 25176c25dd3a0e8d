"""Who would answer, told from a model's files alone: a plan must not wait for billions of weights."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from plumbline.encoders.encoder import Placement
from plumbline.encoders.whole_models import FROM_DISK, ready_libraries
from plumbline.lvlm.loaded_model import identity_of, load_images, load_tokenizer, stop_tokens
from plumbline.lvlm.loading import LvlmFiles
from plumbline.lvlm.prompt_format import format_of


def identity_from_files(files: LvlmFiles, placement: Placement) -> str:
    """Return the `identity` that the backend of these files has when it is loaded; no weights are read.

    Raises
    ------
    CheckpointError
        If tokenizer, chat template or image processor cannot be loaded.
    """
    tokenizer = load_tokenizer(files)
    return identity_of(
        files,
        placement,
        prompts=format_of(files, tokenizer),
        images=load_images(files) if files.sees else None,
        stops=stop_tokens(SimpleNamespace(generation_config=_generation_config(files)), tokenizer),
    )


def _generation_config(files: LvlmFiles) -> Any:
    """Return what a loaded model would have: the checkpoint's own file, or what its configuration implies."""
    ready_libraries()
    import transformers

    try:
        return transformers.GenerationConfig.from_pretrained(files.folder, **FROM_DISK)
    except OSError:
        config = transformers.AutoConfig.from_pretrained(files.folder, **FROM_DISK)
        return transformers.GenerationConfig.from_model_config(config)
