"""NDKL of 30 rankings: one weighted sum over the images against a loop over prompts and ranks."""

import math

import numpy as np

from benchmarks.statistics.contest import IMAGES, PROMPTS, RACES, Peer, Row, race_codes, timed, warmed
from plumbline.metrics import ndkl

REACHED = 215
TOLERANCE = 1e-12


def run() -> list[Row]:
    """Return the row."""
    races = race_codes()
    rng = np.random.default_rng(0)
    scores = rng.normal(0.2, 0.03, (IMAGES, PROMPTS)) + 0.01 * races[:, None] * rng.normal(size=PROMPTS)
    seconds, ours = warmed(lambda: ndkl(scores, races))
    slow, theirs = timed(lambda: np.array([one_prompt(column, races) for column in scores.T]), repeats=2)
    apart = np.abs(ours - theirs).max()
    agreement = f"values from {ours.min():.3f} to {ours.max():.3f}, {apart:.1e} apart, {TOLERANCE} allowed"
    peer = Peer("a loop over prompts, over ranks", slow, bool(apart <= TOLERANCE), agreement, REACHED)
    return [Row(f"NDKL, {PROMPTS} prompts, {IMAGES:,} images, {RACES} races", seconds, [peer])]


def one_prompt(scores: np.ndarray, races: np.ndarray) -> float:
    """Compute NDKL as it is written: at every rank the shares so far, and their divergence from the desired ones."""
    desired = np.full(RACES, 1 / RACES)
    count = dict.fromkeys(range(RACES), 0)
    total = weights = 0.0
    for i, image in enumerate(np.argsort(-scores, kind="stable"), start=1):
        count[races[image]] += 1
        shares = np.array([count[race] / i for race in range(RACES)])
        with np.errstate(divide="ignore", invalid="ignore"):
            divergence = np.sum(np.where(shares > 0, shares * (np.log(shares) - np.log(desired)), 0.0))
        total += divergence / math.log2(i + 1)
        weights += 1 / math.log2(i + 1)
    return total / weights
