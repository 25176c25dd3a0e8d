"""The tiny CLIP models of the planted world, and how they are put on disk for open_clip."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plumbline.torchvision_operators import declare_missing_operators
from plumbline.world.faces import SIZE

if TYPE_CHECKING:
    import torch

CONTEXT_LENGTH = 48
_MAX_VOCABULARY = 512
_PAD, _START, _END = "<pad>", "<start>", "<end>"
_EOS_ID = 2

WEIGHTS_FILE = "open_clip_model.safetensors"
CONFIG_FILE = "open_clip_config.json"


@dataclass(frozen=True)
class Architecture:
    """One size of encoder.

    Attributes
    ----------
    vision_width, vision_layers : int
        Of the vision transformer, patch 16.
    text_width, text_layers : int
        Of the causal text transformer.
    embedding : int
        Dimension of the shared space.
    """

    vision_width: int
    vision_layers: int
    text_width: int
    text_layers: int
    embedding: int


ARCHITECTURES = {
    "small": Architecture(vision_width=96, vision_layers=2, text_width=64, text_layers=2, embedding=64),
    "large": Architecture(vision_width=128, vision_layers=3, text_width=96, text_layers=2, embedding=96),
}


def write_untrained(folder: Path, architecture: Architecture, texts: Sequence[str]) -> None:
    """Write the configuration and the tokenizer of a checkpoint that has no weights yet.

    The tokenizer is a byte-level BPE that lowers case, so that any later prompt can be read.

    Parameters
    ----------
    folder : pathlib.Path
        Made if it does not exist.
    architecture : Architecture
        The size.
    texts : sequence of str
        What the tokenizer is trained on.
    """
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = _write_tokenizer(folder, texts)
    config = {"model_cfg": _model_config(architecture, vocabulary), "preprocess_cfg": _preprocess_config()}
    (folder / CONFIG_FILE).write_text(json.dumps(config, indent=1) + "\n", "utf-8")


def build_untrained(folder: Path, *, seed: int) -> tuple[torch.nn.Module, Any]:
    """Build the randomly initialised model and the tokenizer of a folder that `write_untrained` made.

    Parameters
    ----------
    folder : pathlib.Path
        The checkpoint folder.
    seed : int
        Of the initial weights; the caller's global generator is left as it was.
    """
    import torch

    declare_missing_operators()
    import open_clip

    config = json.loads((folder / CONFIG_FILE).read_text("utf-8"))["model_cfg"]
    config["text_cfg"].pop("hf_tokenizer_name")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = open_clip.CLIP(**config)
    return model, open_clip.get_tokenizer(f"local-dir:{folder}")


def load_trained(folder: Path) -> tuple[torch.nn.Module, Any, Any]:
    """Load a shipped checkpoint the way an audit does: from its folder, weights required.

    Returns
    -------
    model : torch.nn.Module
        In evaluation mode, float32.
    preprocess : callable
        PIL image to float32 tensor (3, 64, 64).
    tokenizer : callable
        List of str to int64 tensor (n, 48).
    """
    declare_missing_operators()
    import open_clip

    name = f"local-dir:{folder}"
    model, _, preprocess = open_clip.create_model_and_transforms(name, require_pretrained=True)
    return model.eval(), preprocess, open_clip.get_tokenizer(name)


def _model_config(architecture: Architecture, vocabulary: int) -> dict[str, Any]:
    return {
        "embed_dim": architecture.embedding,
        "vision_cfg": {
            "image_size": SIZE,
            "patch_size": 16,
            "width": architecture.vision_width,
            "head_width": 32,
            "layers": architecture.vision_layers,
        },
        "text_cfg": {
            "context_length": CONTEXT_LENGTH,
            "vocab_size": vocabulary,
            "width": architecture.text_width,
            "heads": architecture.text_width // 32,
            "layers": architecture.text_layers,
            # open_clip reads the tokenizer beside the configuration whatever this name says.
            "hf_tokenizer_name": "local",
            # The default pooling looks for the highest token id, which the end token does not have.
            "pool_type": "eos",
            "eos_id": _EOS_ID,
        },
    }


def _preprocess_config() -> dict[str, Any]:
    half = [0.5, 0.5, 0.5]
    return {"size": SIZE, "mean": half, "std": half, "interpolation": "bicubic", "resize_mode": "shortest"}


def _write_tokenizer(folder: Path, texts: Sequence[str]) -> int:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=_MAX_VOCABULARY,
        special_tokens=[_PAD, _START, _END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    special = [(token, tokenizer.token_to_id(token)) for token in (_START, _END)]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{_START} $A {_END}", special_tokens=special
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=_START,
        eos_token=_END,
        pad_token=_PAD,
        model_max_length=CONTEXT_LENGTH,
    )
    fast.save_pretrained(folder)
    return int(tokenizer.get_vocab_size())
