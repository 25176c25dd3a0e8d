"""Sampling answers: random numbers seeded per row, and a key-value cache shared by the prompts of an image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers.cache_utils import Cache, DummyLayer, DynamicCache, DynamicLayer, LinearAttentionLayer

from plumbline.errors import GenerationError
from plumbline.generators.backend import ROW_KEY_DIGITS, Decoding


def row_uniforms(keys: Sequence[str], steps: int) -> NDArray[np.float64]:
    """Return (rows, steps) uniform numbers in [0, 1): row i, step t depends on keys[i] and t alone.

    Each row has a counter-based generator of its own, numpy's Philox, whose 128 key bits are the row's key (Salmon et
    al., 2011, "Parallel random numbers: as easy as 1, 2, 3"); step t takes the t-th number of its stream.

    Parameters
    ----------
    keys : sequence of str
        Of `plumbline.generators.backend.row_key`: 32 hexadecimal digits.
    """
    drawn = [np.random.Generator(np.random.Philox(key=int(key[:ROW_KEY_DIGITS], 16))).random(steps) for key in keys]
    return np.stack(drawn) if drawn else np.empty((0, steps))


class RowSeeded:
    """Draws the next token of every row by inverting its distribution at the row's own uniform number.

    The distribution is transformers' own: its temperature, top-k and top-p, in its order. The cumulative sum runs in
    the order of the vocabulary, so that a last-bit change of a probability, as another batch may give it, moves a
    token's interval by as little, and hardly ever changes the token.

    Parameters
    ----------
    keys : sequence of str, length n
        Keys of the rows.
    decoding : Decoding
        Greedy at temperature 0: the most likely token, the first of equal ones.
    device : str
    """

    def __init__(self, keys: Sequence[str], decoding: Decoding, device: str) -> None:
        import torch

        self._warpers = _warpers(decoding)
        self._greedy = decoding.temperature == 0
        uniforms = np.empty((len(keys), 0)) if self._greedy else row_uniforms(keys, decoding.max_new_tokens)
        # All steps at once, on the host: nothing is drawn or moved while tokens are made.
        self._uniforms = torch.from_numpy(np.ascontiguousarray(uniforms.T)).to(device)

    def tokens(self, logits: torch.Tensor, step: int, rows: torch.Tensor | None = None) -> torch.Tensor:
        """Return the (b,) next tokens.

        Parameters
        ----------
        logits : (b, v) tensor
        step : int
            0 for the first new token.
        rows : (b,) int tensor, optional
            Which rows these are; all of them when absent.

        Raises
        ------
        GenerationError
            If a row has no distribution: its logits are NaN.
        """
        import torch

        scores = logits.float()
        if self._greedy:
            _refuse_nan(scores.amax(-1))
            return scores.argmax(-1)
        for warper in self._warpers:
            scores = warper(None, scores)
        sums = scores.double().softmax(-1).cumsum(-1)
        totals = sums[:, -1:]
        _refuse_nan(totals)
        uniforms = self._uniforms[step] if rows is None else self._uniforms[step][rows]
        # Below the total and counted from the right, so that a token of probability 0 is never drawn.
        at = (uniforms[:, None] * totals).minimum(totals.nextafter(torch.zeros_like(totals)))
        return torch.searchsorted(sums, at, right=True)[:, 0]


def _warpers(decoding: Decoding) -> list[Any]:
    """Return transformers' own steps from logits to a distribution, in its order."""
    from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    if decoding.temperature == 0:
        return []
    steps: list[Any] = []
    if decoding.temperature != 1:
        steps.append(TemperatureLogitsWarper(decoding.temperature))
    if decoding.top_k:
        steps.append(TopKLogitsWarper(decoding.top_k))
    if decoding.top_p < 1:
        steps.append(TopPLogitsWarper(decoding.top_p))
    return steps


def _refuse_nan(values: torch.Tensor) -> None:
    if bool(values.isnan().any()):
        raise GenerationError(
            "the model gave logits that are not numbers",
            found="NaN",
            expected="numbers",
            hint="in half precision, try `dtype: bfloat16` or `float32`; else check the weights",
        )


