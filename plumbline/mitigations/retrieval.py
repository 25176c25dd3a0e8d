"""What a mitigation costs on image-text pairs: recall@k of retrieval, before and after, on images it never saw.

Texts are changed and images are not, so that a mitigation can be judged by the places at which pairs find each other.
Source: recall@k as in CLIP (Radford et al. 2021, appendix E.1) and COCO captions (Karpathy and Fei-Fei, CVPR 2015): an
image finds one of its captions among the k nearest captions; a caption finds its image among the k nearest images.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.catalog.schema import BEFORE, Row, metric_frame
from plumbline.errors import MetricError
from plumbline.metrics.family import MetricSettings
from plumbline.mitigations.training_rows import ImageTextPairs
from plumbline.parts import rows_of_parts
from plumbline.statistics.cluster_bootstrap import paired_cluster_changes
from plumbline.statistics.clusters import cluster_wilson, few_clusters_reason
from plumbline.statistics.estimates import Estimate
from plumbline.statistics.seeds import generator

METRICS = ("retrieval_recall", "retrieval_recall_gain")
DIRECTIONS = ("image_to_text", "text_to_image")

_AT_ONCE = 16_000_000


@dataclass(frozen=True)
class Places:
    """At which place each query finds what belongs to it, from 0.

    Attributes
    ----------
    image_to_text : (n,) int32
        Of each image: the place of the best of its captions among all distinct captions.
    text_to_image : (m,) int32
        Of each pair: the place of the best image with that caption among all images.
    image_of : (m,) int64
        Position of each pair's image: the captions of one image are one cluster.
    """

    image_to_text: NDArray[np.int32]
    text_to_image: NDArray[np.int32]
    image_of: NDArray[np.int64]

    def hits(self, direction: str, k: int) -> NDArray[np.float64]:
        """Return 1 for each query that finds what belongs to it among the k best."""
        places: NDArray[np.int32] = getattr(self, direction)
        return (places < k).astype(np.float64)

    def clusters(self, direction: str) -> NDArray[np.int64]:
        """Return the cluster of each query: its image."""
        return np.arange(len(self.image_to_text)) if direction == "image_to_text" else self.image_of


@dataclass(frozen=True)
class Retrieval:
    """Retrieval among the pairs of one dataset by one encoder, under the fits of a method.

    Attributes
    ----------
    before : Places
        By the encoder as it is.
    after : mapping of str to Places
        By id of the mitigation.
    absent : mapping of str to str
        Mitigations that are not judged here, with the reason.
    digest : str
        Of the images and their captions.
    """

    before: Places
    after: Mapping[str, Places] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)
    digest: str | None = None


def chosen_images(captioned: pl.DataFrame, *, most: int, seed: int) -> pl.DataFrame:
    """Return the rows of at most so many distinct images, drawn by the seed, in their order."""
    ids = captioned["image_id"].unique(maintain_order=True)
    if len(ids) <= most:
        return captioned
    drawn = generator(seed, "retrieval").choice(len(ids), most, replace=False)
    return captioned.filter(pl.col("image_id").is_in(ids.gather(drawn).implode()))


def places(pairs: ImageTextPairs, texts: Sequence[str], features: NDArray[np.float32]) -> Places:
    """Return where pairs find each other by cosine.

    Parameters
    ----------
    pairs : ImageTextPairs
    texts, features : sequence of t str, (t, d) float32
        The distinct captions in any order, and their features, of any length.

    Returns
    -------
    Places
        Of equal cosines the lower position comes first. At most 64 MiB of them exist at a time.

    Raises
    ------
    MetricError
        If a vector is zero or not finite, or a caption has no feature.
    """
    position = {text: i for i, text in enumerate(texts)}
    if lacking := [caption for caption in pairs.captions if caption not in position]:
        raise MetricError("a caption has no feature", found=lacking[0], expected=f"{len(texts)} texts, it among them")
    text_of = np.array([position[caption] for caption in pairs.captions], dtype=np.int64)
    images, captions = _unit("image", pairs.images), _unit("caption", features)
    by_image = _best(images, captions, pairs.image_of, text_of)
    by_text = _best(captions, images, text_of, pairs.image_of)
    return Places(by_image.astype(np.int32), by_text[text_of].astype(np.int32), pairs.image_of)


def _unit(name: str, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not (np.isfinite(lengths).all() and lengths.all()):
        raise MetricError(f"a feature of a {name} is zero or not finite")
    return np.asarray(vectors / lengths, dtype=np.float32)


def _best(
    queries: NDArray[np.float32], items: NDArray[np.float32], query_of: NDArray[np.int64], item_of: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the place of the first of each query's own items among all; that of a query without any is the last."""
    items_of: list[list[int]] = [[] for _ in queries]
    for query, item in zip(query_of.tolist(), item_of.tolist()):
        items_of[query].append(item)
    ranks = np.full(len(queries), len(items), dtype=np.int64)
    step = max(1, _AT_ONCE // max(1, len(items)))
    for start in range(0, len(queries), step):
        for query, scores in enumerate(queries[start : start + step] @ items.T, start):
            if items_of[query]:
                mine = np.array(sorted(items_of[query]))
                best = mine[scores[mine].argmax()]
                ranks[query] = (scores > scores[best]).sum() + (scores[:best] == scores[best]).sum()
    return ranks


# --- The rows.


def retrieval_rows(
    retrievals: Iterable[tuple[str, Retrieval]], *, model: str, dataset: str, k: Sequence[int], settings: MetricSettings
) -> pl.DataFrame:
    """Return recall@k before and after each mitigation of a cell, and what it gained.

    Metrics `retrieval_recall` (conditions `before` and the mitigation's id) and `retrieval_recall_gain` (after -
    before, paired query by query; positive is better, and what a mitigation costs is negative); definitions
    `image_to_text` and `text_to_image`; `event` is the dataset of pairs. n is the number of images.

    Parameters
    ----------
    retrievals : iterable of (str, Retrieval)
        Dataset of pairs, with the retrieval under the fits of one method; several may be of one dataset.
    model, dataset : str
        The cell that the mitigations were fitted for.
    k : sequence of int
        Beyond the number of images or captions, everything is found.

    Returns
    -------
    DataFrame
        Wilson's intervals of recall and bootstrap-t intervals of gains; the captions of one image are one cluster. p of
        a gain is that of `paired_cluster_changes`.
    """
    parts: list[partial[list[Row]]] = []
    judged: set[str] = set()
    for pairs, retrieval in retrievals:
        common: Row = {"model": model, "dataset": dataset, "event": pairs, "statistic": "estimate"}
        common["suite_hash"] = retrieval.digest  # what was asked are the captions
        states = {} if pairs in judged else {BEFORE: retrieval.before}
        judged.add(pairs)
        for condition, state in (states | dict(retrieval.after)).items():
            parts.append(partial(_recalls, common | {"condition": condition}, tuple(k), state, settings))
        for condition, state in retrieval.after.items():
            gains = partial(_gains, common | {"condition": condition}, tuple(k), retrieval.before, state, settings)
            parts.append(gains)
    return metric_frame([row for rows in rows_of_parts(parts) for row in rows])


def _recalls(common: Row, k: tuple[int, ...], state: Places, settings: MetricSettings) -> list[Row]:
    rows = []
    for at, definition, row in _each(common, k):
        hits, clusters = state.hits(definition, at), state.clusters(definition)
        ends = cluster_wilson(hits, clusters, confidence=settings.confidence)
        recall = Estimate(float(hits.mean()), *ends, n=len(state.image_to_text))
        rows.append(row | {"metric": "retrieval_recall"} | recall.columns(few_clusters_reason(clusters)))
    return rows


def _gains(common: Row, k: tuple[int, ...], before: Places, after: Places, settings: MetricSettings) -> list[Row]:
    rows = []
    names = [str(common[name]) for name in ("model", "dataset", "event", "condition")]
    for at, definition, row in _each(common, k):
        gain = paired_cluster_changes(
            before.hits(definition, at),
            after.hits(definition, at),
            after.clusters(definition),
            quantile=None,
            resamples=settings.resamples,
            permutations=settings.permutations,
            rng=generator(settings.seed, "retrieval gain", *names, definition, at),
            confidence=settings.confidence,
        )
        rows.append(row | {"metric": "retrieval_recall_gain"} | gain.columns())
    return rows


def _each(common: Row, k: Sequence[int]) -> Iterator[tuple[int, str, Row]]:
    for definition in DIRECTIONS:
        for at in k:
            yield at, definition, common | {"definition": definition, "k": at}
