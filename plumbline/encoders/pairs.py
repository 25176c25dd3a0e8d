"""Images scored against the texts of prompt suites by a model that must see both, in shards by image and suite."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from plumbline.digests import digest_sequence
from plumbline.encoders.batching import FittingForward, plan_batch_rows
from plumbline.encoders.embedding import Decoder
from plumbline.encoders.encoder import PairEncoder
from plumbline.encoders.image_batches import ImageFiles, image_batches, with_pillow
from plumbline.encoders.sharding import Progress, ShardRow, Span, joined, read_recorded
from plumbline.errors import EncodingError
from plumbline.storage import ShardCache

_ARRAY = "logit"


@dataclass(frozen=True)
class Scored:
    """The logits of one suite with an account of the work.

    Attributes
    ----------
    array : (n, m) float32
        Of n images against the suite's m texts, as the model gives them.
    shards : tuple of (key, sha256)
        In row order.
    forward_passes : int
        Batches of images that went through the model for this suite now; suites that were missing together share
        theirs, so that these do not add up. `ScoredSuites.forward_passes` is the sum of the work.
    computed_shards, cached_shards, repaired_shards : int
        `repaired` counts the computed ones that were in the cache but failed their checksum.
    """

    array: NDArray[np.float32]
    shards: tuple[tuple[str, str], ...]
    forward_passes: int
    computed_shards: int
    cached_shards: int
    repaired_shards: int


@dataclass(frozen=True)
class ScoredSuites(Mapping[str, Scored]):
    """The suites by id, and the work over all of them.

    Attributes
    ----------
    suites : mapping of suite id to Scored
    images : int
    forward_passes : int
        Batches of images that went through the model now, each against the texts of all suites that lacked it.
    fitting_rows : int or None
        Images of a pass after memory ran out on the device; None where the planned ones fitted.
    """

    suites: Mapping[str, Scored]
    images: int
    forward_passes: int
    fitting_rows: int | None

    def __getitem__(self, suite: str) -> Scored:
        return self.suites[suite]

    def __iter__(self) -> Iterator[str]:
        return iter(self.suites)

    def __len__(self) -> int:
        return len(self.suites)

    def counters(self) -> dict[str, int]:
        """Return the work done, for metadata."""
        work = {
            "images": self.images,
            "forward_passes": self.forward_passes,
            "computed_shards": sum(s.computed_shards for s in self.suites.values()),
            "cached_shards": sum(s.cached_shards for s in self.suites.values()),
            "repaired_shards": sum(s.repaired_shards for s in self.suites.values()),
        }
        return work if self.fitting_rows is None else work | {"fitting_rows": self.fitting_rows}


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

    Every suite has shards of its own, so that a new suite leaves the others alone. What several suites lack of the
    same images is computed in one pass over these images, each distinct text once.

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
    task = _Task(encoder, ImageFiles(paths, image_ids), suites, plan_batch_rows(encoder, cache, batch_rows))
    cut = list(Span(0, len(paths)).pieces(shard_rows))
    found = {suite: ShardRow.find([_key(task, suite, span) for span in cut], cache) for suite in suites}
    forward = FittingForward(encoder.score_pairs)
    passes = _fill(task, found, cut, cache, forward, workers, progress)
    scored = {
        suite: Scored(
            row.array(_ARRAY, width=len(suites[suite])), row.index(),
            passes[suite], row.computed, row.cached, row.repaired,
        )
        for suite, row in found.items()
    }  # fmt: skip
    return ScoredSuites(scored, len(paths), forward.passes, forward.rows)


class _Task(NamedTuple):
    encoder: PairEncoder
    files: ImageFiles
    suites: Mapping[str, Sequence[str]]
    batch_rows: int


def _key(task: _Task, suite: str, span: Span) -> str:
    images = digest_sequence(task.files.image_ids[span.start : span.stop])
    inputs = digest_sequence([images, digest_sequence(task.suites[suite])])
    return task.encoder.identity.cache_key("pairs", inputs=inputs, batch_rows=task.batch_rows)


def _fill(
    task: _Task,
    found: Mapping[str, ShardRow],
    cut: Sequence[Span],
    cache: ShardCache,
    forward: FittingForward,
    workers: int | None,
    progress: Progress | None,
) -> dict[str, int]:
    """Compute and commit what is missing; return the forward passes that each suite took part in."""
    encoder, suites, passes = task.encoder, task.suites, dict.fromkeys(task.suites, 0)
    lacking = {i: [s for s in suites if found[s].shards[i] is None] for i in range(len(cut))}
    pieces = {i: list(cut[i].pieces(task.batch_rows)) for i, missing in lacking.items() if missing}
    done, to_do = 0, sum(len(cut[i]) for i in pieces)
    spans = [piece for i in pieces for piece in pieces[i]]
    with image_batches(
        task.files, spans, with_pillow(encoder), device=encoder.device, workers=workers
    ) as stream:
        for i in pieces:
            texts = list(dict.fromkeys(text for suite in lacking[i] for text in suites[suite]))
            blocks, before = [], forward.passes
            for _ in pieces[i]:
                blocks.append(forward(next(stream), texts))
                done += len(blocks[-1])
                if progress:
                    progress(done, to_do)
            logits = joined(blocks, width=len(texts))
            _refuse_unusable(logits, task.files.paths[cut[i].start : cut[i].stop], texts)
            for suite in lacking[i]:
                columns = [texts.index(text) for text in suites[suite]]
                details = {"rows": len(logits), "device": encoder.device, "batches": len(blocks)}
                row = found[suite]
                row.shards[i] = cache.commit(row.keys[i], {_ARRAY: logits[:, columns]}, details=details)
                passes[suite] += forward.passes - before
    return passes


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
    if logits.shape != (len(paths), len(texts)):
        raise EncodingError(
            "the model gave logits of another shape", found=logits.shape, expected=(len(paths), len(texts))
        )
    bad = ~np.isfinite(logits)
    if bad.any():
        rows = np.flatnonzero(bad.any(axis=1))
        raise EncodingError(
            f"{int(bad.sum())} logit(s) of {len(rows)} image(s) are NaN or infinite; the shard is not kept",
            where=", ".join(str(paths[i]) for i in rows[:5]) + (" …" if len(rows) > 5 else ""),
            found=f"{logits[bad][0]} with {texts[int(np.argmax(bad[rows[0]]))]!r}",
            expected="finite logits",
            hint="look at these images; in half precision, try float32",
        )


def read_scored(shards: Sequence[tuple[str, str]], cache: ShardCache) -> NDArray[np.float32]:
    """Return the (n, m) logits of one suite's shards that were computed before, in order.

    Raises
    ------
    StorageError
        If one is gone, damaged, or holds other bytes than it did.
    """
    return joined(read_recorded(shards, cache, array=_ARRAY, asset="probe_logits"), width=0)
