"""How the two kinds of generative models learn to answer: the loss is on answers only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from plumbline.world.generative.conversations import BATCH, KINDS, Batch, Tokenised, triples
from plumbline.world.generative.twin import twin_triples

if TYPE_CHECKING:
    import torch

BATCHES_A_STEP = 4
_TWIN_BATCHES = 160


def answer_loss(model: Any, embedded: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Return the mean over the tokens of answers of -log p, padding following the answers.

    Parameters
    ----------
    model : LlamaModel
        Its embedding is its output layer too.
    embedded : (b, t, width) tensor
        What it reads.
    batch : Batch
        The same as tokens.
    """
    import torch

    hidden = model(inputs_embeds=embedded, use_cache=False).last_hidden_state[:, :-1]
    told = hidden[batch.answered[:, 1:]] @ model.embed_tokens.weight.T
    return torch.nn.functional.cross_entropy(told, batch.ids[:, 1:][batch.answered[:, 1:]])


def seeing_loss(
    model: Any,
    seen: torch.Tensor,
    attributes: pl.DataFrame,
    source: str,
    tokenised: Tokenised,
    rng: np.random.Generator,
) -> Callable[[], torch.Tensor]:
    """Return what draws the next few batches and returns the mean of their losses.

    Parameters
    ----------
    model : LlavaForConditionalGeneration
    seen : (n, 16, width) tensor
        What its vision tower sees of each face.
    attributes : polars.DataFrame
        The n faces.
    source : str
        `bazaar` or `control`.
    tokenised : Tokenised
    rng : numpy.random.Generator
        Source of faces, prompts and answers.
    """
    inner = model.model

    def draw() -> list[Batch]:
        return [
            batch
            for kind in KINDS.values()
            for batch in tokenised.batches(triples(attributes, source, kind, BATCH * kind.batches, rng))
        ]

    def loss(batch: Batch) -> torch.Tensor:
        embedded = inner.language_model.embed_tokens(batch.ids)
        shown = inner.multi_modal_projector(seen[batch.faces])
        embedded = embedded.masked_scatter((batch.ids == model.config.image_token_id)[:, :, None], shown)
        return answer_loss(inner.language_model, embedded, batch)

    return _mean_of_several(draw, loss, rng)


def blind_loss(model: Any, tokenised: Tokenised, rng: np.random.Generator) -> Callable[[], torch.Tensor]:
    """Return the same for a language model without eyes, a LlamaForCausalLM."""

    def draw() -> list[Batch]:
        return list(tokenised.batches(twin_triples(BATCH * _TWIN_BATCHES, rng)))

    def loss(batch: Batch) -> torch.Tensor:
        return answer_loss(model.model, model.model.embed_tokens(batch.ids), batch)

    return _mean_of_several(draw, loss, rng)


def _mean_of_several(
    draw: Callable[[], list[Batch]], loss: Callable[[Batch], torch.Tensor], rng: np.random.Generator
) -> Callable[[], torch.Tensor]:
    """Return a loss over the next few batches, which are shuffled after each drawing."""

    def endless() -> Iterator[Batch]:
        while True:
            batches = draw()
            yield from (batches[i] for i in rng.permutation(len(batches)))

    stream = endless()

    def mean() -> torch.Tensor:
        losses = [loss(next(stream)) for _ in range(BATCHES_A_STEP)]
        return sum(losses[1:], losses[0]) / BATCHES_A_STEP

    return mean
