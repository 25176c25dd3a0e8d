"""Differences of PMI: a frame against loops over dicts."""

import math

import numpy as np
import polars as pl

from benchmarks.statistics.contest import Peer, Row, timed, warmed
from plumbline.language.words import word_associations

WORDS, GROUPS = 18_000, 14
TOLERANCE = 1e-12

Counts = dict[str, dict[str, int]]


def run() -> list[Row]:
    """Return the row of a frame beside the same dicts."""
    rng = np.random.default_rng(0)
    rates = 20_000 / np.arange(1, WORDS + 1) * rng.gamma(2.0, 0.5, size=(GROUPS, WORDS))
    matrix = rng.poisson(rates)
    frame = long_frame(matrix).sample(fraction=1.0, shuffle=True, seed=1)
    building, counts = timed(lambda: as_dicts(frame))
    slow, theirs = timed(lambda: by_loops(counts), repeats=4)
    seconds, table = warmed(lambda: word_associations(frame))
    ours = {(g, w): value for g, w, value in table.select("group", "word", "association").iter_rows()}
    title = f"PMI differences, {WORDS:,} words x {GROUPS} groups, from a shuffled frame of strings to a sorted table"
    peer = Peer("dicts from the frame, and loops over them", slow + building, *compared(ours, theirs))
    return [Row(title, seconds, [peer])]


def long_frame(matrix: np.ndarray) -> pl.DataFrame:
    """Return `group, word, count` of what occurs."""
    group, word = np.nonzero(matrix)
    return pl.DataFrame({"group": group, "word": word, "count": matrix[group, word]}).with_columns(
        group=pl.format("group {}", "group"), word=pl.format("word {}", "word")
    )


def as_dicts(frame: pl.DataFrame) -> Counts:
    """Return word counts by group."""
    counts: Counts = {}
    for group, word, count in frame.iter_rows():
        counts.setdefault(group, {})[word] = count
    return counts


def by_loops(counts: Counts, min_count: int = 10, threshold: float = 1.0) -> dict[tuple[str, str], float]:
    """Compute the association of every word with every group, and keep those above the threshold."""
    totals = {group: sum(words.values()) for group, words in counts.items()}
    kept = {}
    for group, words in counts.items():
        others = [other for other in counts if other != group]
        n_others = sum(totals[other] for other in others)
        for word, count in words.items():
            elsewhere = sum(counts[other].get(word, 0) for other in others) or 0.5
            association = math.log2(count / totals[group]) - math.log2(elsewhere / n_others)
            if count >= min_count and association > threshold:
                kept[group, word] = association
    return kept


def compared(ours: dict, theirs: dict) -> tuple[bool, str]:
    """Say whether the same words pass, and how far their associations differ."""
    if ours.keys() != theirs.keys():
        return False, f"{len(ours.keys() ^ theirs.keys())} words pass on one side only"
    apart = max(abs(ours[key] - theirs[key]) for key in theirs)
    return apart <= TOLERANCE, f"the same {len(ours):,} words pass, {apart:.1e} apart, {TOLERANCE} allowed"
