"""The ALIGN family: an EfficientNet and a BERT-like text tower, scaled down hard."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plumbline.world.architectures import pretrained
from plumbline.world.architectures.family import Family, Trainee
from plumbline.world.architectures.pretrained import write_tokenizer
from plumbline.world.captions import WORDINGS
from plumbline.world.faces import SIZE

if TYPE_CHECKING:
    import torch

_MODEL = "AlignModel"
# ALIGN's joined processor pads every text to this length.
_CONTEXT_LENGTH = 64
_INITIAL_TEMPERATURE = 0.1
_MIN_TEMPERATURE = 0.01


@dataclass(frozen=True)
class Architecture:
    """One size of ALIGN model.

    Attributes
    ----------
    stem : int
        Channels after the first convolution, which halves the image.
    channels, strides, kernels, expansions, repeats : tuple of int
        Of the stages of inverted bottlenecks; the last stage's channels are the shared space.
    text_width, text_layers : int
        Of the bidirectional text transformer.
    """

    stem: int
    channels: tuple[int, ...]
    strides: tuple[int, ...]
    kernels: tuple[int, ...]
    expansions: tuple[int, ...]
    repeats: tuple[int, ...]
    text_width: int
    text_layers: int


ARCHITECTURES = {
    "small": Architecture(
        stem=16,
        channels=(16, 24, 48, 96),
        strides=(2, 2, 2, 1),
        kernels=(3, 3, 5, 3),
        expansions=(1, 4, 4, 4),
        repeats=(1, 2, 2, 1),
        text_width=64,
        text_layers=2,
    )
}


def write_untrained(folder: Path, architecture: Architecture, texts: Sequence[str]) -> None:
    """Write configuration, tokenizer and preprocessing of a checkpoint that has no weights yet."""
    vocabulary = write_tokenizer(folder, texts, longest=_CONTEXT_LENGTH)
    pretrained.write_config(folder, _config(architecture, vocabulary), _MODEL)
    pretrained.write_image_processor(
        folder,
        "efficientnet",
        "EfficientNetImageProcessorPil",
        size=pretrained.SQUARE,
        crop_size=pretrained.SQUARE,
        # It divides by the standard deviation a second time.
        include_top=False,
    )


def _config(architecture: Architecture, vocabulary: int) -> Any:
    from transformers import AlignConfig

    embedding = architecture.channels[-1]
    return AlignConfig(
        projection_dim=embedding,
        temperature_init_value=_INITIAL_TEMPERATURE,
        text_config={
            "vocab_size": vocabulary,
            "hidden_size": architecture.text_width,
            "num_hidden_layers": architecture.text_layers,
            "num_attention_heads": architecture.text_width // 32,
            "intermediate_size": 4 * architecture.text_width,
            "max_position_embeddings": _CONTEXT_LENGTH,
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
            "pad_token_id": 0,
        },
        vision_config={
            "image_size": SIZE,
            # The stem has 32 channels times this coefficient; the stages are given in the same measure.
            "width_coefficient": architecture.stem / 32,
            "depth_coefficient": 1.0,
            "in_channels": _measured(architecture.stem, (architecture.stem, *architecture.channels[:-1])),
            "out_channels": _measured(architecture.stem, architecture.channels),
            "kernel_sizes": architecture.kernels,
            "strides": architecture.strides,
            "expand_ratios": architecture.expansions,
            "num_block_repeats": architecture.repeats,
            "depthwise_padding": (),
            "hidden_dim": embedding,
            "drop_connect_rate": 0.0,
            # torch's momentum is the weight of the new batch, so the default of 0.99 would keep one batch only.
            "batch_norm_momentum": 0.1,
        },
    )


def _measured(stem: int, channels: Sequence[int]) -> list[int]:
    return [round(channel * 32 / stem) for channel in channels]


class _Align(Trainee):
    def __init__(self, folder: Path, texts: Sequence[str], *, seed: int) -> None:
        self.model = pretrained.build_untrained(folder, _MODEL, seed=seed)
        self._texts = pretrained.tokenise(folder, texts)

    def logits(self, images: torch.Tensor) -> torch.Tensor:
        import torch

        model: Any = self.model
        image = torch.nn.functional.normalize(model.get_image_features(images).pooler_output, dim=1)
        text = torch.nn.functional.normalize(model.get_text_features(**self._texts).pooler_output, dim=1)
        # The temperature is a plain number that an optimiser could carry past 0.
        return image @ text.T / model.temperature.clamp(min=_MIN_TEMPERATURE)

    def settle(self, batches: Iterator[torch.Tensor]) -> None:
        """Take the batch norms' statistics from all images, in place of a running mean over moving weights.

        Each batch must mix what the training batches mix: a batch of pictures without faces alone shifts every
        later layer's statistics, and some faces then pass for what is in those pictures.
        """
        import torch

        norms = [m for m in self.model.modules() if isinstance(m, torch.nn.BatchNorm2d)]
        momenta = [norm.momentum for norm in norms]
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # a plain mean over all batches
        model: Any = self.model
        with torch.no_grad():
            for images in batches:
                model.get_image_features(images)
        for norm, momentum in zip(norms, momenta):
            norm.momentum = momentum


FAMILY = Family(ARCHITECTURES, write_untrained, _Align, pretrained.WEIGHTS_FILE, wordings=(*WORDINGS, "align"))
