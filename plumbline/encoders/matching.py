"""BLIP and BLIP-2 by their image-text matching heads: cross-encoders, which must see image and text together."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from plumbline.checkpoints.device import Placement
from plumbline.checkpoints.folders import CheckpointFiles
from plumbline.encoders.torch_encoder import as_rows
from plumbline.encoders.transformers_encoder import TransformersEncoder

if TYPE_CHECKING:
    import torch

# Pairs in the text tower at once: with the large towers, about half a gigabyte of activations.
PAIRS_AT_ONCE = 32
# The two halves of the matching head: no match, match.
_MATCH = 1


class BlipEncoder(TransformersEncoder):
    """BLIP's image-text-matching logit. Implements `plumbline.encoders.encoder.PairEncoder`.

    The image tower runs once an image; every layer of the text tower looks at the image, so that it runs once a pair.
    See TransformersEncoder for parameters and errors.
    """

    model_class = "BlipForImageTextRetrieval"
    processor_class = "BlipProcessor"
    # Its matching head was trained on texts of this length.
    padded_to = 35

    def __init__(self, files: CheckpointFiles, placement: Placement) -> None:
        super().__init__(files, placement)
        self._compile((self._model.vision_model, self._text_tower()))

    def score_pairs(self, batch: torch.Tensor, *suites: Sequence[str]) -> NDArray[np.float32]:
        """Return the (b, m) matching logits of a batch of `prepare`d images against the m texts of suites, float32."""
        with self._forward():
            images = None
            if len(batch):
                images = self._model.vision_model(pixel_values=self._pixels(batch)).last_hidden_state
            return np.concatenate([self._score(images, len(batch), texts) for texts in suites], axis=1)

    def _score(self, images: Any, rows: int, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the (b, m) logits of one suite: no other shares a pass, whose last bits go by what is in it."""
        import torch

        if images is None or not texts:
            return np.zeros((rows, len(texts)), dtype=np.float32)
        tokens = self._tokens(texts)
        pairs = torch.tensor(list(product(range(rows), range(len(texts)))), device=self.device)
        logits = [
            self._match(images[part[:, 0]], tokens["input_ids"][part[:, 1]], tokens["attention_mask"][part[:, 1]])
            for part in pairs.split(PAIRS_AT_ONCE)
        ]
        return as_rows(torch.cat(logits).reshape(rows, len(texts)))

    def _text_tower(self) -> Any:
        return self._model.text_encoder

    def _match(self, images: torch.Tensor, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the (p,) logits of p states of images, each with its text."""
        import torch

        seen = self._model.text_encoder(
            input_ids=ids,
            attention_mask=mask,
            encoder_hidden_states=images,
            encoder_attention_mask=torch.ones(images.shape[:-1], dtype=torch.long, device=images.device),
        ).last_hidden_state
        logits: torch.Tensor = self._model.itm_head(seen[:, 0])[:, _MATCH]
        return logits


class Blip2Encoder(BlipEncoder):
    """BLIP-2's image-text-matching logit: the mean over the query tokens of its Q-Former; see BlipEncoder."""

    model_class = "Blip2ForImageTextRetrieval"
    processor_class = "Blip2Processor"
    padded_to = 32

    def _text_tower(self) -> Any:
        return self._model.qformer

    def _longest_text(self, text_config: Any) -> int:
        # The text that is matched is the Q-Former's; the language model of the configuration plays no part.
        return int(self._model.config.qformer_config.max_position_embeddings)

    def _match(self, images: torch.Tensor, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """See BlipEncoder."""
        import torch

        queries = self._model.query_tokens.expand(len(images), -1, -1)
        count = queries.shape[1]
        seen = self._model.qformer(
            query_embeds=self._model.embeddings(input_ids=ids, query_embeds=queries),
            query_length=count,
            attention_mask=torch.cat([mask.new_ones((len(mask), count)), mask], dim=1),
            encoder_hidden_states=images,
            encoder_attention_mask=torch.ones(images.shape[:-1], dtype=torch.long, device=images.device),
            return_dict=True,
        ).last_hidden_state
        logits: torch.Tensor = self._model.itm_head(seen[:, :count])[..., _MATCH].mean(dim=1)
        return logits