class OwnDraws:
    """The rows' own draws as a logits processor of transformers' `generate`, which then has one token left to draw.

    Parameters
    ----------
    sampler : RowSeeded
    start : int
        Tokens of the prompt.
    """

    def __init__(self, sampler: RowSeeded, start: int) -> None:
        self._sampler, self._start = sampler, start

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Return (b, v) scores that leave each row its token."""
        token = self._sampler.tokens(scores, input_ids.shape[1] - self._start)[:, None]
        return torch.full_like(scores, -torch.inf).scatter(1, token, 0.0)


# The cache: keys and values of the tokens read so far, with room ahead so that a step copies only itself.

ROOM = 128
"""Tokens of room that are taken at a time."""


class PreallocatedLayer(DynamicLayer):
    """A layer of the key-value cache with preallocated room; that of transformers copies everything at every token."""

    _layer_type = None

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._room: tuple[torch.Tensor, torch.Tensor] | None = None

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append (rows, heads, new, d) states and return all, (rows, heads, old + new, d)."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        length = self.get_seq_length()
        new = length + key_states.shape[-2]
        if self._room is None or self._room[0].shape[-2] < new:
            self._room = (_roomier(key_states, self.keys, new + ROOM), _roomier(value_states, self.values, new + ROOM))
        keys, values = self._room
        keys[..., length:new, :] = key_states
        values[..., length:new, :] = value_states
        self.keys, self.values = keys[..., :new, :], values[..., :new, :]
        return self.keys, self.values

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keep these rows, each as often as it is named."""
        super().batch_select_indices(indices)
        # What was selected is a copy of its own: the next token finds room anew.
        self._room = None


def _roomier(like: torch.Tensor, held: torch.Tensor | None, tokens: int) -> torch.Tensor:
    rows, heads, _, width = like.shape
    room = like.new_empty((rows, heads, tokens, width))
    if held is not None and held.numel():
        room[..., : held.shape[-2], :] = held
    return room


