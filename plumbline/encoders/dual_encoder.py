"""Dual encoders of transformers: every architecture with an image tower and a text tower that share a space.

One adapter: the model's own `get_image_features` and `get_text_features`, its classes as transformers maps its
`model_type`, and scale, bias, padding and text length from the checkpoint's own files. What a type does in another way
is a class of a few lines below.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from plumbline.checkpoints.addresses import TRANSFORMERS_CONFIG
from plumbline.checkpoints.device import Placement
from plumbline.checkpoints.folders import CheckpointFiles, read_configuration
from plumbline.encoders.torch_encoder import as_rows, replaced_embeddings, require_start, with_placeholders
from plumbline.encoders.transformers_encoder import Classes, ImageProcessor, TransformersEncoder
from plumbline.errors import CheckpointError

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image

_TOWERS = ("vision_model", "image_model", "text_model")
_METHODS = ("get_image_features", "get_text_features")


class DualTowers(TransformersEncoder):
    """An image tower and a text tower that project into one space: `plumbline.encoders.encoder.DualEncoder`.

    The model's own logit is `logit_scale` x cosine + `logit_bias`. The bias is 0 but for models that were trained with
    a sigmoid (SigLIP): there 1 / (1 + exp(-logit)) is the probability of a match, and a softmax or a choice over
    candidates is the same with the bias or without it. See TransformersEncoder for parameters and errors.
    """

    model_class = ""
    """By default the class that transformers maps the `model_type` to; so with the processor."""

    processor_class = ""

    def __init__(self, files: CheckpointFiles, placement: Placement) -> None:
        super().__init__(files, placement)
        self.logit_scale, self.logit_bias = scale_and_bias(self._model, files.folder)
        self.width = int(self.embed_texts(["a photo"]).shape[1])
        towers = [getattr(self._model, name) for name in _TOWERS if hasattr(self._model, name)]
        self._compile(getattr(tower, "encoder", tower) for tower in towers)

    def embed_images(self, batch: torch.Tensor) -> NDArray[np.float32]:
        """Return (b, d) projected image embeddings, float32, not normalised."""
        with self._forward():
            return as_rows(vectors(self._model.get_image_features(**self._image_inputs(batch))))

    def embed_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return (b, d) projected text embeddings, float32, not normalised."""
        with self._forward():
            return as_rows(vectors(self._model.get_text_features(**self._tokens(texts))))

    @classmethod
    def classes(cls, folder: Path) -> Classes:
        """Return the classes of transformers that read a folder.

        Raises
        ------
        CheckpointError
            If transformers has no model of this type with both methods, or no processor.
        """
        import transformers
        from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES
        from transformers.models.auto.processing_auto import PROCESSOR_MAPPING_NAMES

        model_type = str(read_configuration(folder / TRANSFORMERS_CONFIG).get("model_type"))
        names = (
            cls.model_class or MODEL_MAPPING_NAMES.get(model_type),
            cls.processor_class or PROCESSOR_MAPPING_NAMES.get(model_type),
        )
        model = getattr(transformers, str(names[0]), None)
        lacking = [method for method in _METHODS if not hasattr(model, method)]
        if lacking or names[1] is None:
            raise CheckpointError(
                "this checkpoint is no dual encoder that transformers knows",
                where=folder / TRANSFORMERS_CONFIG,
                found=f"model_type: {model_type}, class {names[0]}, processor {names[1]}",
                expected=f"a model with {' and '.join(_METHODS)}, and a processor of images and texts",
            )
        return Classes(str(names[0]), str(names[1]))

    def _image_inputs(self, batch: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"pixel_values": self._pixels(batch)}


class PromptedTowers(DualTowers):
    """Dual towers whose texts have a start token, so that learned vectors can stand before the words."""

    def token_vectors(self, word: str) -> torch.Tensor:
        """Return the (k, w) input embeddings of a word's tokens, to start learned tokens from."""
        ids = self._tokenizer(word, add_special_tokens=False, return_tensors="pt")["input_ids"][0]
        vectors: torch.Tensor = self._token_layer()(ids.to(self.device)).detach()
        return vectors

    def differentiable_texts(self, texts: Sequence[str], learned: torch.Tensor) -> torch.Tensor:
        """Return (b, d) embeddings of texts that begin with (k, w) learned vectors; gradients reach `learned`."""
        import torch

        tokens = self._tokens(texts)
        require_start(tokens["input_ids"], (self._tokenizer.bos_token_id, self._tokenizer.cls_token_id))
        count, mask = learned.shape[0], tokens["attention_mask"]
        tokens["input_ids"] = with_placeholders(tokens["input_ids"], count)
        tokens["attention_mask"] = torch.cat([mask[:, :1].expand(-1, count), mask], dim=1)[:, : mask.shape[1]]
        with self._forward(gradients=True), replaced_embeddings(self._token_layer(), learned):
            return vectors(self._model.get_text_features(**tokens)).float()

    def _token_layer(self) -> Any:
        return self._model.text_model.get_input_embeddings()


def vectors(features: Any) -> torch.Tensor:
    """Return (b, d) of what a model's method gives; FLAVA's projects every token, of which the first is compared."""
    pooled: torch.Tensor = getattr(features, "pooler_output", features)
    return pooled[:, 0] if pooled.ndim == 3 else pooled


