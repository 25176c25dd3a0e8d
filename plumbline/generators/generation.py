"""The generation engine: every row is generated once, stored as soon as possible, and reused after a crash."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby

import polars as pl
from upath import UPath

from plumbline.catalog.schema import GENERATION_SCHEMA, Schema
from plumbline.errors import GenerationError, StorageError
from plumbline.generators.backend import Asked, Backend, Decoding
from plumbline.storage.kept_rows import KeptRows, PartWriter

_LOG = logging.getLogger(__name__)
_KEY = "row_key"

ANSWER_SCHEMA: Schema = {
    name: GENERATION_SCHEMA[name]
    for name in (_KEY, "text", "finish_reason", "prompt_tokens", "new_tokens", "source", "thinking", "thinking_tokens")
}
"""What is kept of a row: its key and its answer. What was asked is known to who asks."""

ENDPOINT = "endpoint"
PART_ROWS, PART_SECONDS = 256, 30.0
"""Answers of an endpoint come one by one: they are kept after so many, or so long."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Generated:
    """Answers, and how many of them were generated or reused.

    Attributes
    ----------
    frame : DataFrame
        `ANSWER_SCHEMA`, one row a key, in the order asked.
    generated, reused : int
        Rows that were made now, and that had been made before.
    damaged : int
        Stored parts whose bytes were no longer theirs; they were removed, and their rows made again.
    """

    frame: pl.DataFrame
    generated: int
    reused: int
    damaged: int


@dataclass(frozen=True)
class GenerationStore:
    """Answers under a root, by the identity of who gave them and by shard.

    An answer is found by its row's key, so that a prompt, a seed or an image that is added asks only its own rows.
    Several processes may write at once.
    """

    root: UPath

    def kept(self, identity: str, shard: str = "all") -> KeptRows:
        """Open the answers of a backend; every part is checked, which reads it.

        Parameters
        ----------
        identity : str
            Of the backend.
        shard : str
            Name of a folder. A row that is asked again under another shard is generated again.
        """
        return KeptRows(self.root / identity / shard, ANSWER_SCHEMA, key=_KEY, added=("thinking", "thinking_tokens"))


def generate(
    backend: Backend,
    asked: Sequence[Asked],
    decoding: Decoding,
    store: GenerationStore,
    *,
    shard: str = "all",
    progress: Progress | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Generated:
    """Generate answers, or read stored ones.

    The work goes in groups of `backend.at_once` subjects, which depend on `asked` alone: a run that was cut off and
    goes on has the same batches, and gives the same texts to the last bit. A group of a local model is kept when it
    is done; an endpoint's answers every `PART_ROWS` rows or `PART_SECONDS`. Whatever ends a run but a kill, all that
    was answered is kept; a kill loses no more than one group.

    Parameters
    ----------
    asked : sequence of Asked
        Rows of one subject adjacent. Rows of equal keys are one row.
    store : GenerationStore
    shard : str
        See `GenerationStore.kept`.
    progress : callable, optional
        Called with (rows done, rows to do), rows that were found left out of both.
    clock : callable
        Seconds.

    Raises
    ------
    GenerationError
        If a row cannot be answered, or the backend gives answers that were not asked for, or too few.
    StorageError
        If answers cannot be written.
    """
    kept = store.kept(backend.identity, shard)
    if kept.damaged:
        _LOG.warning("%d damaged part(s) of kept answers of %s are made again", kept.damaged, backend.identity)
    keys = pl.DataFrame({_KEY: [row.key for row in asked]}, schema={_KEY: pl.String})
    lacking = set(kept.lacking(keys)[_KEY])
    local, done = backend.device != ENDPOINT, 0
    most_rows, most_seconds = (math.inf, math.inf) if local else (PART_ROWS, PART_SECONDS)
    with PartWriter(kept, most_rows=most_rows, most_seconds=most_seconds, clock=clock) as writer:
        for group in _groups(asked, backend.at_once, lacking):
            for answer in _answers(backend, group, decoding):
                writer.add(answer)
                done += 1
                if progress is not None:
                    progress(done, len(lacking))
            if local:
                writer.flush()
    once = keys.unique(_KEY, keep="first", maintain_order=True)
    held = kept.scan(kept.parts_with(once[_KEY])).join(once.lazy(), on=_KEY, how="semi").collect()
    frame = once.join(held, on=_KEY, how="left", maintain_order="left")
    return Generated(frame, len(lacking), once.height - len(lacking), kept.damaged)


def _groups(asked: Sequence[Asked], at_once: int, lacking: set[str]) -> Iterator[list[Asked]]:
    """Yield the lacking rows of so many subjects each; groups do not depend on which rows are lacking."""
    subjects = [list(rows) for _, rows in groupby(asked, key=lambda row: row.subject.image_id)]
    first = {row.key: row for row in reversed(asked)}
    for start in range(0, len(subjects), at_once):
        rows = chain.from_iterable(subjects[start : start + at_once])
        if group := [row for row in rows if row.key in lacking and first[row.key] is row]:
            yield group


def _answers(backend: Backend, group: Sequence[Asked], decoding: Decoding) -> Iterator[dict[str, object]]:
    """Yield a row of `ANSWER_SCHEMA` for each of a group, as the backend answers them."""
    left = set(range(len(group)))
    for position, answer in backend.answers(group, decoding):
        if position not in left:
            raise GenerationError(
                "a backend gave an answer that was not asked for, or twice",
                found=f"position {position} of {len(group)}",
                expected="each position once",
            )
        left.remove(position)
        # Half a surrogate pair, which JSON can hold, is no text: it must not cost the other rows their place.
        texts = {name: value for name, value in vars(answer).items() if isinstance(value, str)}
        whole = {name: text.encode("utf-8", "replace").decode() for name, text in texts.items()}
        yield {_KEY: group[position].key, **vars(answer), **whole}
    if left:
        raise GenerationError(
            f"a backend left {len(left)} of {len(group)} rows without an answer",
            where=group[min(left)].question.text[:200],
            found=f"{len(group) - len(left)} answers",
            expected=f"{len(group)}",
        )


def answer_table(
    asked: Sequence[Asked], rows: pl.DataFrame, answered: pl.DataFrame, *, model: str, dataset: str
) -> pl.DataFrame:
    """Return the answers with what was asked, in `GENERATION_SCHEMA` and the order asked.

    Parameters
    ----------
    asked : sequence of Asked
    rows : DataFrame
        Who is pictured, as `plumbline.generators.design.pictured` gives them.
    answered : DataFrame
        The answers by `row_key`.

    Raises
    ------
    StorageError
        If a question has no answer.
    """
    questions = pl.DataFrame(
        {
            "row_key": [one.key for one in asked],
            "image_id": [one.subject.image_id for one in asked],
            **{name: [getattr(one.question, name) for one in asked] for name in ("prompt", "instruction", "seed")},
        },
        schema={name: GENERATION_SCHEMA[name] for name in ("row_key", "image_id", "prompt", "instruction", "seed")},
    )
    joined = questions.join(answered, on="row_key", how="inner", maintain_order="left")
    if joined.height != len(asked):
        raise StorageError("not every question has an answer", found=f"{joined.height} rows", expected=f"{len(asked)}")
    people = rows.select("image_id", "subset", "set_id").unique("image_id")
    joined = joined.join(people, on="image_id", how="left", maintain_order="left")
    return (
        joined.with_columns(pl.lit(model).alias("model"), pl.lit(dataset).alias("dataset"))
        .select(list(GENERATION_SCHEMA))
        .cast(pl.Schema(GENERATION_SCHEMA))
    )