class RecurrentLayer(LinearAttentionLayer):
    """A layer with a state of fixed size in place of keys and values; rows are chosen as in other layers."""

    _layer_type = None

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keep these rows, each as often as it is named."""
        self.reorder_cache(indices)  # type: ignore[arg-type]


def new_cache(config: Any = None) -> Cache:
    """Return an empty cache.

    Every layer with attention keeps all that was read, windows and chunks too: their masks leave out what is too far
    away, and rows can begin at different places.

    Parameters
    ----------
    config : configuration of a model, optional
        Says which layers have a state in place of keys and values; by default none has.
    """
    if config is None:
        return Cache(layer_class_to_replicate=PreallocatedLayer)
    layers = DynamicCache(config=config).layers
    return Cache(layers=[_layer_like(layer) for layer in layers])


def cache_bytes(cache: Cache) -> int:
    """Return the bytes of the keys and values of all layers."""
    layers: list[Any] = cache.layers
    states = [state for layer in layers for state in (getattr(layer, "keys", None), getattr(layer, "values", None))]
    return sum(state.numel() * state.element_size() for state in states if state is not None)


def can_share(config: Any) -> bool:
    """Return whether every layer of a model has a cache of which rows can be copied and put side by side."""
    kinds = {type(layer) for layer in DynamicCache(config=config).layers}
    return all(issubclass(kind, DynamicLayer | DummyLayer) or kind is LinearAttentionLayer for kind in kinds)


def _layer_like(layer: Any) -> Any:
    if isinstance(layer, LinearAttentionLayer):
        return RecurrentLayer(number_of_states=layer.number_of_states)
    return PreallocatedLayer() if isinstance(layer, DynamicLayer) else layer


# Reading prompts and writing answers, in one batch.

# Rows that are done are taken out of a batch once they are this share of it.
_DONE_SHARE = 0.25


@dataclass
class Read:
    """Prompts after prefill by a language model.

    Attributes
    ----------
    cache : Cache
        Of p prompts.
    mask : (p, length) int tensor
        1 for tokens, 0 for the padding, which is on the left.
    logits : (p, v) tensor
        Of the first new token.
    shift : (p,) int tensor
        What a token's position is beyond its number in the row: an image may take more or fewer than its tokens.
    """

    cache: Cache
    mask: torch.Tensor
    logits: torch.Tensor
    shift: torch.Tensor

    def rows(self, indices: torch.Tensor) -> Read:
        """Return rows of it, each as often as it is named; this one is used up."""
        self.cache.batch_select_indices(indices)
        return Read(self.cache, self.mask[indices], self.logits[indices], self.shift[indices])


def side_by_side(reads: Sequence[Read], config: Any) -> Read:
    """Return the rows of several in one, padded on the left; what is given stays as it is.

    Parameters
    ----------
    config : configuration of the model
    """
    width = max(read.mask.shape[1] for read in reads)
    cache = new_cache(config)
    for into, *layers in zip(cache.layers, *(read.cache.layers for read in reads), strict=True):
        _join(into, layers, width)
    return Read(
        cache,
        torch.cat([torch.nn.functional.pad(read.mask, (width - read.mask.shape[1], 0)) for read in reads]),
        torch.cat([read.logits for read in reads]),
        torch.cat([read.shift for read in reads]),
    )


def _join(into: Any, layers: Sequence[Any], width: int) -> None:
    if isinstance(into, RecurrentLayer):
        for state in range(into.number_of_states):
            conv, recurrent = ([getattr(layer, name)[state] for layer in layers] for name in _STATES)
            if conv[0] is not None:
                into.lazy_initialization(conv_states=torch.cat(conv), state_idx=state)
                into.conv_states[state] = torch.cat(conv)
                into.has_previous_state[state] = True
            if recurrent[0] is not None:
                into.lazy_initialization(recurrent_states=torch.cat(recurrent), state_idx=state)
                into.recurrent_states[state] = torch.cat(recurrent)
    elif isinstance(into, PreallocatedLayer) and layers[0].is_initialized:
        keys, values = (
            torch.cat([_on_the_right(getattr(layer, name), width) for layer in layers]) for name in ("keys", "values")
        )
        into.lazy_initialization(keys, values)
        into.keys, into.values = keys, values


_STATES = ("conv_states", "recurrent_states")


def _on_the_right(states: torch.Tensor, width: int) -> torch.Tensor:
    return torch.nn.functional.pad(states, (0, 0, width - states.shape[-2], 0))


@dataclass(frozen=True)
class Written:
    """The tokens of one answer, and whether it ended by itself."""

    tokens: list[int]
    stopped: bool


def until_stop(tokens: Sequence[int], stops: Sequence[int]) -> Written:
    """Return an answer as it was before the token that ends it."""
    end = next((place for place, token in enumerate(tokens) if token in stops), None)
    return Written(list(tokens[:end]), end is not None)


def read_prompts(model: Any, prompts: Sequence[torch.Tensor]) -> Read:
    """Read prompts at once, from their beginning.

    Parameters
    ----------
    model : causal language model of transformers
    prompts : sequence of (n_i, d) tensors
        Input embeddings, of any lengths.
    """
    width = max(len(prompt) for prompt in prompts)
    embeddings = prompts[0].new_zeros((len(prompts), width, prompts[0].shape[-1]))
    mask = torch.zeros((len(prompts), width), dtype=torch.long, device=embeddings.device)
    for row, prompt in enumerate(prompts):
        embeddings[row, width - len(prompt) :] = prompt
        mask[row, width - len(prompt) :] = 1
    output = model(
        inputs_embeds=embeddings,
        attention_mask=mask,
        position_ids=(mask.cumsum(-1) - 1).clamp_(min=0),
        past_key_values=new_cache(),
        use_cache=True,
        logits_to_keep=1,
    )
    return Read(output.past_key_values, mask, output.logits[:, -1], torch.zeros_like(mask[:, 0]))


def read_on(model: Any, before: Sequence[Read], tails: Sequence[Sequence[int]]) -> Read:
    """Read on where others have read the beginning: the image, above all.

    Rows of one length are read at once. No padding lies between a beginning and what follows, where windows and
    recurrent states would see it.

    Parameters
    ----------
    model : model of transformers
    before : sequence of Read
        Of one row each; they stay as they are.
    tails : sequence of token ids, as many
    """
    of_length: dict[int, list[int]] = {}
    for row, tail in enumerate(tails):
        of_length.setdefault(len(tail), []).append(row)
    parts = []
    for rows in of_length.values():
        start = side_by_side([before[row] for row in rows], model.config)
        ids = torch.tensor([list(tails[row]) for row in rows], device=start.mask.device)
        mask = torch.cat([start.mask, torch.ones_like(ids)], dim=-1)
        positions = (mask.cumsum(-1) - 1)[:, -ids.shape[1] :] + start.shift[:, None]
        output = model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=start.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        parts.append(Read(start.cache, mask, output.logits[:, -1], start.shift))
    order = torch.tensor([row for rows in of_length.values() for row in rows])
    read = parts[0] if len(parts) == 1 else side_by_side(parts, model.config)
    return read if torch.equal(order, order.sort().values) else read.rows(order.argsort().to(read.mask.device))


def write_answers(model: Any, read: Read, sampler: RowSeeded, *, stops: Sequence[int], longest: int) -> list[Written]:
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
        self.positions = read.mask.sum(-1) - 1 + read.shift
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
