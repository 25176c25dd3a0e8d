"""What families share whose checkpoints `from_pretrained` of transformers reads; a byte-level tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plumbline.checkpoints.loading import declare_missing_operators
from plumbline.world.faces import SIZE

if TYPE_CHECKING:
    import torch

CONTEXT_LENGTH = 48
PAD, START, END = "<pad>", "<start>", "<end>"

_MAX_VOCABULARY = 512


def write_tokenizer(
    folder: Path,
    texts: Sequence[str],
    *,
    first: tuple[str, ...] = (PAD, START, END),
    last: str | None = None,
    longest: int = CONTEXT_LENGTH,
) -> int:
    """Train a tokenizer on captions and write it as transformers reads it.

    Parameters
    ----------
    folder : pathlib.Path
        Gets `tokenizer.json` and `tokenizer_config.json`.
    texts : sequence of str
        What the merges are learnt from.
    first : tuple of str
        The special tokens with ids 0, 1, ...
    last : str, optional
        A special token that gets the highest id, for text towers that find the end of a text by it.
    longest : int
        Tokens that the model takes.

    Returns
    -------
    int
        Size of the vocabulary, special tokens included.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=_MAX_VOCABULARY,
        special_tokens=list(first),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    if last is not None:
        tokenizer.add_special_tokens([last])
    special = [(token, tokenizer.token_to_id(token)) for token in (START, END)]
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{START} $A {END}", special_tokens=special)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=START, eos_token=END, pad_token=PAD, model_max_length=longest
    )
    fast.save_pretrained(folder)
    return int(tokenizer.get_vocab_size())


# --- Configuration, image processor and model, as `from_pretrained` reads them

WEIGHTS_FILE = "model.safetensors"

# With these, a 64-pixel face reaches the model as the values in [-1, 1] that it was trained on.
NORMALISATION = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
SQUARE = {"height": SIZE, "width": SIZE}


def write_config(folder: Path, config: Any, model_class: str) -> None:
    """Write `config.json` so that the automatic classes find the architecture.

    Weights are kept in half precision; the configuration asks for them in single precision all the same.
    """
    config.architectures = [model_class]
    config.dtype = "float32"
    config.save_pretrained(folder)


def write_image_processor(folder: Path, module: str, name: str, **settings: Any) -> None:
    """Write `preprocessor_config.json` of one of transformers' PIL processors.

    Parameters
    ----------
    module, name : str
        Such as `efficientnet` and `EfficientNetImageProcessorPil`.
    settings
        What differs from the class's own.
    """
    from importlib import import_module

    declare_missing_operators()
    processors = import_module(f"transformers.models.{module}.image_processing_pil_{module}")
    getattr(processors, name)(**NORMALISATION, **settings).save_pretrained(folder)


def build_untrained(folder: Path, model_class: str, *, seed: int) -> torch.nn.Module:
    """Build the randomly initialised model that a folder's `config.json` describes.

    Parameters
    ----------
    model_class : str
        A class of transformers.
    seed : int
        Of the initial weights; the caller's global generator is left as it was.
    """
    import torch

    declare_missing_operators()
    import transformers

    kind: Any = getattr(transformers, model_class)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: torch.nn.Module = kind(kind.config_class.from_pretrained(folder))
    return model.train()


def tokenise(folder: Path, texts: Sequence[str]) -> dict[str, torch.Tensor]:
    """Return `input_ids` and `attention_mask` of captions, int64, shape (C, longest)."""
    from transformers import AutoTokenizer

    encoded = AutoTokenizer.from_pretrained(folder)(list(texts), padding=True, return_tensors="pt")
    return {name: encoded[name] for name in ("input_ids", "attention_mask")}
