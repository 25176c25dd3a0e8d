"""Loading a sequence classifier whole: every weight from the digested file, nothing fetched, nothing random."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from plumbline.encoders.whole_models import FROM_DISK, loading, own_memory, ready_libraries, whole_model
from plumbline.errors import CheckpointError, ConfigError
from plumbline.scorers.classifier_folder import ClassifierFiles

# Older checkpoints have buffers that are computed today, and a layer that their class does not use.
_UNUSED = re.compile(r"(^|\.)(position_ids|token_type_ids)$|(^|\.)pooler\.")
# Tokenizers without a limit name a number like this.
_NO_LIMIT = 1_000_000


@dataclass(frozen=True)
class LoadedClassifier:
    """A classifier on its device.

    Attributes
    ----------
    model, tokenizer
        As transformers loads them.
    labels : tuple of str
        `id2label`, by position.
    max_tokens : int
        Longer texts are cut, special tokens included.
    pad : int
        Token that shorter texts of a batch are filled with.
    attention : str
        Its implementation.
    """

    model: Any
    tokenizer: Any
    labels: tuple[str, ...]
    max_tokens: int
    pad: int
    attention: str


def load_files(
    files: ClassifierFiles, *, device: str, dtype: str, max_tokens: int | None
) -> LoadedClassifier:
    """Load a classifier and its tokenizer.

    Raises
    ------
    CheckpointError
        If transformers cannot load it, a weight is absent from the file or the file has others, or the tokenizer has
        no token to pad with.
    ConfigError
        If `max_tokens` is more than the model takes, or absent where the model does not say what it takes.
    """
    ready_libraries()
    import transformers

    expected = "a sequence classifier of one of transformers' own architectures, with its tokenizer"
    with loading("transformers could not load this classifier", where=files.folder, expected=expected):
        model = _model(transformers, files, dtype)
        tokenizer = transformers.AutoTokenizer.from_pretrained(files.folder, **FROM_DISK)
    if tokenizer.pad_token_id is None:
        raise CheckpointError(
            "this classifier's tokenizer has no token to pad with, so that texts cannot share a batch",
            where=files.folder,
            expected="a pad_token in tokenizer_config.json",
        )
    # A text's positions must not depend on the others, and what is read is its beginning.
    tokenizer.padding_side = tokenizer.truncation_side = "right"
    labels = model.config.id2label
    return LoadedClassifier(
        model=model.to(device).eval().requires_grad_(False),
        tokenizer=tokenizer,
        labels=tuple(str(labels[i]) for i in range(len(labels))),
        max_tokens=_most_tokens(model, tokenizer, max_tokens, files),
        pad=int(tokenizer.pad_token_id),
        attention=str(model.config._attn_implementation),
    )


def _model(transformers: Any, files: ClassifierFiles, dtype: str) -> Any:
    config = transformers.AutoConfig.from_pretrained(files.folder, **FROM_DISK)
    classes = transformers.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING
    if type(config) not in classes:
        raise ValueError(f"model_type: {config.model_type}, which has no sequence classifier")
    model = whole_model(
        classes[type(config)],
        files.folder,
        dtype=dtype,
        weights=files.weights,
        of="a trained sequence classifier",
        may_be_left=_UNUSED.search,
        # They are refused all the same, by name.
        ignore_mismatched_sizes=True,
    )
    own_memory(model)
    return model


def _most_tokens(model: Any, tokenizer: Any, wanted: int | None, files: ClassifierFiles) -> int:
    taken = [limit for limit in (_positions(model), int(tokenizer.model_max_length)) if 0 < limit < _NO_LIMIT]
    if wanted is not None and wanted <= min(taken, default=wanted):
        return wanted
    if wanted is not None or not taken:
        raise ConfigError(
            "this classifier does not take so many tokens"
            if taken
            else "this classifier does not say how many tokens it takes",
            where=files.folder,
            found=f"max_tokens: {wanted}",
            expected=f"at most {min(taken)}" if taken else "a number",
            hint="set `max_tokens` of the scorer",
        )
    return min(taken)


def _positions(model: Any) -> int:
    """Return how many tokens the model has positions for; 0 where it does not say."""
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and hasattr(module, "num_embeddings"):
            # RoBERTa counts positions from behind the padding index.
            skipped = 0 if module.padding_idx is None else int(module.padding_idx) + 1
            return int(module.num_embeddings) - skipped
    return int(getattr(model.config, "max_position_embeddings", 0) or 0)
