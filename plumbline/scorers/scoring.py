"""Scores of texts: each distinct text goes through a scorer once, and its scores become rows of generations."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

import polars as pl
from upath import UPath

from plumbline.catalog.schema import SCORE_SCHEMA, SCORED_ATTRIBUTES, Schema
from plumbline.errors import ScoringError
from plumbline.scorers.scorer import Scored, Scorer
from plumbline.storage.kept_rows import KeptRows, PartWriter

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


# --- The engine: what has no score yet goes through the scorer, and is kept.


WINDOW_ROWS = 16_384
"""Texts that a scorer gets at once: enough for it to put those of one length together. Also the most of a part."""

PART_SECONDS = 30.0
"""A kill loses the work of about this long; slow scorers so keep more and smaller parts."""

_MOVE_SECONDS = 0.1

Progress = Callable[[int, int], None]
"""Called with (texts that have scores, texts asked for); the second is the first where it is not known."""


def score_texts(
    scorer: Scorer,
    texts: Iterable[pl.DataFrame],
    store: UPath,
    *,
    rows: int | None = None,
    window_rows: int = WINDOW_ROWS,
    part_seconds: float = PART_SECONDS,
    clock: Callable[[], float] = time.monotonic,
    progress: Progress | None = None,
) -> TextScores:
    """Score texts, or find them scored.

    Memory holds one window of texts and 12 bytes for every text that the store knows, whatever is asked.

    Parameters
    ----------
    scorer : Scorer
    texts : iterable of DataFrame
        With a column `text`, such as slices of a scan; texts may repeat, null counts as empty.
    store : UPath
        Folder of all scorers; each has a folder below it, by its identity.
    rows : int, optional
        Of all frames together, for `progress` alone.
    window_rows : int
        Texts in one call of the scorer.
    part_seconds : float
        Finished scores are put on the disk at least this often.
    clock : callable
        Seconds.
    progress : callable, optional

    Raises
    ------
    ScoringError
        As the scorer raises it, or if it gives a score outside [0, 1], none without a reason, or not one for each
        text. Finished scores are kept.
    StorageError
        If scores cannot be written.
    """
    kept = KeptRows(store / scorer.identity, KEPT_SCORES, key=TEXT_KEY)
    writer = PartWriter(kept, most_rows=window_rows, most_seconds=part_seconds, clock=clock)
    waiting = _Waiting(kept, kept.parts, window_rows)
    requested, computed, moved = 0, 0, clock()
    for window, requested in waiting.windows(texts):
        for done in _score(scorer, window, writer):
            computed += 1
            if progress and clock() - moved >= _MOVE_SECONDS:
                moved, ready = clock(), requested - window.height + done
                progress(ready, ready if rows is None else rows)
    if progress and requested:
        progress(requested, requested if rows is None else rows)
    return TextScores(kept.scan(waiting.asked_parts()), scorer.attributes, requested, computed, kept.damaged)


@dataclass
class _Waiting:
    """Gathers distinct texts without scores, and notes in which parts the others have theirs."""

    kept: KeptRows
    parts_before: int
    window_rows: int
    found_in: set[int] = field(default_factory=set)

    def windows(self, texts: Iterable[pl.DataFrame]) -> Iterator[tuple[pl.DataFrame, int]]:
        """Yield texts for the scorer, and how many were asked for up to there; the last may be empty."""
        waiting, requested = _keyed(pl.Series(TEXT, [], dtype=pl.String)), 0
        for frame in texts:
            requested += frame.height
            keyed = _keyed(frame[TEXT])
            self.found_in |= self.kept.parts_with(keyed[TEXT_KEY])
            waiting = self.kept.lacking(pl.concat([waiting, keyed]))
            while waiting.height >= self.window_rows:
                left = waiting.slice(self.window_rows)
                yield waiting.head(self.window_rows), requested - left.height
                waiting = left
        yield waiting, requested

    def asked_parts(self) -> set[int]:
        """Return the parts with scores of texts that were asked for: those found, and all that were made now."""
        return self.found_in | set(range(self.parts_before, self.kept.parts))


def _keyed(texts: pl.Series) -> pl.DataFrame:
    distinct = texts.fill_null("").unique(maintain_order=True)
    return pl.DataFrame({TEXT_KEY: pl.Series(text_keys(distinct.to_list()), dtype=pl.String), TEXT: distinct})


def _score(scorer: Scorer, window: pl.DataFrame, writer: PartWriter) -> Iterator[int]:
    """Give a window to the scorer, keep what comes back; yield how many are done after each."""
    keys, left = window[TEXT_KEY].to_list(), set(range(window.height))
    with writer:
        for position, scored in scorer.score(window[TEXT].to_list()) if keys else ():
            if position not in left:
                raise _wrong(scorer, "gave a text two scores or one that it was not asked for", position)
            _require_valid(scorer, scored)
            left.remove(position)
            scores = dict.fromkeys(SCORED_ATTRIBUTES) | scored.scores
            about = {"truncated": scored.truncated, "reason": scored.reason}
            writer.add({TEXT_KEY: keys[position], **scores, **about})
            yield window.height - len(left)
    if left:
        raise _wrong(scorer, "left out some texts", f"{len(left)} of {window.height}")


def _require_valid(scorer: Scorer, scored: Scored) -> None:
    if scored.scores.keys() != set(scorer.attributes):
        raise _wrong(scorer, "gave other attributes than it names", ", ".join(scored.scores))
    for attribute, score in scored.scores.items():
        # nan is neither above nor below.
        if not 0 <= score <= 1 and (score == score or scored.reason is None):
            raise _wrong(scorer, "gave no score from 0 to 1, nor nan with a reason", f"{attribute}: {score}")


def _wrong(scorer: Scorer, what: str, found: object) -> ScoringError:
    return ScoringError(f"the scorer {what}", where=f"{type(scorer).__name__} {scorer.version}", found=found)


# --- The scores of generations.


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
