"""The engine of encoders: embeds images and texts, and scores pairs, in shards that are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from plumbline.catalog.suites import Suite
from plumbline.digests import digest_sequence
from plumbline.encoders.batching import OomRetry, plan_batch_rows
from plumbline.encoders.encoder import DualEncoder, EncoderIdentity, PairEncoder
from plumbline.encoders.images import (
    DecoderGate,
    FastDecoder,
    ImageFiles,
    Prepare,
    image_batches,
    require_equal_embeddings,
    with_pillow,
)
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
from plumbline.errors import EncodingError, StorageError, examples
from plumbline.reasons import Reasons
from plumbline.storage import ShardCache

TEXT_SHARD_ROWS = 256
TEXT_BATCH_ROWS = 128
Decoder = Literal["pillow", "fast"]
_ARRAY = "embedding"
_TEXTS = 4
"""From which on it is asked whether a model tells texts apart."""


@dataclass(frozen=True)
class Embedded:
    """Embeddings, and how many of them were computed or cached.

    Attributes
    ----------
    array : (n, d) float32
        As the model gives them, not normalised.
    shards : tuple of (key, sha256)
        In row order.
    work : CacheStats
    gate : DecoderGate or None
        Where the fast decoder was asked for: whether it was used, and how far its embeddings were from the
        checkpoint's own.
    surplus, notes : int or None, tuple of Reason
        Of stored embeddings: rows of images that were not asked for, and what is to be known of the others.
    """

    array: NDArray[np.float32]
    shards: tuple[tuple[str, str], ...]
    work: CacheStats
    gate: DecoderGate | None = None
    surplus: int | None = None
    notes: Reasons = ()

    def counters(self) -> dict[str, int | float]:
        """Return the work done, for metadata."""
        rows = {"images_or_texts": int(self.array.shape[0])}
        rows |= {} if self.surplus is None else {"rows_of_no_image": self.surplus}
        return rows | self.work.counters() | (self.gate.counters() if self.gate else {})


def embed_images(
    encoder: DualEncoder,
    paths: Sequence[Path],
    image_ids: Sequence[str],
    cache: ShardCache,
    *,
    shard_rows: int,
    batch_rows: int | None = None,
    workers: int | None = None,
    decoder: Decoder = "pillow",
    progress: Progress | None = None,
) -> Embedded:
    """Embed image files, or read their cached embeddings.

    Parameters
    ----------
    paths, image_ids : sequences of length n
        Files and the sha256 of their bytes: the cache goes by the latter.
    shard_rows, batch_rows : int
        Rows of a shard, and of a forward pass inside one (see `plan_batch_rows` for None and `ShardPlan`).
    workers : int, optional
        Threads that decode; one for each core when absent.
    decoder : {"pillow", "fast"}
        `fast` decodes plain JPEG files with simplejpeg, after proof on images of this dataset that the embeddings
        are the same; it is part of the key. Where the first files of the dataset have none, it is not used.
    progress : callable, optional
        Called with (rows done, rows to do), shards found in the cache left out of both.

    Raises
    ------
    EncodingError
        If a row is NaN, infinite or of zero norm, a file is no longer the one that was recorded, the preprocessing
        cannot take a picture, the device has not the memory for one image, or the fast decoder moves embeddings or
        cannot be used with this encoder; names the files.
    """
    files = ImageFiles(paths, image_ids)
    rows = plan_batch_rows(encoder, cache, batch_rows, shard_rows=shard_rows)
    forward = OomRetry(encoder.embed_images)
    prepare: Prepare = with_pillow(encoder)
    identity, gate = encoder.identity, None
    if decoder == "fast":
        fast = FastDecoder(encoder)
        gate = require_equal_embeddings(encoder, fast, files, cache, forward)
        if gate.used:
            prepare, identity = fast, replace(identity, decoder=fast.name)

    def batches(spans: list[Span]) -> AbstractContextManager[Iterator[Any]]:
        return image_batches(files, spans, prepare, device=encoder.device, workers=workers)

    plan = ShardPlan(len(files), shard_rows, rows)
    return _embed("image", encoder, identity, image_ids, paths, plan, batches, forward, cache, progress, gate)


def keep_vectors(
    encoder: DualEncoder, vectors: NDArray[np.float32], image_ids: Sequence[str], cache: ShardCache, *, shard_rows: int
) -> Embedded:
    """Keep the (n, d) embeddings of images that were computed elsewhere as those that an encoder computes."""

    def batches(spans: list[Span]) -> AbstractContextManager[Iterator[Any]]:
        return nullcontext(span.of(vectors) for span in spans)  # type: ignore[arg-type]

    plan, forward = ShardPlan(len(image_ids), shard_rows, shard_rows), OomRetry(lambda rows: rows)
    kept = _embed("image", encoder, encoder.identity, image_ids, image_ids, plan, batches, forward, cache)
    return replace(kept, work=replace(kept.work, forward_passes=0))


def embed_texts(
    encoder: DualEncoder, texts: Sequence[str], cache: ShardCache, *, batch_rows: int = TEXT_BATCH_ROWS
) -> Embedded:
    """Embed texts, or read their cached embeddings; see `embed_images`."""

    def batches(spans: list[Span]) -> AbstractContextManager[Iterator[Any]]:
        return nullcontext(span.of(texts) for span in spans)

    plan, forward = ShardPlan(len(texts), TEXT_SHARD_ROWS, batch_rows), OomRetry(encoder.embed_texts)
    embedded = _embed("text", encoder, encoder.identity, texts, texts, plan, batches, forward, cache)
    _refuse_alike(embedded.array, texts, "embedding")
    return embedded


def _refuse_alike(vectors: NDArray[np.float32], texts: Sequence[str], what: str) -> None:
    """Refuse a model to which most of several texts are one and the same: what it chooses is their order.

    Raises
    ------
    EncodingError
        If fewer than half of at least four different texts have a vector of their own.
    """
    different = len(set(texts))
    told_apart = len({row.tobytes() for row in vectors})
    if different >= _TEXTS and 2 * told_apart < different:
        first = vectors[0].tobytes()
        same = [text for text, row in zip(texts, vectors) if row.tobytes() == first]
        raise EncodingError(
            f"the model does not tell texts apart: {different} different ones have {told_apart} different {what}s",
            found=f"one {what} for {examples([repr(text) for text in same])}",
            expected=f"{what}s of their own",
            hint="its tokenizer may know none of the words: look at the ids that it gives them, and save it once more "
            "from where the checkpoint was trained",
        )


def embed_classes(encoder: DualEncoder, suite: Suite, cache: ShardCache) -> Embedded:
    """Embed the classes of a suite with templates: the mean of the unit vectors of each class's texts, of unit norm.

    Source: Radford et al. 2021, section 3.1.4; `zero_shot_classifier` of CLIP_benchmark is the same.

    Returns
    -------
    Embedded
        `array` (classes, d) float32; the shards are those of the texts, class by class.
    """
    embedded = embed_texts(encoder, suite.embedded, cache)
    vectors = embedded.array / np.linalg.norm(embedded.array, axis=1, keepdims=True)
    means = vectors.reshape(len(suite.candidates), len(suite.ensemble), -1).mean(axis=1)
    return replace(embedded, array=means / np.linalg.norm(means, axis=1, keepdims=True))


def _embed(
    kind: str,
    encoder: DualEncoder,
    identity: EncoderIdentity,
    content: Sequence[str],
    names: Sequence[object],
    plan: ShardPlan,
    batches: Callable[[list[Span]], AbstractContextManager[Iterator[Any]]],
    forward: OomRetry,
    cache: ShardCache,
    progress: Progress | None = None,
    gate: DecoderGate | None = None,
) -> Embedded:
    """Embed what is cached by its content and called by its name in messages."""

    def key_of(span: Span) -> str:
        return identity.cache_key(kind, inputs=digest_sequence(span.of(content)), batch_rows=plan.batch_rows)

    def refuse(rows: NDArray[np.float32], span: Span, _lacking: list[int]) -> None:
        _refuse_unusable(rows, span.of(names), encoder.width)

    embedded = ShardedArray(_ARRAY, encoder.width, plan, key_of, cache)
    fill(
        [embedded], plan, cache, batches=batches, forward=lambda batch, _lacking: forward(batch), refuse=refuse,
        device=encoder.device, progress=progress,
    )  # fmt: skip
    return Embedded(embedded.array, embedded.shards, CacheStats.of([embedded], forward), gate)


def _refuse_unusable(rows: NDArray[np.float32], names: Sequence[object], width: int) -> None:
    require_shape(rows, (len(names), width), what="embeddings")
    norms = np.linalg.norm(rows.astype(np.float64), axis=1)
    bad = ~np.isfinite(norms) | (norms == 0)
    if bad.any():
        raise EncodingError(
            f"{int(bad.sum())} embedding(s) are NaN, infinite or of zero norm; the shard is not kept",
            where=first_named(names, bad),
            found=f"norms {norms[bad][:5].tolist()}",
            expected="finite, positive norms",
            hint="look at these inputs; in half precision, try float32",
        )


def read_embedded(shards: Sequence[tuple[str, str]], cache: ShardCache) -> NDArray[np.float32]:
    """Return the (n, d) embeddings of shards that were computed before, in order; none give (0, 0).

    Raises
    ------
    StorageError
        If one is gone, damaged, or holds other bytes than it did.
    """
    array, stop = np.empty((0, 0), dtype=np.float32), 0
    for position, (key, sha256) in enumerate(shards):
        shard = cache.load(key)
        if shard is None or shard.sha256 != sha256:
            raise StorageError(
                "a shard of `image_embeddings` is gone, damaged or another than the one that was recorded",
                where=key,
                found="nothing readable" if shard is None else f"sha256 {shard.sha256}",
                expected=f"sha256 {sha256}",
                hint="materialise `image_embeddings` of this cell again: only this shard is redone",
            )
        rows = shard.arrays[_ARRAY]
        if position == 0:  # no other has more; pages that nothing is written to take no memory
            array = np.empty((len(shards) * len(rows), rows.shape[1]), dtype=np.float32)
        array[stop : stop + len(rows)] = rows
        stop += len(rows)
    return array[:stop]


# --- Images scored against the texts of prompt suites by a model that must see both, in shards by image
# and suite.

_SCORES = "logit"


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

        return ShardedArray(_SCORES, len(texts), plan, key_of, cache)

    def batches(spans: list[Span]) -> AbstractContextManager[Iterator[Any]]:
        return image_batches(files, spans, with_pillow(encoder), device=encoder.device, workers=workers)

    def forward(batch: Any, lacking: list[int]) -> NDArray[np.float32]:
        return passes(batch, *(texts_of[suite] for suite in lacking))

    def refuse(logits: NDArray[np.float32], span: Span, lacking: list[int]) -> None:
        _refuse_unusable_scores(logits, span.of(paths), [text for suite in lacking for text in texts_of[suite]])

    arrays = [scores(texts) for texts in texts_of]
    fill(arrays, plan, cache, batches=batches, forward=forward, refuse=refuse, device=encoder.device, progress=progress)
    return ScoredSuites(dict(zip(suites, arrays, strict=True)), len(files), CacheStats.of(arrays, passes))


def _refuse_unusable_scores(logits: NDArray[np.float32], paths: Sequence[Path], texts: Sequence[str]) -> None:
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
    _refuse_alike(np.ascontiguousarray(logits.T), texts, "score")
