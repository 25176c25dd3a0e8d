"""Keys and values of the tokens read so far, with room ahead so that a step copies nothing but itself."""

from __future__ import annotations

from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicLayer

ROOM = 128
"""Tokens of room that are taken at a time."""


class RoomyLayer(DynamicLayer):
    """transformers' growing layer, which copies everything at every token, but with room for further tokens."""

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
            self._room = (
                _roomier(key_states, self.keys, new + ROOM),
                _roomier(value_states, self.values, new + ROOM),
            )
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


def new_cache() -> Cache:
    """Return an empty cache."""
    return Cache(layer_class_to_replicate=RoomyLayer)


def selected(cache: Cache, indices: torch.Tensor) -> Cache:
    """Return a cache of some rows, each as often as it is named; the given one stays as it is."""
    copy = new_cache()
    layers: list[Any] = cache.layers
    for layer in layers:
        other = RoomyLayer()
        other.lazy_initialization(layer.keys, layer.values)
        other.keys, other.values = layer.keys[indices], layer.values[indices]
        copy.layers.append(other)
    return copy
