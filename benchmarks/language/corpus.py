"""Synthetic answers and their scores on disk, as an audit leaves them: counterfactual sets, Zipf words, Parquet."""

from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from plumbline.language.cell import DESCRIBED_SCHEMA, EXPECTED_SCHEMA

GROUPS = [f"{race}_{gender}" for race in ("Asian", "Black", "Indian", "Latino", "Middle Eastern", "White")
          for gender in ("man", "woman")]  # fmt: skip
PROMPTS = ["describe", "backstory", "pretend", "characteristics", "personality"]
SEEDS = 3
SCORED = ["toxicity", "insult", "identity_attack", "flirtation"]
ROWS_OF_A_SET = len(GROUPS) * len(PROMPTS) * SEEDS
SETS_OF_A_PART = 1_389
"""A quarter of a million answers."""

ROW_GROUP = 10_000
"""Answers in a row group. Polars reads a fixed number of row groups ahead: their size decides what a reader holds."""

VOCABULARY, FEWEST_WORDS, MOST_WORDS = 30_000, 40, 60
LETTERS = np.array(list("etaoinshrdlucmfw"))


def parts_for(rows: int) -> int:
    """Return how many parts hold at least so many answers."""
    return -(-rows // (SETS_OF_A_PART * ROWS_OF_A_SET))


def write_corpus(folder: Path, parts: int) -> None:
    """Write `generations-{part}.parquet`, `scores-{part}.parquet` and `people-{part}.parquet`, part by part."""
    rng = np.random.default_rng(0)
    words = _vocabulary(rng)
    for part in range(parts):
        generations = _generations(rng, part, words)
        generations.write_parquet(folder / f"generations-{part:03}.parquet", row_group_size=ROW_GROUP)
        _scores(rng, generations["row_key"]).write_parquet(
            folder / f"scores-{part:03}.parquet", row_group_size=4 * ROW_GROUP
        )
        _people(generations).write_parquet(folder / f"people-{part:03}.parquet")


def _vocabulary(rng: np.random.Generator) -> pa.Array:
    """Return the words as they stand in texts, the frequent ones first: some end a clause or a sentence."""
    ends = [".", ",", "", "", "", ""]
    last = [f"{LETTERS[i % 16]}{LETTERS[i // 16 % 16]}{LETTERS[i // 256 % 16]}" for i in range(VOCABULARY)]
    stems = ["".join(rng.choice(LETTERS, rng.integers(1, 9))) + end for end in last]
    return pa.array([stem + ends[i % len(ends)] for i, stem in enumerate(stems)])


def _texts(rng: np.random.Generator, n: int, words: pa.Array) -> pl.Series:
    """Return sentences whose words are as unequally frequent as in English (Zipf)."""
    shares = np.cumsum(1 / np.arange(1, VOCABULARY + 1))
    lengths = rng.integers(FEWEST_WORDS, MOST_WORDS + 1, n)
    drawn = np.searchsorted(shares, rng.random(lengths.sum()) * shares[-1]).astype(np.int32)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    sentences = pc.binary_join(pa.ListArray.from_arrays(offsets, words.take(pa.array(drawn))), " ")
    return pl.Series("text", sentences)


def _keys(rng: np.random.Generator, n: int, digits: int) -> pl.Series:
    """Return hexadecimal names, as digests are."""
    text = rng.bytes(n * digits // 2).hex().encode()
    offsets = (np.arange(n + 1) * digits).astype(np.int32)
    return pl.Series(pa.StringArray.from_buffers(n, pa.py_buffer(offsets), pa.py_buffer(text)))


def _generations(rng: np.random.Generator, part: int, words: pa.Array) -> pl.DataFrame:
    """Return the answers of one part in `plumbline.language.cell.DESCRIBED_SCHEMA`, image by image."""
    n = SETS_OF_A_PART * ROWS_OF_A_SET
    row = np.arange(n)
    image = row // (len(PROMPTS) * SEEDS)
    own_set = part * SETS_OF_A_PART + image // len(GROUPS)
    sets, images = pl.Series(own_set).cast(pl.String), _keys(rng, image[-1] + 1, 64)
    group = pl.Series(GROUPS).gather(image % len(GROUPS))
    length = pl.Series(rng.integers(50, 90, n))
    return pl.DataFrame(
        {
            "row_key": _keys(rng, n, 32),
            "model": pl.repeat("model", n, eager=True),
            "dataset": pl.repeat("faces", n, eager=True),
            "subset": pl.repeat("race_gender", n, eager=True),
            "image_id": images.gather(image),
            "set_id": "set-" + sets,
            "prompt": pl.Series(PROMPTS).gather(row // SEEDS % len(PROMPTS)),
            "instruction": pl.repeat("none", n, eager=True),
            "seed": row % SEEDS,
            "text": _texts(rng, n, words),
            "finish_reason": pl.repeat("stop", n, eager=True),
            "prompt_tokens": pl.repeat(600, n, eager=True),
            "new_tokens": length,
            "source": pl.repeat("f" * 64, n, eager=True),
            "attribute": pl.repeat("race_gender", n, eager=True),
            "group": group,
            "occupation": "occupation " + pl.Series(own_set % 160).cast(pl.String),
        }
    ).cast(pl.Schema(DESCRIBED_SCHEMA))


def _scores(rng: np.random.Generator, keys: pl.Series) -> pl.DataFrame:
    """Return the scores of every answer in `plumbline.catalog.schema.SCORE_SCHEMA`."""
    n = len(keys) * len(SCORED)
    row = np.arange(n)
    return pl.DataFrame(
        {
            "row_key": keys.gather(row // len(SCORED)),
            "scorer": pl.repeat("offline", n, eager=True),
            "attribute": pl.Series(SCORED).gather(row % len(SCORED)),
            "score": rng.beta(1, 8, n),
            "truncated": pl.repeat(False, n, eager=True),
            "reason": pl.repeat(None, n, dtype=pl.String, eager=True),
        }
    )


def _people(generations: pl.DataFrame) -> pl.DataFrame:
    """Return who is pictured, in `plumbline.language.cell.EXPECTED_SCHEMA`."""
    images = generations.with_columns(set_groups=pl.lit(len(GROUPS), pl.Int64)).select(list(EXPECTED_SCHEMA))
    return images.unique(maintain_order=True)
