"""The cache with room ahead holds what transformers' own growing cache holds."""

import torch
import transformers
from transformers.cache_utils import DynamicCache

from plumbline.generators.sampling import ROOM, Read, new_cache, side_by_side


def states(rows, tokens, generator):
    return torch.randn((2, rows, 3, tokens, 4), generator=generator)


def test_long_answers_and_rows_that_leave_and_repeat():
    generator = torch.Generator().manual_seed(0)
    ours, theirs, rows = new_cache(), DynamicCache(), 4
    chosen = {10: [0, 2, 2, 3, 1], ROOM + 3: [4, 0], 2 * ROOM + 9: [1]}
    for step in range(3 * ROOM):
        for layer in range(2):
            keys, values = states(rows, 5 if step == 0 else 1, generator)
            found = ours.update(keys, values, layer)
            expected = theirs.update(keys, values, layer)
            assert all(torch.equal(a, b) for a, b in zip(found, expected))
        assert ours.get_seq_length() == theirs.get_seq_length() == step + 5
        if step in chosen:
            indices = torch.tensor(chosen[step])
            ours.batch_select_indices(indices)
            theirs.batch_select_indices(indices)
            rows = len(indices)


def read_of(rows, tokens, generator, padding=0):
    cache = new_cache()
    keys, values = states(rows, tokens, generator)
    cache.update(keys, values, 0)
    mask = torch.ones((rows, tokens), dtype=torch.long)
    mask[:, :padding] = 0
    return Read(cache, mask, torch.zeros((rows, 5)), torch.arange(rows))


def test_rows_side_by_side_end_together_and_leave_what_they_came_from_as_it_was():
    generator = torch.Generator().manual_seed(1)
    config = transformers.LlamaConfig(num_hidden_layers=1)
    long, short = read_of(1, 7, generator), read_of(2, 5, generator, padding=1)
    before = [read.cache.layers[0].keys.clone() for read in (long, short)]
    both = side_by_side([long, short], config)
    assert both.mask.tolist() == [[1] * 7, *[[0, 0, 0, 1, 1, 1, 1]] * 2]
    assert both.shift.tolist() == [0, 0, 1]
    both.cache.update(*states(3, 1, generator), 0)
    keys = both.cache.layers[0].keys
    assert keys.shape[-2] == 8
    assert torch.equal(keys[:1, :, :7], before[0])
    assert torch.equal(keys[1:, :, 2:7], before[1])
    assert not keys[1:, :, :2].any()
    assert all(torch.equal(read.cache.layers[0].keys, held) for read, held in zip((long, short), before, strict=True))


def test_recurrent_layers_are_joined_and_chosen_as_others():
    config = transformers.Qwen3_5TextConfig(layer_types=["linear_attention"], num_hidden_layers=1)
    reads = []
    for value in (1.0, 2.0):
        cache = new_cache(config)
        cache.update_conv_state(torch.full((1, 3, 4), value), 0, conv_kernel_size=4)
        cache.update_recurrent_state(torch.full((1, 2, 2), value), 0)
        reads.append(Read(cache, torch.ones((1, 6), dtype=torch.long), torch.zeros((1, 5)), torch.zeros(1)))
    chosen = side_by_side(reads, config).rows(torch.tensor([1, 0, 1])).cache.layers[0]
    assert chosen.has_previous_state[0]
    assert chosen.conv_states[0][:, 0, 0].tolist() == chosen.recurrent_states[0][:, 0, 0].tolist() == [2.0, 1.0, 2.0]
