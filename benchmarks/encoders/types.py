"""Every type of encoder: the 15 probes beside the classes, against the library's own classes, probe by probe.

Checkpoints are those of the tests: tiny ones of each type, saved by its library. Both sides use one thread, and seconds
are those of the processor. The peer asks as the released loop does: an image at a time, and for each probe the classes
and the probe, through the library's own processor and forward pass.
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from upath import UPath

from benchmarks.encoders.materials import Images
from benchmarks.statistics.contest import Peer, Row
from plumbline.catalog.suites import Suite
from plumbline.checkpoints.device import Placement
from plumbline.encoders.embedding import embed_images, embed_texts, score_suites
from plumbline.encoders.families import FAMILIES
from plumbline.encoders.folders import load_encoder
from plumbline.images.decoding import decode
from plumbline.storage import ShardCache
from resources.checkout import PROJECT

IMAGES, PEER_IMAGES = 256, 4
BAR = 15.0
TOLERANCE = 1e-4

_LONGER = {"owlv2": {"longest": 24}, "owlvit": {"longest": 24}}
"""Tiny checkpoints of the tests take shorter texts than the probes are."""

MATCHING = "layers that look at image and text together run for each pair, of which 22 are left of 120"
"""Why matching heads have no bar: with large towers the ratio nears 5.5, but for what the image alone costs."""


@dataclass(frozen=True)
class Types:
    """A row for each type: a contest, see `benchmarks.statistics.contest`."""

    images: Images
    suite: Suite

    def run(self) -> Iterator[Row]:
        """Give the rows as they are done."""
        # The tests have a checkpoint of every type, and what it is held against.
        sys.path.append(str(PROJECT / "tests" / "encoders"))
        from every_encoder import files_of
        from released import released
        from tiny_architectures import BUILDERS

        paths, ids = (part[:IMAGES] for part in self.images)
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            with TemporaryDirectory() as name:
                folder = Path(name)
                for case, build in BUILDERS.items():
                    build(folder / case, **_LONGER.get(case, {}))
                    encoder, score = load_encoder(files_of(folder, case), Placement()), released(case, folder / case)
                    loop = partial(_loop, score, paths[:PEER_IMAGES], self.suite)
                    ours = partial(_engine, encoder, paths, ids, self.suite)
                    # Once without counting, so that both are warm.
                    ours(folder / case / "warm"), loop()
                    seconds, logits = _of_processor(partial(ours, folder / case / "cold"))
                    slow, expected = _of_processor(loop)
                    yield _row(case, encoder.parameters, seconds, slow * IMAGES / PEER_IMAGES, logits, expected)
        finally:
            torch.set_num_threads(threads)


def _row(case: str, parameters: int, seconds: float, slow: float, logits: np.ndarray, expected: np.ndarray) -> Row:
    apart, most = np.abs(expected - logits[:PEER_IMAGES]).max(), np.abs(expected).max()
    told = f"largest difference {apart:.1e} of logits up to {most:.1f}"
    matching = FAMILIES[case].logit == "pair"
    peer = Peer(
        "probe by probe, image by image", slow, bool(apart <= TOLERANCE * max(1, most)),
        f"{told}; no bar: {MATCHING}" if matching else told,
        reached=None if matching else 2 * BAR, part=f"{PEER_IMAGES} of {IMAGES} images",
    )  # fmt: skip
    return Row(f"{FAMILIES[case].title}, {parameters:,} parameters, {IMAGES} images", seconds, [peer])


def _engine(encoder, paths: Sequence[Path], ids: Sequence[str], suite: Suite, root: Path) -> np.ndarray:
    """Return the (n, m) logits as an audit computes them: files checked, shards committed."""
    cache, family = ShardCache(UPath(root)), FAMILIES[encoder.family]
    if family.logit == "pair":
        scored = score_suites(encoder, paths, ids, {suite.id: suite.texts}, cache, shard_rows=512)
        return scored.suites[suite.id].array
    shown = embed_images(encoder, paths, ids, cache, shard_rows=512).array
    texts = embed_texts(encoder, suite.texts, cache).array
    if family.logit == "dot":
        return shown @ texts.T
    shown, texts = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (shown, texts))
    return encoder.logit_scale * shown @ texts.T + encoder.logit_bias


def _loop(score: Callable, paths: Sequence[Path], suite: Suite) -> np.ndarray:
    """Return the (n, m) logits, gathered probe by probe."""
    classes, probes = suite.columns("class"), suite.columns("negative", "neutral", "positive")
    logits = np.empty((len(paths), len(suite.texts)), dtype=np.float32)
    for probe in probes:
        columns = [*classes, probe]
        for i, path in enumerate(paths):
            logits[i, columns] = score(decode(path), [suite.texts[c] for c in columns])[0].numpy()
    return logits


def _of_processor(call: Callable[[], np.ndarray]) -> tuple[float, np.ndarray]:
    """Return seconds of the processor, which other work on the machine moves less, and the result."""
    start = time.process_time()
    result = call()
    return time.process_time() - start, result
