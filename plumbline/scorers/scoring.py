"""The scoring engine: each distinct text goes through a scorer once, in this run or in an earlier one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import polars as pl
from upath import UPath

from plumbline.catalog.schema import SCORED_ATTRIBUTES
from plumbline.errors import ScoringError
from plumbline.scorers.scorer import Scored, Scorer
from plumbline.scorers.texts import KEPT_SCORES, TEXT, TEXT_KEY, TextScores, text_keys
from plumbline.storage.kept_rows import KeptRows, PartWriter

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
