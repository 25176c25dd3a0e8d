"""Draws that belong to the row: the same in any batch, of the right distribution, equal to the slow obvious way."""

import numpy as np
import pytest
import torch
from scipy import stats

from plumbline.digests import digest_json
from plumbline.errors import GenerationError
from plumbline.generators.backend import Decoding
from plumbline.generators.sampling import RowSeeded, row_uniforms

VOCABULARY = 200
KEYS = [digest_json(i)[:32] for i in range(40)]
DECODINGS = [
    Decoding(max_new_tokens=6),
    Decoding(max_new_tokens=6, temperature=1.0, top_k=0),
    Decoding(max_new_tokens=6, temperature=1.3, top_k=20, top_p=0.7),
    Decoding(max_new_tokens=6, temperature=0.5, top_k=0, top_p=0.9),
]


def logits(rows=40, seed=0, dtype=torch.float32):
    drawn = torch.randn((rows, VOCABULARY), generator=torch.Generator().manual_seed(seed)) * 2
    return drawn.to(dtype)


def slow_distribution(row, decoding):
    """Probabilities by numpy, as temperature, top-k and top-p are defined."""
    scores = row.double().numpy() / decoding.temperature
    if decoding.top_k:
        scores = np.where(scores < np.sort(scores)[-decoding.top_k], -np.inf, scores)
    chances = np.exp(scores - scores.max())
    chances /= chances.sum()
    if decoding.top_p < 1:
        order = np.argsort(-chances, kind="stable")
        before = np.cumsum(chances[order]) - chances[order]
        chances[order[before >= decoding.top_p]] = 0
        chances /= chances.sum()
    return chances


def slow_token(row, key, step, decoding):
    """One token by the row's own generator, asked for its numbers one by one."""
    generator = np.random.Generator(np.random.Philox(key=int(key, 16)))
    for _ in range(step + 1):
        uniform = generator.random()
    sums = np.cumsum(slow_distribution(row, decoding))
    return int(np.searchsorted(sums, uniform * sums[-1], side="right"))


@pytest.mark.parametrize("decoding", DECODINGS, ids=str)
def test_tokens_are_those_of_the_slow_obvious_way(decoding):
    sampler = RowSeeded(KEYS, decoding, "cpu")
    for step in (0, 1, 5):
        rows = logits(seed=step)
        expected = [slow_token(row, key, step, decoding) for row, key in zip(rows, KEYS)]
        assert sampler.tokens(rows, step).tolist() == expected


def test_a_rows_tokens_do_not_depend_on_the_rows_beside_it():
    decoding = Decoding(max_new_tokens=4)
    rows, together = logits(), RowSeeded(KEYS, decoding, "cpu")
    expected = together.tokens(rows, 3)
    assert together.tokens(rows[[7, 2]], 3, torch.tensor([7, 2])).tolist() == expected[[7, 2]].tolist()
    alone = [RowSeeded([key], decoding, "cpu").tokens(row[None], 3) for row, key in zip(rows, KEYS)]
    assert torch.cat(alone).tolist() == expected.tolist()
    shuffled = RowSeeded(KEYS[::-1], decoding, "cpu")
    assert shuffled.tokens(rows.flip(0), 3).flip(0).tolist() == expected.tolist()


def test_more_steps_leave_the_earlier_ones_as_they_were():
    assert np.array_equal(row_uniforms(KEYS, 512)[:, :8], row_uniforms(KEYS, 8))
    assert row_uniforms([], 8).shape == (0, 8)


def test_uniforms_are_uniform_and_unrelated_between_rows_and_steps():
    drawn = row_uniforms([digest_json([i])[:32] for i in range(4000)], 4)
    assert stats.kstest(drawn.ravel(), "uniform").pvalue > 1e-3
    correlations = np.corrcoef(drawn.T)[np.triu_indices(4, 1)]
    assert np.abs(correlations).max() < 4 / np.sqrt(len(drawn))


@pytest.mark.parametrize("decoding", DECODINGS, ids=str)
def test_first_tokens_follow_the_distribution(decoding):
    row = logits(rows=1, seed=9)
    keys = [digest_json(["seed", i])[:32] for i in range(10_000)]
    drawn = RowSeeded(keys, decoding, "cpu").tokens(row.expand(len(keys), -1), 0)
    expected = slow_distribution(row[0], decoding) * len(keys)
    counts = np.bincount(drawn.numpy(), minlength=VOCABULARY)
    assert counts[expected == 0].sum() == 0
    often = expected >= 5
    counts, expected = (np.append(each[often], each[~often].sum()) for each in (counts, expected))
    filled = expected > 0
    assert stats.chisquare(counts[filled], expected[filled], sum_check=False).pvalue > 1e-3


def test_greedy_takes_the_first_of_the_most_likely():
    rows = logits(rows=3)
    rows[1, [5, 50]] = 100
    greedy = RowSeeded(KEYS[:3], Decoding(temperature=0), "cpu").tokens(rows, 0).tolist()
    assert greedy == [int(rows[0].argmax()), 5, int(rows[2].argmax())]


def test_tokens_that_tie_with_the_last_of_the_top_stay_in_as_in_transformers():
    row = torch.zeros(1, VOCABULARY)
    keys = [digest_json(i)[:32] for i in range(4000)]
    drawn = RowSeeded(keys, Decoding(top_k=2), "cpu").tokens(row.expand(len(keys), -1), 0)
    assert len(drawn.unique()) == VOCABULARY


@pytest.mark.parametrize("temperature", [0.0, 0.75])
def test_logits_that_are_no_numbers_are_an_error(temperature):
    rows = logits(rows=2)
    rows[1, 3] = torch.nan
    with pytest.raises(GenerationError, match="not numbers"):
        RowSeeded(KEYS[:2], Decoding(temperature=temperature), "cpu").tokens(rows, 0)


def test_half_precision_logits_are_drawn_from_in_full_precision():
    half = logits(dtype=torch.bfloat16)
    sampler = RowSeeded(KEYS, Decoding(), "cpu")
    assert sampler.tokens(half, 0).tolist() == sampler.tokens(half.float(), 0).tolist()
