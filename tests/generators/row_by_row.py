"""Answers in the order of their rows, and the draws of `generate` row by row: what sharing is held against."""

import numpy as np
import torch


def answered(backend, asked, decoding):
    found = dict(backend.answers(asked, decoding))
    assert sorted(found) == list(range(len(asked)))
    return [found[position] for position in range(len(asked))]


class SlowDraws:
    """A logits processor that leaves only the row's own token: the last step of `generate` then takes it."""

    def __init__(self, key):
        self.drawn = np.random.Generator(np.random.Philox(key=int(key, 16)))

    def __call__(self, input_ids, scores):
        sums = scores.double().softmax(-1).cumsum(-1)
        token = int(torch.searchsorted(sums[0], self.drawn.random() * sums[0, -1], right=True))
        alone = torch.full_like(scores, -torch.inf)
        alone[0, token] = 0.0
        return alone
