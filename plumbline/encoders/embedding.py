"""The embedding engine: images and texts in shards that are computed once, checked, and found again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from plumbline.digests import digest_sequence
from plumbline.encoders.batching import FittingForward, plan_batch_rows
from plumbline.encoders.encoder import DualEncoder, EncoderIdentity
from plumbline.encoders.fast_decoding import DecoderGate, FastDecoder, require_equal_embeddings
from plumbline.encoders.image_batches import ImageFiles, image_batches, with_pillow
from plumbline.encoders.sharding import Progress, ShardRow, Span, joined, read_recorded
from plumbline.errors import EncodingError
from plumbline.storage import ShardCache

TEXT_SHARD_ROWS = 256
TEXT_BATCH_ROWS = 64
Decoder = Literal["pillow", "fast"]
_ARRAY = "embedding"


@dataclass(frozen=True)
class Embedded:
    """Embeddings with an account of the work.

    Attributes
    ----------
    array : (n, d) float32
        As the model gives them, not normalised.
    shards : tuple of (key, sha256)
        In row order.
    forward_passes : int
        Batches that went through the model now; 0 when everything was found in the cache.
    computed_shards, cached_shards, repaired_shards : int
        `repaired` counts the computed ones that were in the cache but failed their checksum.
    fitting_rows : int or None
        Rows of a pass after memory ran out on the device; None where the planned ones fitted.
    gate : DecoderGate or None
        How far the fast decoder's embeddings were from the checkpoint's own, where it was used.
    """

    array: NDArray[np.float32]
    shards: tuple[tuple[str, str], ...]
    forward_passes: int
    computed_shards: int
    cached_shards: int
    repaired_shards: int
    fitting_rows: int | None = None
    gate: DecoderGate | None = None

    def counters(self) -> dict[str, int | float]:
        """Return the work done, for metadata."""
        work: dict[str, int | float] = {
            "images_or_texts": int(self.array.shape[0]),
            "forward_passes": self.forward_passes,
            "computed_shards": self.computed_shards,
            "cached_shards": self.cached_shards,
            "repaired_shards": self.repaired_shards,
        }
        if self.fitting_rows is not None:
            work["fitting_rows"] = self.fitting_rows
        return work | (self.gate.counters() if self.gate else {})


class _Task(NamedTuple):
    """What is embedded: the identity it is cached under, the inputs by content, and their names for messages."""

    kind: str
    identity: EncoderIdentity
    inputs: Sequence[str]
    names: Sequence[str]
    shard_rows: int
    batch_rows: int


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
    """Embed image files, or find them embedded.

    Parameters
    ----------
    paths, image_ids : sequences of length n
        Files and the sha256 of their bytes: the cache goes by the latter.
    shard_rows, batch_rows : int
        Rows of a shard, and of a forward pass inside one (see `plan_batch_rows` for None). A batch never crosses a
        shard, so that a resumed run repeats at most one shard and gives the same bits.
    workers : int, optional
        Threads that decode; one for each core when absent.
    decoder : {"pillow", "fast"}
        `fast` decodes plain JPEG files with simplejpeg, after proof on images of this dataset that the embeddings
        are the same; it is part of the key.
    progress : callable, optional
        Called with (rows done, rows to do), shards found in the cache left out of both.

    Raises
    ------
    EncodingError
        If a row is NaN, infinite or of zero norm, a file is no longer the one that was recorded, the device has
        not the memory for one image, or the fast decoder cannot be used; names the files.
    """
    files = ImageFiles(paths, image_ids)
    rows = plan_batch_rows(encoder, cache, batch_rows)
    forward = FittingForward(encoder.embed_images)
    prepare, identity, gate = with_pillow(encoder), encoder.identity, None
    if decoder == "fast":
        prepare = fast = FastDecoder(encoder)
        identity = replace(identity, decoder=fast.name)
        gate = require_equal_embeddings(encoder, fast, files, cache, forward)

    def batches(spans: list[Span]) -> AbstractContextManager[Iterator[Any]]:
        return image_batches(files, spans, prepare, device=encoder.device, workers=workers)

    task = _Task("image", identity, image_ids, [str(p) for p in paths], shard_rows, rows)
    return replace(_embed(task, encoder, cache, forward, batches, progress), gate=gate)


def embed_texts(
    encoder: DualEncoder, texts: Sequence[str], cache: ShardCache, *, batch_rows: int = TEXT_BATCH_ROWS
) -> Embedded:
    """Embed texts, or find them embedded; see `embed_images`."""

    def batches(spans: list[Span]) -> AbstractContextManager[Iterator[Any]]:
        return nullcontext(texts[span.start : span.stop] for span in spans)

    task = _Task("text", encoder.identity, texts, texts, TEXT_SHARD_ROWS, batch_rows)
    return _embed(task, encoder, cache, FittingForward(encoder.embed_texts), batches, None)


def _embed(
    task: _Task,
    encoder: DualEncoder,
    cache: ShardCache,
    forward: FittingForward,
    batches: Callable[[list[Span]], AbstractContextManager[Iterator[Any]]],
    progress: Progress | None,
) -> Embedded:
    cut = list(Span(0, len(task.inputs)).pieces(task.shard_rows))
    found = ShardRow.find([_key(task, span) for span in cut], cache)
    missing = [i for i, shard in enumerate(found.shards) if shard is None]
    pieces = {i: list(cut[i].pieces(task.batch_rows)) for i in missing}
    done, to_do = 0, sum(len(cut[i]) for i in missing)
    # One stream over all missing shards: while one is written, the next is being decoded.
    with batches([piece for i in missing for piece in pieces[i]]) as stream:
        for i in missing:
            arrays = []
            for _ in pieces[i]:
                arrays.append(forward(next(stream)))
                done += len(arrays[-1])
                if progress:
                    progress(done, to_do)
            rows = joined(arrays, width=encoder.width)
            _refuse_unusable(rows, task.names[cut[i].start : cut[i].stop], encoder.width)
            details = {"rows": len(rows), "device": encoder.device, "batches": len(arrays)}
            found.shards[i] = cache.commit(found.keys[i], {_ARRAY: rows}, details=details)
    return Embedded(
        found.array(_ARRAY, width=encoder.width), found.index(),
        forward.passes, found.computed, found.cached, found.repaired, forward.rows,
    )  # fmt: skip


def _key(task: _Task, span: Span) -> str:
    inputs = digest_sequence(task.inputs[span.start : span.stop])
    return task.identity.cache_key(task.kind, inputs=inputs, batch_rows=task.batch_rows)


def _refuse_unusable(rows: NDArray[np.float32], names: Sequence[str], width: int) -> None:
    if rows.shape != (len(names), width):
        raise EncodingError(
            "the model gave embeddings of another shape", found=rows.shape, expected=(len(names), width)
        )
    norms = np.linalg.norm(rows.astype(np.float64), axis=1)
    bad = ~np.isfinite(norms) | (norms == 0)
    if bad.any():
        listed = [names[i] for i in np.flatnonzero(bad)[:5]]
        raise EncodingError(
            f"{int(bad.sum())} embedding(s) are NaN, infinite or of zero norm; the shard is not kept",
            where=", ".join(listed) + (" …" if bad.sum() > 5 else ""),
            found=f"norms {norms[bad][:5].tolist()}",
            expected="finite, positive norms",
            hint="look at these inputs; in half precision, try float32",
        )


def read_embedded(shards: Sequence[tuple[str, str]], cache: ShardCache) -> NDArray[np.float32]:
    """Return the (n, d) embeddings of shards that were computed before, in order.

    Raises
    ------
    StorageError
        If one is gone, damaged, or holds other bytes than it did.
    """
    return joined(read_recorded(shards, cache, array=_ARRAY, asset="image_embeddings"), width=0)
