"""Images scored against the texts of prompt suites by a model that must see both, in shards by image and suite."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plumbline.digests import digest_sequence
from plumbline.encoders.batching import OomRetry, plan_batch_rows
from plumbline.encoders.embedding import Decoder
from plumbline.encoders.encoder import PairEncoder
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
class ScoredSuites:
    """Scores of suites, and how many of them were computed or cached.

    Attributes
    ----------
    suites : mapping of suite id to Scored
    images : int
    work : CacheStats
        A forward pass is a batch of images against the texts of all suites that lack it.
    """

    suites: Mapping[str, ShardedArray]
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
    """Score image files against prompt suites, or read their cached scores.

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
        for one image, or the fast decoder is asked for; names the files.
    """
    if decoder != "pillow":
        raise EncodingError(
            "the fast decoder cannot stand in where a model scores pairs",
            found=f"decoder: {decoder}",
            expected="an encoder that embeds images, so that its embeddings can be compared",
            hint="set `decoder: pillow`",
        )
    files = ImageFiles(paths, image_ids)
    rows = plan_batch_rows(encoder, cache, batch_rows, shard_rows=shard_rows)
    plan = ShardPlan(len(files), shard_rows, rows)
    texts_of, passes = list(suites.values()), OomRetry(encoder.score_pairs)

    def scores(texts: Sequence[str]) -> ShardedArray:
        of_texts = digest_sequence(texts)

        def key_of(span: Span) -> str:
            inputs = digest_sequence([digest_sequence(span.of(image_ids)), of_texts])
            return encoder.identity.cache_key("pairs", inputs=inputs, batch_rows=rows)

        return ShardedArray(_ARRAY, len(texts), plan, key_of, cache)

    def batches(spans: list[Span]) -> AbstractContextManager[Iterator[Any]]:
        return image_batches(files, spans, with_pillow(encoder), device=encoder.device, workers=workers)

    def forward(batch: Any, lacking: list[int]) -> NDArray[np.float32]:
        return passes(batch, *(texts_of[suite] for suite in lacking))

    def refuse(logits: NDArray[np.float32], span: Span, lacking: list[int]) -> None:
        _refuse_unusable(logits, span.of(paths), [text for suite in lacking for text in texts_of[suite]])

    arrays = [scores(texts) for texts in texts_of]
    fill(arrays, plan, cache, batches=batches, forward=forward, refuse=refuse, device=encoder.device, progress=progress)
    return ScoredSuites(dict(zip(suites, arrays, strict=True)), len(files), CacheStats.of(arrays, passes))


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
