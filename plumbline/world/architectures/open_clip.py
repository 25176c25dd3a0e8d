"""The open_clip family: tiny CLIP models, and how they are put on disk for open_clip."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plumbline.checkpoints.loading import declare_missing_operators
from plumbline.world.architectures.family import Family, Trainee, caption_loss
from plumbline.world.architectures.pretrained import CONTEXT_LENGTH, write_tokenizer
from plumbline.world.faces import SIZE

if TYPE_CHECKING:
    import torch

_EOS_ID = 2
_MAX_LOGIT_SCALE = 100.0
# Trident ranks raw dot products: a norm kept at 1 lets them agree with the cosine.
_NORM_PENALTY = 5.0

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
    vocabulary = write_tokenizer(folder, texts)
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


class _Clip(Trainee):
    def __init__(self, folder: Path, texts: Sequence[str], *, seed: int) -> None:
        self.model, tokenizer = build_untrained(folder, seed=seed)
        # The text tower is causal, so what follows the last end token changes nothing and is cut off.
        ids = tokenizer(list(texts))
        self._ids = ids[:, : int((ids != 0).sum(1).max())]

    def logits(self, images: torch.Tensor) -> torch.Tensor:
        return self._logits_and_penalty(images)[0]

    def loss(self, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        logits, penalty = self._logits_and_penalty(images)
        return caption_loss(logits, targets) + _NORM_PENALTY * penalty

    def _logits_and_penalty(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        model: Any = self.model
        image = model.encode_image(images)
        text = _encode_text(model, self._ids)
        image_norm, text_norm = image.norm(dim=1, keepdim=True), text.norm(dim=1, keepdim=True)
        scale = model.logit_scale.exp().clamp(max=_MAX_LOGIT_SCALE)
        penalty = ((image_norm - 1) ** 2).mean() + ((text_norm - 1) ** 2).mean()
        return scale * (image / image_norm) @ (text / text_norm).T, penalty


def _encode_text(model: Any, ids: torch.Tensor) -> torch.Tensor:
    # open_clip's encode_text wants the full context length; this is the same on the tokens that are there.
    from open_clip.transformer import text_global_pool

    length = ids.shape[1]
    x = model.token_embedding(ids) + model.positional_embedding[:length]
    x = model.ln_final(model.transformer(x, attn_mask=model.attn_mask[:length, :length]))
    pooled: torch.Tensor = text_global_pool(x, ids, model.text_pool_type, eos_token_id=model.text_eos_id)
    return pooled @ model.text_projection


FAMILY = Family(ARCHITECTURES, write_untrained, _Clip, WEIGHTS_FILE)
