"""Intervals of Skew@k for 30 rankings: k draws and a beta one, against rankings of resampled images."""

import numpy as np

from benchmarks.statistics.contest import IMAGES, PROMPTS, RACES, RESAMPLES, Peer, Row, race_codes, timed, warmed
from plumbline.metrics.rankings.skew_at_k import share_ratios
from plumbline.statistics.intervals import bca_array, percentile_array
from plumbline.statistics.rankings import rank_order, resample_top_counts, top_counts, top_draws

K = 1_000
REACHED = 217
PEER_RESAMPLES = 400
APART, LEANING = 0.7, 0.1
"""Standard errors by which one of 420 ends may differ, and all on average: so few resamples fix an end to about 0.13,
and put it 0.04 too far inside."""


def run() -> list[Row]:
    """Return the row."""
    races = race_codes()
    rng = np.random.default_rng(0)
    scores = rng.normal(0.2, 0.03, (IMAGES, PROMPTS)) + 0.001 * races[:, None] * rng.normal(size=PROMPTS)
    seconds, ours = warmed(lambda: by_rank(scores, races), repeats=3)
    peers = []
    for name, reached, best in (
        ("resampled rankings in numpy", REACHED, best_of_all),
        ("resampled, and the k best picked unsorted", None, best_unsorted),
    ):
        part, theirs = timed(lambda best=best: by_resampling(scores, races, best))
        whole = part * RESAMPLES / PEER_RESAMPLES
        peers.append(Peer(name, whole, *compared(*ours, theirs), reached, part=f"{PEER_RESAMPLES} resamples"))
    return [Row(f"Skew@{K:,} intervals, {PROMPTS} prompts, {IMAGES:,} images, {RACES} races", seconds, peers)]


def by_rank(scores: np.ndarray, races: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the (2, prompts, races) ends of percentile intervals and the replicates, having computed BCa too."""
    # Draws are kept for all rankings of one length: here they are made anew each time.
    top_draws.cache_clear()
    ranked = races.astype(np.uint8)[rank_order(scores)]
    draws = top_draws(IMAGES, K, resamples=RESAMPLES, seed=1)
    counts = resample_top_counts(ranked, draws, n_groups=RACES)
    value = top_counts(ranked, k=K, n_groups=RACES).astype(float)
    bca_array(value, counts, np.zeros((PROMPTS, RACES)))
    found = percentile_array(value, counts)
    ends = np.stack([found.ci_low, found.ci_high])
    return skew_of_counts(ends), counts


def by_resampling(scores: np.ndarray, races: np.ndarray, best) -> np.ndarray:
    """Return the (2, prompts, races) ends by ranking resampled images, again and again."""
    rng = np.random.default_rng(2)
    counts = np.empty((PROMPTS, PEER_RESAMPLES, RACES))
    for prompt, column in enumerate(np.ascontiguousarray(scores.T)):
        for resample in range(PEER_RESAMPLES):
            drawn = rng.integers(IMAGES, size=IMAGES)
            chosen = drawn[best(column[drawn])]
            counts[prompt, resample] = np.bincount(races[chosen], minlength=RACES)
    return skew_of_counts(np.quantile(counts, [0.025, 0.975], axis=1))


def best_of_all(scores: np.ndarray) -> np.ndarray:
    """Return the k best of a whole ranking."""
    return np.argsort(-scores)[:K]


def best_unsorted(scores: np.ndarray) -> np.ndarray:
    """Return the k best in any order."""
    return np.argpartition(-scores, K)[:K]


def skew_of_counts(counts: np.ndarray) -> np.ndarray:
    """Return Skew@k against equal shares, groups along the last axis."""
    with np.errstate(divide="ignore"):
        return np.log(share_ratios(counts, np.array(K / RACES)))


def compared(ours: np.ndarray, counts: np.ndarray, theirs: np.ndarray) -> tuple[bool, str]:
    """Say how many standard errors the ends lie apart, the furthest and on average."""
    apart = (ours - theirs) / skew_of_counts(np.swapaxes(counts, 1, 2)).std(axis=1)
    furthest, leaning = np.abs(apart).max(), np.abs(apart.mean(axis=(1, 2))).max()
    said = f"{apart.size} ends at most {furthest:.2f} standard errors apart ({APART} allowed)"
    agrees = furthest <= APART and leaning <= LEANING
    return bool(agrees), f"{said}, on average {leaning:.3f} ({LEANING} allowed)"
