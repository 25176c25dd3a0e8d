"""Tables of scored texts: how they are kept, how they are read, and how they become rows of generations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

import polars as pl

from plumbline.catalog.schema import SCORE_SCHEMA, SCORED_ATTRIBUTES, Schema

TEXT = "text"
TEXT_KEY = "text_sha256"

KEPT_SCORES: Schema = {
    TEXT_KEY: pl.String,
    **dict.fromkeys(SCORED_ATTRIBUTES, pl.Float64),
    "truncated": pl.Boolean,
    "reason": pl.String,
}
"""One row a text; null for attributes that the scorer does not know, nan with a `reason` where there is no score."""

TEXT_SCORE_SCHEMA: Schema = {
    TEXT_KEY: pl.String,
    "attribute": pl.String,
    "score": pl.Float64,
    "truncated": pl.Boolean,
    "reason": pl.String,
}
"""One row a text and attribute that the scorer knows."""

NOT_SCORED = "this text was never given to the scorer"

_JOINED_BYTES = 16


@dataclass(frozen=True)
class TextScores:
    """Scores of texts by one scorer, with an account of the work.

    Attributes
    ----------
    kept : LazyFrame
        In `KEPT_SCORES`: the texts that were asked for, and others that lie in the same parts of the store.
    attributes : tuple of str
        What the scorer scores.
    requested : int
        Texts that were asked for, repeats included.
    computed : int
        Distinct texts that went through the scorer now; 0 when all were found.
    damaged_parts : int
        Parts of the store that failed their checksum and were made again, as far as they were asked for.
    """

    kept: pl.LazyFrame
    attributes: tuple[str, ...]
    requested: int
    computed: int
    damaged_parts: int

    @property
    def frame(self) -> pl.LazyFrame:
        """Return one row a text and attribute, in `TEXT_SCORE_SCHEMA`."""
        return _by_attribute(self.kept, self.attributes, ids=[TEXT_KEY]).select(list(TEXT_SCORE_SCHEMA))

    def counters(self) -> dict[str, int]:
        """Return the numbers, for metadata."""
        return {"texts_asked": self.requested, "texts_scored_now": self.computed, "damaged_parts": self.damaged_parts}


def text_keys(texts: Sequence[str]) -> list[str]:
    """Return the sha256 (hex) of each text's UTF-8: what a score belongs to."""
    return [sha256(text.encode()).hexdigest() for text in texts]


def join_scores(generations: pl.LazyFrame | pl.DataFrame, scored: TextScores, scorer_id: str) -> pl.LazyFrame:
    """Return the scores of generations, in `SCORE_SCHEMA`: one row a generation and attribute of the scorer.

    Parameters
    ----------
    generations : frame
        With `row_key` and `text`; a text that is null counts as empty. Lazy frames stream.
    scored : TextScores
        A text that it lacks has nan and the reason `NOT_SCORED`.
    scorer_id : str
        Of the audit file.
    """
    keyed = generations.lazy().select(
        "row_key", _key=pl.col(TEXT).fill_null("").map_batches(_short_keys, pl.Int128, is_elementwise=True)
    )
    known = scored.kept.select(
        pl.col(TEXT_KEY).map_batches(_shortened, pl.Int128, is_elementwise=True).alias("_key"),
        *scored.attributes,
        "truncated",
        "reason",
    )
    absent = pl.col("truncated").is_null()
    rows = keyed.join(known, on="_key", how="left").with_columns(
        pl.when(absent).then(float("nan")).otherwise(pl.col(scored.attributes)).name.keep(),
        pl.when(absent).then(pl.lit(NOT_SCORED)).otherwise("reason").alias("reason"),
        truncated=pl.col("truncated").fill_null(False),
        scorer=pl.lit(scorer_id),
    )
    return _by_attribute(rows, scored.attributes, ids=["row_key", "scorer"]).select(list(SCORE_SCHEMA))


def score_coverage(scores: pl.LazyFrame | pl.DataFrame) -> pl.DataFrame:
    """Return how much of what was to be scored has a score.

    Parameters
    ----------
    scores : frame
        In `SCORE_SCHEMA` or `TEXT_SCORE_SCHEMA`.

    Returns
    -------
    DataFrame
        One row an attribute and reason (null: it has a score), with the number of rows `n` and how many of them are
        of texts that the scorer read only the beginning of, `truncated`; by attribute and falling n.
    """
    return (
        scores.lazy()
        .group_by("attribute", "reason")
        .agg(n=pl.len(), truncated=pl.col("truncated").sum())
        .sort("attribute", "n", "reason", descending=[False, True, False])
        .collect(engine="streaming")
    )


def _by_attribute(rows: pl.LazyFrame, attributes: Sequence[str], *, ids: Sequence[str]) -> pl.LazyFrame:
    long = rows.unpivot(
        list(attributes), index=[*ids, "truncated", "reason"], variable_name="attribute", value_name="score"
    )
    # A text may have some scores and lack others.
    return long.with_columns(reason=pl.when(pl.col("score").is_nan()).then("reason"))


def _short_keys(texts: pl.Series) -> pl.Series:
    digests = [sha256(text.encode()).digest()[:_JOINED_BYTES] for text in texts]
    return _as_number(pl.Series(digests, dtype=pl.Binary))


def _shortened(keys: pl.Series) -> pl.Series:
    """Return the first 128 bits of hexadecimal digests: a join holds them, and 64 letters take five times as much."""
    return _as_number(keys.str.decode("hex").bin.slice(0, _JOINED_BYTES))


def _as_number(digests: pl.Series) -> pl.Series:
    return digests.bin.reinterpret(dtype=pl.Int128)
