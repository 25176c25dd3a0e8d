"""The cache with room ahead holds what transformers' own growing cache holds."""

import torch
from transformers.cache_utils import DynamicCache

from plumbline.generators.sampling import ROOM, new_cache, selected


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


def test_a_selection_leaves_the_cache_it_was_taken_from_as_it_was():
    generator = torch.Generator().manual_seed(1)
    cache = new_cache()
    keys, values = states(3, 7, generator)
    cache.update(keys, values, 0)
    copy = selected(cache, torch.tensor([2, 2, 0, 1]))
    copy.update(*states(4, 1, generator), 0)
    assert copy.get_seq_length() == 8
    assert torch.equal(copy.layers[0].keys[:, :, :7], keys[[2, 2, 0, 1]])
    assert torch.equal(cache.layers[0].keys, keys)
    assert torch.equal(cache.layers[0].values, values)
