"""The embedding engine: images and texts in shards that are computed once, checked, and found again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from plumbline.digests import digest_bytes, digest_sequence
from plumbline.encoders.encoder import Encoder
from plumbline.errors import EncodingError, StorageError
from plumbline.images import decode, read_image_file
from plumbline.storage import ShardCache

if TYPE_CHECKING:
    import torch

Progress = Callable[[int, int], None]
TEXT_SHARD_ROWS = 256
# Batches that are decoded while one is in the model: bounds memory whatever the size of a shard.
DECODED_AHEAD = 2


class Cut(NamedTuple):
    """How inputs are cut: rows of a shard, and of a forward pass inside one."""

    shard_rows: int
    batch_rows: int


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
    """

    array: NDArray[np.float32]
    shards: tuple[tuple[str, str], ...]
    forward_passes: int
    computed_shards: int
    cached_shards: int
    repaired_shards: int

    def counters(self) -> dict[str, int]:
        """Return the work done, for metadata."""
        return {
            "images_or_texts": int(self.array.shape[0]),
            "forward_passes": self.forward_passes,
            "computed_shards": self.computed_shards,
            "cached_shards": self.cached_shards,
            "repaired_shards": self.repaired_shards,
        }


def embed_images(
    encoder: Encoder,
    paths: Sequence[Path],
    image_ids: Sequence[str],
    cache: ShardCache,
    *,
    shard_rows: int,
    batch_rows: int,
    workers: int = 2,
    progress: Progress | None = None,
) -> Embedded:
    """Embed image files, or find them embedded.

    Parameters
    ----------
    paths, image_ids : sequences of length n
        Files and the sha256 of their bytes: the cache goes by the latter.
    shard_rows, batch_rows : int
        Rows of a shard, and of a forward pass inside one. A batch never crosses a shard, so that a resumed run
        repeats at most one shard and gives the same bits.
    progress : callable, optional
        Called with (rows done, rows in all).

    Raises
    ------
    EncodingError
        If a row is NaN, infinite or of zero norm, or a file is no longer the one that was recorded; names the
        files.
    """

    def compute(start: int, stop: int, pool: ThreadPoolExecutor) -> Iterator[NDArray[np.float32]]:
        import torch

        def load(i: int) -> torch.Tensor:
            data = read_image_file(paths[i])
            if digest_bytes(data) != image_ids[i]:
                raise EncodingError(
                    "an image has changed since it was recorded",
                    where=paths[i],
                    found=f"sha256 {digest_bytes(data)}",
                    expected=f"sha256 {image_ids[i]}",
                    hint="materialise `records` of this dataset again",
                )
            return encoder.prepare(decode(data))

        ahead: deque[list[Future[torch.Tensor]]] = deque()
        for first in range(start, stop, batch_rows):
            ahead.append([pool.submit(load, i) for i in range(first, min(first + batch_rows, stop))])
            if len(ahead) > DECODED_AHEAD:
                yield encoder.embed_images(torch.stack([future.result() for future in ahead.popleft()]))
        while ahead:
            yield encoder.embed_images(torch.stack([future.result() for future in ahead.popleft()]))

    with ThreadPoolExecutor(workers) as pool:
        return _embed(
            "image", encoder, image_ids, [str(p) for p in paths], cache, Cut(shard_rows, batch_rows),
            lambda start, stop: compute(start, stop, pool), progress,
        )  # fmt: skip


def embed_texts(encoder: Encoder, texts: Sequence[str], cache: ShardCache, *, batch_rows: int) -> Embedded:
    """Embed texts, or find them embedded; see `embed_images`."""

    def compute(start: int, stop: int) -> Iterator[NDArray[np.float32]]:
        for batch in range(start, stop, batch_rows):
            yield encoder.embed_texts(texts[batch : min(batch + batch_rows, stop)])

    return _embed("text", encoder, texts, texts, cache, Cut(TEXT_SHARD_ROWS, batch_rows), compute, None)


def _embed(
    kind: str,
    encoder: Encoder,
    inputs: Sequence[str],
    names: Sequence[str],
    cache: ShardCache,
    cut: Cut,
    compute: Callable[[int, int], Iterator[NDArray[np.float32]]],
    progress: Progress | None,
) -> Embedded:
    arrays, shards = [], []
    passes = computed = cached = repaired = 0
    for start in range(0, len(inputs), cut.shard_rows):
        stop = min(start + cut.shard_rows, len(inputs))
        key = encoder.identity.cache_key(
            kind, inputs=digest_sequence(inputs[start:stop]), batch_rows=cut.batch_rows
        )
        shard = cache.load(key)
        if shard is None:
            repaired += cache.is_listed(key)
            batches = []
            for batch in compute(start, stop):
                batches.append(batch)
                passes += 1
                if progress:
                    progress(start + sum(len(b) for b in batches), len(inputs))
            rows = np.concatenate(batches)
            _refuse_unusable(rows, names[start:stop], encoder.width)
            details = {"rows": len(rows), "device": encoder.device, "batches": len(batches)}
            shard = cache.commit(key, {"embedding": rows}, details=details)
            computed += 1
        else:
            cached += 1
            if progress:
                progress(stop, len(inputs))
        arrays.append(shard.arrays["embedding"])
        shards.append((shard.key, shard.sha256))
    whole = np.concatenate(arrays) if arrays else np.zeros((0, encoder.width), dtype=np.float32)
    return Embedded(whole, tuple(shards), passes, computed, cached, repaired)


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
    arrays = []
    for key, sha256 in shards:
        shard = cache.load(key)
        if shard is None or shard.sha256 != sha256:
            raise StorageError(
                "an embedding shard is gone, damaged or another than the one that was recorded",
                where=key,
                found="nothing readable" if shard is None else f"sha256 {shard.sha256}",
                expected=f"sha256 {sha256}",
                hint="materialise `image_embeddings` of this cell again: only this shard is redone",
            )
        arrays.append(shard.arrays["embedding"])
    return np.concatenate(arrays)
