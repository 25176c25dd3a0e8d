"""The proof that a checkpoint's embeddings stay the same where the fast decoder reads the images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from plumbline.digests import digest_sequence
from plumbline.encoders.batching import FittingForward
from plumbline.encoders.encoder import DualEncoder, EncoderIdentity
from plumbline.encoders.fast_decoding import FastDecoder
from plumbline.encoders.image_batches import ImageFiles, with_pillow
from plumbline.errors import EncodingError
from plumbline.storage import ShardCache

GATE_IMAGES = 32
MOST_LOOKED_AT = 512
"""Files among which those for the gate are searched: a dataset without plain JPEG files is not read to its end."""

LEAST_COSINE = 0.9999


@dataclass(frozen=True)
class DecoderGate:
    """How far embeddings from the fast decoder are from those of the checkpoint's own preprocessing.

    Attributes
    ----------
    decoder : str
        Name of the fast decoder.
    images : int
        Images that were embedded both ways: the first of the dataset that go the fast way, at most 32.
    looked_at : int
        Files at the start of the dataset among which these were searched, at most 512.
    least_cosine : float or None
        The smallest cosine of the two embeddings of an image; None where no image goes the fast way.
    worst : str or None
        That image's path.
    """

    decoder: str
    images: int
    looked_at: int
    least_cosine: float | None
    worst: str | None

    @property
    def used(self) -> bool:
        """Return whether the dataset is decoded the fast way: not without a file to prove it on."""
        return self.images > 0

    def counters(self) -> dict[str, int | float]:
        """Return the numbers, for metadata; `fast_decoder_used` is 0 or 1."""
        counted: dict[str, int | float] = {
            "fast_decoder_used": int(self.used),
            "decoder_gate_images": self.images,
            "decoder_gate_looked_at": self.looked_at,
        }
        if self.least_cosine is not None:
            counted["decoder_gate_least_cosine"] = self.least_cosine
        return counted


def require_equal_embeddings(
    encoder: DualEncoder, fast: FastDecoder, files: ImageFiles, cache: ShardCache, forward: FittingForward
) -> DecoderGate:
    """Embed the first images of a dataset both ways and refuse the fast decoder where they differ.

    Which images those are is kept in the cache by the files that were searched, and the cosines by these images and
    everything else that they depend on: an image that is added to the dataset costs another search at most. Where no
    file goes the fast way, the gate says that the fast decoder is not to be used.

    Parameters
    ----------
    forward : FittingForward
        The encoder's image pass.

    Returns
    -------
    DecoderGate

    Raises
    ------
    EncodingError
        If a cosine is below 0.9999 or not a number; names the worst file.
    """
    identity = replace(encoder.identity, decoder=fast.name)
    rows, looked_at = _candidates(identity, fast, files, cache)
    if not rows:
        return DecoderGate(fast.name, 0, looked_at, None, None)
    inputs = digest_sequence([files.image_ids[row] for row in rows])
    key = identity.cache_key("decoder gate", inputs=inputs, batch_rows=GATE_IMAGES)
    shard = cache.load(key)
    if shard is None:
        cosine = _cosines(encoder, fast, files, rows, forward)
        details = {"rows": len(rows), "device": encoder.device}
        shard = cache.commit(key, {"cosine": cosine}, details=details)
    cosines = shard.arrays["cosine"]
    # A cosine that is not a number comes first.
    worst = int(np.argmin(np.nan_to_num(cosines, nan=-np.inf)))
    least, path = float(cosines[worst]), str(files.paths[rows[worst]])
    if not least >= LEAST_COSINE:
        raise EncodingError(
            "the fast decoder moves the embeddings of this encoder",
            where=path,
            found=f"cosine {least:.6f} between the embeddings of its two decodings",
            expected=f"at least {LEAST_COSINE} on each of {len(rows)} images",
            hint="set `decoder: pillow`",
        )
    return DecoderGate(fast.name, len(rows), looked_at, least, path)


class _Candidates(NamedTuple):
    """Rows of files that go the fast way, and how many files were looked at to find them."""

    rows: list[int]
    looked_at: int


def _candidates(
    identity: EncoderIdentity, fast: FastDecoder, files: ImageFiles, cache: ShardCache
) -> _Candidates:
    """Look for the first files that go the fast way."""
    most = min(len(files), MOST_LOOKED_AT)
    inputs = digest_sequence(files.image_ids[:most])
    key = identity.cache_key("decoder candidates", inputs=inputs, batch_rows=GATE_IMAGES)
    shard = cache.load(key)
    if shard is None:
        fitting = (row for row in range(most) if fast.takes(files.read(row)))
        arrays = {"row": np.fromiter(islice(fitting, GATE_IMAGES), np.int64)}
        shard = cache.commit(key, arrays, details={"looked_at_most": most})
    rows = shard.arrays["row"].tolist()
    return _Candidates(rows, rows[-1] + 1 if len(rows) == GATE_IMAGES else most)


def _cosines(
    encoder: DualEncoder, fast: FastDecoder, files: ImageFiles, rows: Sequence[int], forward: FittingForward
) -> NDArray[np.float64]:
    """Return the cosine of the two embeddings of each of the images, (n,)."""
    import torch

    a, b = (
        forward(torch.stack([files.pixels(row, way) for row in rows])).astype(np.float64)
        for way in (with_pillow(encoder), fast)
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        cosine: NDArray[np.float64] = (a * b).sum(1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))
    return cosine