def scale_and_bias(model: Any, where: Path | str) -> tuple[float, float]:
    """Return what a model multiplies a cosine by, and what it adds."""
    bias = float(model.logit_bias.item()) if hasattr(model, "logit_bias") else 0.0
    if hasattr(model, "logit_scale"):
        return float(model.logit_scale.exp().item()), bias
    if hasattr(model, "temperature"):
        return 1 / float(model.temperature.item()), bias
    raise CheckpointError(
        "this model has no scale of its own from cosine to logit",
        where=where,
        found=type(model).__name__,
        expected="a weight logit_scale or temperature",
    )


# What single types do in another way.


class AlignTowers(PromptedTowers):
    """ALIGN, an EfficientNet beside a BERT, whose joined processor pads to 64 tokens; see DualTowers."""

    padded_to = 64


class AltClipTowers(PromptedTowers):
    """AltCLIP: CLIP beside XLM-R, trained on texts of up to 77 tokens; see DualTowers."""

    padded_to = 77

    @classmethod
    def longest_text(cls, config: Any) -> int:
        """Return how many tokens a text may have."""
        # The positions of this text tower begin after the padding token's.
        return int(config.text_config.max_position_embeddings) - int(config.text_config.pad_token_id) - 1


class ChineseClipTowers(PromptedTowers):
    """Chinese-CLIP: CLIP beside a Chinese BERT, trained on texts of 52 tokens; see DualTowers."""

    padded_to = 52


class FlavaTowers(PromptedTowers):
    """FLAVA's two unimodal towers and their contrastive projection, on texts of 77 tokens; see DualTowers."""

    padded_to = 77
    # Released checkpoints hold the whole of pre-training.
    other_heads = ("image_codebook.", "mim_head.", "mlm_head.", "itm_head.", "mmm_image_head.", "mmm_text_head.")


class SiglipTowers(DualTowers):
    """SigLIP, and SigLIP 2 of a fixed size: trained with a sigmoid, on texts that are padded to the full length.

    The text tower reads its last position, padding or not: texts are padded on the side that the tokenizer says. See
    DualTowers.
    """

    left_padding = True


class NaflexTowers(SiglipTowers):
    """SigLIP 2 NaFlex: an image keeps its proportions and becomes up to `max_num_patches` patches; see DualTowers."""

    padded_to = 64

    def _image_processor(self, joined: Any, folder: Path) -> ImageProcessor:
        return PatchProcessor(joined, folder=folder)

    def _image_inputs(self, batch: torch.Tensor) -> dict[str, torch.Tensor]:
        patches, mask, shapes = self._images.unpacked(self._pixels(batch), batch)
        return {"pixel_values": patches, "pixel_attention_mask": mask, "spatial_shapes": shapes}


class Tipsv2Towers(DualTowers):
    """TIPS v2: its image processor runs on torchvision alone, and its tokenizer puts nothing before a text."""

    padded_to = 64
    image_backend = "torchvision"


class PatchProcessor(ImageProcessor):
    """Preprocessing into patches, in one tensor for the engine: (3, n + 1, p x p), uint8.

    Row 0 holds rows and columns of patches, in two bytes each; rows 1 to n the patches, of which those behind the
    image's are 0. A patch is p x p pixels, of each channel apart.
    """

    _SHAPE: ClassVar[tuple[int, int]] = (256, 1)

    def prepare(self, image: Image) -> torch.Tensor:
        """Return (3, n + 1, p x p), uint8."""
        import torch

        prepared = self._images(image, return_tensors="np", do_rescale=False, do_normalize=False)
        patches = prepared["pixel_values"][0]
        patches = patches.reshape(len(patches), -1, 3).transpose(2, 0, 1)
        packed = np.zeros((3, patches.shape[1] + 1, patches.shape[2]), dtype=np.uint8)
        packed[:, 1:] = patches
        packed[0, 0, :4] = [part for side in prepared["spatial_shapes"][0] for part in divmod(int(side), 256)]
        return torch.from_numpy(packed)

    def unpacked(self, pixels: torch.Tensor, batch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return (b, n, 3 p x p) patches, (b, n) mask and (b, 2) shapes of normalised and of prepared rows."""
        import torch

        patches = pixels[:, :, 1:].permute(0, 2, 3, 1).flatten(2)
        sides = batch[:, 0, 0, :4].to(pixels.device).long().view(-1, 2, 2)
        shapes = (sides * torch.tensor(self._SHAPE, device=pixels.device)).sum(dim=2)
        mask = torch.arange(patches.shape[1], device=pixels.device)[None] < shapes.prod(dim=1)[:, None]
        # The checkpoint's own pads after it normalised.
        return patches * mask[..., None], mask.int(), shapes

    def _normalisation(self) -> Any:
        # The joined processor has a number and size of patches of its own; the checkpoint's decide.
        self._defaults = {}
        self._whole = self._images
        return super()._normalisation()

    def _in_two_parts(self, image: Image) -> NDArray[np.float32]:
        batch = self.prepare(image)[None]
        return np.asarray(self.unpacked(self.normalisation(batch, device="cpu"), batch)[0].numpy())
