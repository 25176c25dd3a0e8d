"""SC-WEAT over 30 prompts: random bits and matrix products against shuffling, and all partitions of 20 images."""

import numpy as np
from scipy import stats

from benchmarks.statistics.contest import PROMPTS, RESAMPLES, Peer, Row, timed, warmed
from plumbline.metrics import sc_weat

IMAGES, FEW_IMAGES = 10_136, 20
SCIPY_REACHED, LOOP_REACHED, EXACT_REACHED = 11, 54, 377
SCIPY_RESAMPLES, LOOP_RESAMPLES = 400, 100
BATCH, EXACT_BATCH = 10, 1_000
"""Resamples that scipy makes at once: so many are fastest."""
STANDARD_ERRORS = 4.5
TOLERANCE = 1e-12


def run() -> list[Row]:
    """Return the rows of the random and of the exact test."""
    return [random_partitions(), all_partitions()]


def random_partitions() -> Row:
    """Compare at the size of a data set."""
    similarities, in_a = drawn(IMAGES)
    seconds, ours = warmed(
        lambda: sc_weat(similarities, in_a, permutations=RESAMPLES, seed=np.random.default_rng(1)), repeats=3
    )
    peers = []
    for name, reached, resamples, call in (
        ("scipy, 30 prompts as rows", SCIPY_REACHED, SCIPY_RESAMPLES, by_scipy),
        ("numpy loop, prompt by prompt", LOOP_REACHED, LOOP_RESAMPLES, by_loop),
        ("numpy loop, 30 prompts at once", None, LOOP_RESAMPLES, by_joint_loop),
    ):
        part, p = timed(lambda call=call, resamples=resamples: call(similarities, in_a, resamples))
        whole = part * RESAMPLES / resamples
        agreement = within_chance(ours.p_value, p, resamples)
        peers.append(Peer(name, whole, *agreement, reached, part=f"{resamples} resamples"))
    return Row(f"SC-WEAT permutation, {PROMPTS} prompts, {IMAGES:,} images", seconds, peers)


def all_partitions() -> Row:
    """Compare where all partitions are enumerated."""
    similarities, in_a = drawn(FEW_IMAGES)
    seconds, ours = warmed(lambda: sc_weat(similarities, in_a, seed=np.random.default_rng(1)))
    assert ours.exact
    slow, p = timed(lambda: by_scipy(similarities, in_a, np.inf, batch=EXACT_BATCH), repeats=2)
    apart = np.abs(ours.p_value - p).max()
    agreement = f"p of all prompts {apart:.1e} apart, {TOLERANCE} allowed"
    peer = Peer("scipy, 30 prompts as rows", slow, bool(apart <= TOLERANCE), agreement, EXACT_REACHED)
    return Row(f"SC-WEAT exact, {PROMPTS} prompts, {FEW_IMAGES} images, 184,756 partitions", seconds, [peer])


def drawn(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw (n, 30) cosines of which some differ between the halves, from none to clearly."""
    rng = np.random.default_rng(0)
    in_a = np.arange(n) % 2 == 0
    similarities = rng.normal(0.2, 0.03, (n, PROMPTS))
    similarities[in_a] += np.linspace(0, 0.15, PROMPTS) / np.sqrt(n)
    return similarities, in_a


def difference(a: np.ndarray, b: np.ndarray, axis: int) -> np.ndarray:
    """Return the difference of means."""
    return a.mean(axis=axis) - b.mean(axis=axis)


def by_scipy(similarities: np.ndarray, in_a: np.ndarray, resamples: float, batch: int = BATCH) -> np.ndarray:
    """Return p of every column by `scipy.stats.permutation_test`, columns as rows of one call."""
    return stats.permutation_test(
        (similarities[in_a].T, similarities[~in_a].T),
        difference,
        permutation_type="independent",
        vectorized=True,
        n_resamples=resamples,
        batch=batch,
        alternative="greater",
        axis=-1,
        rng=np.random.default_rng(2),
    ).pvalue


def by_loop(similarities: np.ndarray, in_a: np.ndarray, resamples: int) -> np.ndarray:
    """Return p of every column, shuffling it again and again."""
    rng, size = np.random.default_rng(3), int(in_a.sum())
    p = []
    for column in similarities.T.copy():
        observed = column[in_a].mean() - column[~in_a].mean()
        count = 0
        for _ in range(resamples):
            shuffled = rng.permutation(column)
            count += shuffled[:size].mean() - shuffled[size:].mean() >= observed
        p.append((1 + count) / (1 + resamples))
    return np.array(p)


def by_joint_loop(similarities: np.ndarray, in_a: np.ndarray, resamples: int) -> np.ndarray:
    """Return p of every column, shuffling the images for all columns together."""
    rng = np.random.default_rng(4)
    observed = difference(similarities[in_a], similarities[~in_a], 0)
    count = np.zeros(len(observed))
    for _ in range(resamples):
        chosen = rng.permutation(in_a)
        count += difference(similarities[chosen], similarities[~chosen], 0) >= observed
    return (1 + count) / (1 + resamples)


def within_chance(ours: np.ndarray, theirs: np.ndarray, resamples: int) -> tuple[bool, str]:
    """Say how far p-values of two independent draws lie apart, in the standard errors that they must."""
    pooled = (ours * RESAMPLES + theirs * resamples) / (RESAMPLES + resamples)
    error = np.sqrt(pooled * (1 - pooled) * (1 / RESAMPLES + 1 / resamples))
    # Both count the data itself among the resamples, which lifts a p of few resamples by up to 1 in that many.
    apart = (np.maximum(np.abs(ours - theirs) - 1 / resamples, 0) / error).max()
    said = f"p from {ours.min():.4f} to {ours.max():.2f}, at most {apart:.1f} standard errors apart"
    return bool(apart <= STANDARD_ERRORS), f"{said}, {STANDARD_ERRORS} allowed"
