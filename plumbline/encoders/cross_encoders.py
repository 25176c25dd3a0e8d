"""Cross-encoders, which must see image and text together: BridgeTower, BLIP and BLIP-2 by their matching heads."""

from __future__ import annotations

from collections import OrderedDict
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

# Pairs in the cross-modal stack at once: with large towers, about half a gigabyte of activations.
PAIRS_AT_ONCE = 32
# Prompts whose states stay on the device; those of a large tower take about 0.3 MB each.
PROMPTS_KEPT = 512
# The two halves of the image-text-matching head: no match, match.
_MATCH = 1


class BridgeTowerEncoder(TransformersEncoder):
    """BridgeTower's image-text-matching logit. Implements `plumbline.encoders.encoder.PairEncoder`.

    The stack of a tower does not see the other one: it runs once an image and once a prompt, and leaves what each
    cross-modal layer takes from it. Only those layers and the links into them run for a pair. Images are never
    padded after the centre crop, and the model takes no notice of a pixel mask. See TransformersEncoder for parameters
    and errors.
    """

    model_class = "BridgeTowerForImageAndTextRetrieval"
    processor_class = "BridgeTowerProcessor"
    # Released checkpoints hold the heads of all three pre-training tasks.
    other_heads = ("mlm_score.", "itc_text_head.", "itc_image_head.", "itc_cross_modal_head.", "logit_scale")

    def __init__(self, files: CheckpointFiles, placement: Placement) -> None:
        super().__init__(files, placement)
        self._inner: Any = self._model.bridgetower
        inner = self._inner
        self._compile(
            (
                *inner.text_model.encoder.layer,
                *inner.vision_model.visual.transformer.resblocks,
                *inner.cross_modal_text_layers,
                *inner.cross_modal_image_layers,
            )
        )
        # The cross-modal layers start beside this many layers of each tower.
        self._split = len(inner.text_model.encoder.layer) - inner.config.num_hidden_layers + 1
        self._prompts: OrderedDict[str, list[torch.Tensor]] = OrderedDict()

    def score_pairs(self, batch: torch.Tensor, *suites: Sequence[str]) -> NDArray[np.float32]:
        """Return the (b, m) matching logits of a batch of `prepare`d images against the m texts of suites, float32."""
        with self._forward():
            images = self._image_states(self._pixels(batch)) if len(batch) else []
            return np.concatenate([self._score(images, len(batch), texts) for texts in suites], axis=1)

    def _score(self, images: Sequence[torch.Tensor], rows: int, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the (b, m) logits of one suite: no other shares a pass, whose last bits go by what is in it."""
        import torch

        prompts = [self._prompt(text) for text in texts]
        pairs = list(product(range(rows), range(len(texts))))
        logits = [
            self._cross(images, prompts, pairs[first : first + PAIRS_AT_ONCE])
            for first in range(0, len(pairs), PAIRS_AT_ONCE)
        ]
        if not logits:
            return np.zeros((rows, len(texts)), dtype=np.float32)
        return as_rows(torch.cat(logits).reshape(rows, len(texts)))

    @classmethod
    def longest_text(cls, config: Any) -> int:
        """Return how many tokens a text may have."""
        # The positions of this text tower begin after the padding token's.
        return int(config.text_config.max_position_embeddings) - int(config.text_config.pad_token_id) - 1

    def _prompt(self, text: str) -> list[torch.Tensor]:
        """Return the states of a prompt, one a cross-modal layer, (n, width); kept for the next batch."""
        states = self._prompts.pop(text, None)
        if states is None:
            states = self._text_states(text)
        self._prompts[text] = states
        while len(self._prompts) > PROMPTS_KEPT:
            self._prompts.popitem(last=False)
        return states

    def _text_states(self, text: str) -> list[torch.Tensor]:
        # Alone and without padding, so that a prompt's states do not depend on the prompts that it came with.
        tower = self._inner.text_model
        hidden, states = tower.embeddings(input_ids=self._unpadded_ids(text)), []
        for depth, layer in enumerate(tower.encoder.layer, start=1):
            hidden = layer(hidden, None)
            if depth >= self._split:
                states.append(self._inner._apply_text_transform(hidden, depth - self._split) + self._token_type(0))
        states[0] = self._inner.cross_modal_text_layernorm(states[0])
        return [state[0] for state in states]

    def _image_states(self, pixels: torch.Tensor) -> list[torch.Tensor]:
        """Return the states of images, one a cross-modal layer, (b, patches, width)."""
        tower = self._inner.vision_model.visual
        depths = len(self._inner.text_model.encoder.layer)
        hidden, states = tower.forward_pre(pixels), []
        for depth, block in enumerate(tower.transformer.resblocks[:depths], start=1):
            hidden = block(hidden)
            if depth >= self._split:
                seen = tower.forward_post(hidden)
                states.append(self._inner._apply_image_transform(seen, depth - self._split) + self._token_type(1))
        states[0] = self._inner.cross_modal_image_layernorm(states[0])
        return states

    def _token_type(self, kind: int) -> torch.Tensor:
        row: torch.Tensor = self._inner.token_type_embeddings.weight[kind]
        return row

    def _cross(
        self,
        images: Sequence[torch.Tensor],
        prompts: Sequence[Sequence[torch.Tensor]],
        pairs: Sequence[tuple[int, int]],
    ) -> torch.Tensor:
        """Return the (p,) matching logits of pairs of an image and a prompt, by their positions."""
        import torch
        from torch.nn.utils.rnn import pad_sequence

        inner = self._inner
        of_image = torch.tensor([i for i, _ in pairs], device=self.device)
        mask = self._mask([len(prompts[j][0]) for _, j in pairs], like=images[0])
        text = image = torch.empty(0)
        for layer, states in enumerate(images):
            of_layer = pad_sequence([prompts[j][layer] for _, j in pairs], batch_first=True)
            seen = states.index_select(0, of_image)
            if layer == 0:
                text, image = of_layer, seen
            else:
                text = inner.cross_modal_text_link_tower[layer - 1](of_layer, text, mask)
                image = inner.cross_modal_image_link_tower[layer - 1](seen, image, None)
            text, image = (
                inner.cross_modal_text_layers[layer](text, image, attention_mask=mask)[0],
                inner.cross_modal_image_layers[layer](image, text, encoder_attention_mask=mask)[0],
            )
        logits: torch.Tensor = self._model.itm_score(inner.get_cls_features(text, image))[:, _MATCH]
        return logits

    def _mask(self, lengths: Sequence[int], *, like: torch.Tensor) -> Any:
        """Return the model's own attention mask for texts padded to the longest."""
        import torch
        from transformers.masking_utils import create_bidirectional_mask

        present = torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]
        return create_bidirectional_mask(
            config=self._inner.config,
            # As the model asks for it: one row of queries, whatever attends.
            inputs_embeds=like.new_empty((len(lengths), 1, like.shape[-1])),
            attention_mask=present.long().to(self.device),
        )


# --- BLIP and BLIP-2, by their image-text matching heads.


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

    @classmethod
    def longest_text(cls, config: Any) -> int:
        """Return how many tokens a text may have."""
        # The text that is matched is the Q-Former's; the language model of the configuration plays no part.
        return int(config.qformer_config.max_position_embeddings)

    def _match(self, images: torch.Tensor, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """See BlipEncoder."""
        import torch

        queries = self._model.query_tokens.expand(len(images), -1, -1)
        count = queries.shape[1]
        seen = self._model.qformer(
            query_embeds=self._model.embeddings(input_ids=ids, query_embeds=queries),
            query_length=count,
            attention_mask=torch.cat([mask.new_ones((len(mask), count)), mask], dim=1),
            # No mask: all of the image is seen. Compiled, transformers would make one for queries and text together,
            # of which only the queries look at the image.
            encoder_hidden_states=images,
            return_dict=True,
        ).last_hidden_state
        logits: torch.Tensor = self._model.itm_head(seen[:, :count])[..., _MATCH].mean(dim=1)
        return logits
