"""Images scored against the texts of prompt suites by a model that must see both, in shards by image and suite."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plumbline.digests import digest_sequence
from plumbline.encoders.batching import OomRetry, plan_batch_rows
from plumbline.encoders.embedding import Decoder
from plumbline.encoders.encoder import EncoderIdentity, PairEncoder
from plumbline.encoders.images import ImageFiles, image_batches, with_pillow
from plumbline.encoders.sharding import (
    CacheStats,
    Progress,
    ShardedArray,
    ShardPlan,
    Span,
    fill,
    first_named,
    require_shape,
)
from plumbline.errors import EncodingError
from plumbline.storage import ShardCache

_ARRAY = "logit"


@dataclass(frozen=True)
class Scored:
    """The logits of one suite.

    Attributes
    ----------
    array : (n, m) float32
        Of n images against the suite's m texts, as the model gives them.
    shards : tuple of (key, sha256)
        In row order.
    """

    array: NDArray[np.float32]
    shards: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class ScoredSuites:
    """Suites with an account of the work over all of them.

    Attributes
    ----------
    suites : mapping of suite id to Scored
    images : int
    work : CacheStats
        A forward pass is a batch of images against the texts of all suites that lack it.
    """

    suites: Mapping[str, Scored]
    images: int
    work: CacheStats

    @property
    def shards(self) -> tuple[tuple[str, str], ...]:
        """Return (key, sha256) of every shard, suite after suite."""
        return tuple(shard for scored in self.suites.values() for shard in scored.shards)

    def counters(self) -> dict[str, int]:
        """Return the work done, for metadata."""
        return {"images": self.images} | self.work.counters()


def score_suites(
    encoder: PairEncoder,
    paths: Sequence[Path],
    image_ids: Sequence[str],
    suites: Mapping[str, Sequence[str]],
    cache: ShardCache,
    *,
    shard_rows: int,
    batch_rows: int | None = None,
    workers: int | None = None,
    decoder: Decoder = "pillow",
    progress: Progress | None = None,
) -> ScoredSuites:
    """Score image files against prompt suites, or find them scored.

    Every suite has shards of its own, so that a new suite costs its own pairs and leaves the others as they are. What
    several suites lack of the same images is computed in one pass over these images.

    Parameters
    ----------
    paths, image_ids : sequences of length n
        Files and the sha256 of their bytes: the cache goes by the latter.
    suites : mapping of suite id to texts
        The cache goes by the texts in their order, not by the id.
    shard_rows, batch_rows : int
        Images of a shard, and of a pass inside one (see `plan_batch_rows` for None).
    workers : int, optional
        Threads that decode; one for each core when absent.
    decoder : {"pillow", "fast"}
        Only `pillow`: the proof that the fast one needs compares embeddings, and here are none.
    progress : callable, optional
        Called with (images done, images to do), shards found in the cache left out of both.

    Raises
    ------
    EncodingError
        If a logit is NaN or infinite, a file is no longer the one that was recorded, the device has not the memory
        for one image, a suite is empty, or the fast decoder is asked for; names the files.
    """
    _require_scorable(suites, decoder)
    files = ImageFiles(paths, image_ids)
    rows = plan_batch_rows(encoder, cache, batch_rows, shard_rows=shard_rows)
    plan = ShardPlan(len(files), shard_rows, rows)
    arrays = [_find(encoder.identity, files, texts, plan, cache) for texts in suites.values()]
    texts_of = list(suites.values())
    passes = OomRetry(encoder.score_pairs)

    def batches(spans: list[Span]) -> AbstractContextManager[Iterator[Any]]:
        return image_batches(files, spans, with_pillow(encoder), device=encoder.device, workers=workers)

    def forward(batch: Any, lacking: list[int]) -> NDArray[np.float32]:
        return passes(batch, *(texts_of[suite] for suite in lacking))

    def results(logits: NDArray[np.float32], span: Span, lacking: list[int]) -> list[NDArray[np.float32]]:
        texts = [texts_of[suite] for suite in lacking]
        _refuse_unusable(logits, paths[span.start : span.stop], list(chain.from_iterable(texts)))
        starts = np.cumsum([len(of_suite) for of_suite in texts])[:-1]
        return [np.ascontiguousarray(part) for part in np.split(logits, starts, axis=1)]

    fill(
        arrays, plan, cache, batches=batches, forward=forward, results=results,
        device=encoder.device, progress=progress,
    )  # fmt: skip
    by_suite = {suite: Scored(row.array(), row.index()) for suite, row in zip(suites, arrays, strict=True)}
    return ScoredSuites(by_suite, len(files), CacheStats.of(arrays, passes))


def _find(
    identity: EncoderIdentity, files: ImageFiles, texts: Sequence[str], plan: ShardPlan, cache: ShardCache
) -> ShardedArray:
    """Look up the shards of one suite."""
    of_texts, keys = digest_sequence(texts), []
    for span in plan.shards():
        inputs = digest_sequence([digest_sequence(files.image_ids[span.start : span.stop]), of_texts])
        keys.append(identity.cache_key("pairs", inputs=inputs, batch_rows=plan.batch_rows))
    return ShardedArray.find(_ARRAY, len(texts), keys, cache)


def _require_scorable(suites: Mapping[str, Sequence[str]], decoder: Decoder) -> None:
    empty = [suite for suite, texts in suites.items() if not texts]
    if empty:
        raise EncodingError(
            "a suite without texts cannot be scored", where=empty[0], found="no texts", expected="one or more"
        )
    if decoder != "pillow":
        raise EncodingError(
            "the fast decoder cannot stand in where a model scores pairs",
            found=f"decoder: {decoder}",
            expected="an encoder that embeds images, so that its embeddings can be compared",
            hint="set `decoder: pillow`",
        )


def _refuse_unusable(logits: NDArray[np.float32], paths: Sequence[Path], texts: Sequence[str]) -> None:
    require_shape(logits, (len(paths), len(texts)), what="logits")
    bad = ~np.isfinite(logits)
    if bad.any():
        rows = np.any(bad, axis=1)
        raise EncodingError(
            f"{int(bad.sum())} logit(s) of {int(rows.sum())} image(s) are NaN or infinite; the shard is not kept",
            where=first_named(paths, rows),
            found=f"{logits[bad][0]} with {texts[int(np.argmax(bad[rows.argmax()]))]!r}",
            expected="finite logits",
            hint="look at these images; in half precision, try float32",
        )
