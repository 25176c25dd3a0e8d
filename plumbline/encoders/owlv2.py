"""OWLv2 and OWL-ViT: open-vocabulary detectors, whose class logits are linear in the query of a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from plumbline.checkpoints.device import Placement
from plumbline.checkpoints.folders import CheckpointFiles
from plumbline.encoders.torch_encoder import as_rows
from plumbline.encoders.transformers_encoder import TransformersEncoder
from plumbline.errors import EncodingError

if TYPE_CHECKING:
    import torch

# What the class head adds to a norm before it divides by it.
_EPSILON = 1e-6


class Owlv2Encoder(TransformersEncoder):
    """OWLv2, with the mean over patches of the class logits as the match of an image and a text.

    A patch p answers a unit query q with (x_p·q + shift_p) scale_p, x_p its unit class embedding. The mean over patches
    is therefore a product of one vector an image, [mean scale_p x_p, mean shift_p scale_p], and one a text, [q, 1]:
    one pass of the image tower answers every prompt there will ever be. Implements
    `plumbline.encoders.encoder.DualEncoder`; see TransformersEncoder for parameters and errors.
    """

    model_class = "Owlv2ForObjectDetection"
    processor_class = "Owlv2Processor"
    # A constant of the box head that some files hold and the model computes; boxes play no part.
    other_heads: ClassVar[tuple[str, ...]] = ("box_bias",)
    # The head is small, and its means are what is kept.
    kept_in_float32 = ("class_head.",)
    tower: ClassVar[str] = "owlv2"
    """Attribute of the model that holds both towers."""

    def __init__(self, files: CheckpointFiles, placement: Placement) -> None:
        super().__init__(files, placement)
        self._towers: Any = getattr(self._model, self.tower)
        self._compile((self._towers.vision_model.encoder, self._towers.text_model.encoder))
        self.width = int(self._model.config.text_config.hidden_size) + 1
        self.logit_scale, self.logit_bias = 1.0, 0.0

    def embed_images(self, batch: torch.Tensor) -> NDArray[np.float32]:
        """Return (b, D + 1) responses of images: a product with a text's vector is the mean class logit."""
        import torch

        with self._forward():
            patches = self._model.image_embedder(pixel_values=self._pixels(batch))[0].flatten(1, 2)
            patches, head = patches.float(), self._model.class_head
            classes = _unit(head.dense0(patches))
            scale = head.elu(head.logit_scale(patches)) + 1
            shift = head.logit_shift(patches)
            return as_rows(torch.cat([(classes * scale).mean(1), (shift * scale).mean(1)], dim=1))

    def embed_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return (b, D + 1) queries of texts, with a last 1 for the part of a response that no text changes.

        Raises
        ------
        EncodingError
            If a text is too long, or begins with token 0: the model takes such a query for padding.
        """
        import torch

        tokens = self._tokens(texts)
        if bool((padding := tokens["input_ids"][:, 0] == 0).any()):
            raise EncodingError(
                "the model takes a text that begins with token 0 for padding, and gives it no logit",
                where=texts[int(padding.int().argmax())],
                found="first token 0",
                expected="a tokenizer whose start token is another",
            )
        with self._forward():
            embedded = self._towers.get_text_features(**tokens).pooler_output.float()
            queries = _unit(embedded / torch.linalg.norm(embedded, dim=-1, keepdim=True))
            return as_rows(torch.cat([queries, torch.ones_like(queries[:, :1])], dim=1))


class OwlVitEncoder(Owlv2Encoder):
    """OWL-ViT; also OWLv2 weights in the OWL-ViT classes and with their preprocessing, where the audit says so.

    The towers have another name there, and OWLv2's objectness head has no place: without the renaming below,
    transformers would leave both towers random.
    """

    model_class = "OwlViTForObjectDetection"
    processor_class = "OwlViTProcessor"
    image_processor_class = "OwlViTImageProcessorPil"
    tower = "owlvit"
    other_heads = ("objectness_head.", "box_bias")
    renamed: ClassVar[dict[str, str]] = {r"^owlv2\.": "owlvit."}


def _unit(rows: torch.Tensor) -> torch.Tensor:
    import torch

    return rows / (torch.linalg.norm(rows, dim=-1, keepdim=True) + _EPSILON)
