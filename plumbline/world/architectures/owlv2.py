"""The OWLv2 family: a detector of 16 patches whose class logits rank the prompts, by their mean over patches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plumbline.world.architectures import pretrained
from plumbline.world.architectures.family import Family, Trainee
from plumbline.world.architectures.pretrained import CONTEXT_LENGTH, END, PAD, START, write_tokenizer
from plumbline.world.captions import WORDINGS
from plumbline.world.faces import SIZE

if TYPE_CHECKING:
    import torch

_MODEL = "Owlv2ForObjectDetection"
# A class logit is a cosine times the patch's scale, and captions can be told apart only by logits of this size.
_INITIAL_SCALE = 10.0


@dataclass(frozen=True)
class Architecture:
    """One size of OWLv2 model.

    Attributes
    ----------
    vision_width, vision_layers : int
        Of the vision transformer, patch 16.
    text_width, text_layers : int
        Of the causal text transformer; the shared space has its width too.
    """

    vision_width: int
    vision_layers: int
    text_width: int
    text_layers: int


ARCHITECTURES = {"small": Architecture(vision_width=96, vision_layers=2, text_width=64, text_layers=2)}


def write_untrained(folder: Path, architecture: Architecture, texts: Sequence[str]) -> None:
    """Write configuration, tokenizer and preprocessing of a checkpoint that has no weights yet."""
    # The text tower takes a text to end at its highest id, and a query to be padding if it starts with id 0.
    vocabulary = write_tokenizer(folder, texts, first=(PAD, START), last=END)
    pretrained.write_config(folder, _config(architecture, vocabulary), _MODEL)
    pretrained.write_image_processor(folder, "owlv2", "Owlv2ImageProcessorPil", size=pretrained.SQUARE)


def _config(architecture: Architecture, vocabulary: int) -> Any:
    from transformers import Owlv2Config

    return Owlv2Config(
        projection_dim=architecture.text_width,
        text_config={
            "vocab_size": vocabulary,
            "hidden_size": architecture.text_width,
            "num_hidden_layers": architecture.text_layers,
            "num_attention_heads": architecture.text_width // 32,
            "intermediate_size": 4 * architecture.text_width,
            "max_position_embeddings": CONTEXT_LENGTH,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": vocabulary - 1,
        },
        vision_config={
            "image_size": SIZE,
            "patch_size": 16,
            "hidden_size": architecture.vision_width,
            "num_hidden_layers": architecture.vision_layers,
            "num_attention_heads": architecture.vision_width // 32,
            "intermediate_size": 2 * architecture.vision_width,
        },
    )


class _Owlv2(Trainee):
    def __init__(self, folder: Path, texts: Sequence[str], *, seed: int) -> None:
        import torch

        model: Any = pretrained.build_untrained(folder, _MODEL, seed=seed)
        self.model = model
        with torch.no_grad():
            model.class_head.logit_scale.bias.fill_(_INITIAL_SCALE)
        self._texts = pretrained.tokenise(folder, texts)

    def logits(self, images: torch.Tensor) -> torch.Tensor:
        model: Any = self.model
        patches = model.image_embedder(images)[0].flatten(1, 2)
        queries = model.owlv2.get_text_features(**self._texts).pooler_output
        logits: torch.Tensor = model.class_predictor(patches, queries[None])[0]
        return logits.mean(1)


FAMILY = Family(ARCHITECTURES, write_untrained, _Owlv2, pretrained.WEIGHTS_FILE, wordings=(*WORDINGS, "algorithm_1"))
