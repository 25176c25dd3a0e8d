"""Reading prompts and writing answers: what a language model does in one batch, whatever it was shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers.cache_utils import Cache

from plumbline.lvlm.attention_cache import new_cache
from plumbline.lvlm.sampling import RowSeeded

# Rows that are done are taken out of a batch once they are this share of it.
_DONE_SHARE = 0.25


@dataclass
class Read:
    """Prompts that a language model has read.

    Attributes
    ----------
    cache : Cache
        Of p prompts.
    mask : (p, length) int tensor
        1 for tokens, 0 for the padding.
    logits : (p, v) tensor
        Of the first new token.
    """

    cache: Cache
    mask: torch.Tensor
    logits: torch.Tensor

    def rows(self, indices: torch.Tensor) -> Read:
        """Return rows of it, each as often as it is named; this one is used up."""
        self.cache.batch_select_indices(indices)
        return Read(self.cache, self.mask[indices], self.logits[indices])


@dataclass(frozen=True)
class Written:
    """The tokens of one answer, and whether it ended by itself."""

    tokens: list[int]
    stopped: bool


def read_prompts(model: Any, prompts: Sequence[torch.Tensor], before: Cache | None = None) -> Read:
    """Read prompts at once.

    Parameters
    ----------
    model : causal language model of transformers
    prompts : sequence of (n_i, d) tensors
        Input embeddings, of any lengths.
    before : Cache, optional
        What each of them has read already, as many rows, all of one length and without padding. The padding of
        shorter prompts lies between it and them. It is used up.
    """
    read = before.get_seq_length() if before is not None else 0
    width = max(len(prompt) for prompt in prompts)
    embeddings = prompts[0].new_zeros((len(prompts), width, prompts[0].shape[-1]))
    mask = torch.zeros((len(prompts), read + width), dtype=torch.long, device=embeddings.device)
    mask[:, :read] = 1
    for row, prompt in enumerate(prompts):
        embeddings[row, width - len(prompt) :] = prompt
        mask[row, read + width - len(prompt) :] = 1
    positions = (mask.cumsum(-1) - 1).clamp_(min=0)[:, read:]
    output = model(
        inputs_embeds=embeddings,
        attention_mask=mask,
        position_ids=positions,
        past_key_values=before if before is not None else new_cache(),
        use_cache=True,
        logits_to_keep=1,
    )
    return Read(output.past_key_values, mask, output.logits[:, -1])


def write_answers(
    model: Any, read: Read, sampler: RowSeeded, *, stops: Sequence[int], longest: int
) -> list[Written]:
    """Draw tokens for every row until it stops or is `longest` tokens long.

    Parameters
    ----------
    read : Read
        One row an answer; it is used up.
    """
    batch = _Batch(read, torch.tensor(stops, device=read.logits.device), longest)
    while True:
        drawn = sampler.tokens(batch.logits, batch.steps, batch.rows)
        if batch.take(drawn):
            return batch.written()
        output = model(
            input_ids=drawn[:, None] if batch.kept is None else drawn[batch.kept][:, None],
            attention_mask=batch.mask,
            position_ids=batch.positions[:, None],
            past_key_values=batch.cache,
            use_cache=True,
        )
        batch.logits = output.logits[:, -1]


class _Batch:
    """Rows that are being written; those that are done leave it when they are many."""

    def __init__(self, read: Read, stops: torch.Tensor, longest: int) -> None:
        self.cache, self.mask, self.logits = read.cache, read.mask, read.logits
        count = len(read.mask)
        self.rows = torch.arange(count, device=stops.device)
        self.positions = read.mask.sum(-1) - 1
        self.steps = 0
        self.kept: torch.Tensor | None = None
        self._stops, self._longest = stops, longest
        self._tokens = torch.full((count, longest), -1, device=stops.device)
        self._stopped = torch.zeros(count, dtype=torch.bool, device=stops.device)

    def take(self, drawn: torch.Tensor) -> bool:
        """Append a token to each row that goes on; return whether all are done. Else all is ready for the next."""
        ended = torch.isin(drawn, self._stops)
        before = self._stopped[self.rows]
        self._tokens[self.rows, self.steps] = torch.where(ended | before, -1, drawn)
        self._stopped[self.rows] = before | ended
        self.steps += 1
        going = ~(before | ended)
        left = int(going.sum())
        if left == 0 or self.steps == self._longest:
            return True
        self.kept = None
        if left <= (1 - _DONE_SHARE) * len(self.rows):
            self._drop(going.nonzero()[:, 0])
        self.mask = torch.cat([self.mask, self.mask.new_ones((len(self.mask), 1))], dim=-1)
        self.positions = self.positions + 1
        return False

    def written(self) -> list[Written]:
        tokens, stopped = self._tokens.tolist(), self._stopped.tolist()
        return [Written([t for t in row if t >= 0], end) for row, end in zip(tokens, stopped)]

    def _drop(self, kept: torch.Tensor) -> None:
        self.cache.batch_select_indices(kept)
        self.kept, self.rows = kept, self.rows[kept]
        self.mask, self.positions = self.mask[kept], self.positions[kept]
