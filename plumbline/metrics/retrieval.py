"""Retrieval between images and their captions: what a mitigation of texts may cost."""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from plumbline.errors import MetricError

HITS = MappingProxyType(
    {
        "image_to_text@1": ("retrieval_recall", "image_to_text@1"),
        "image_to_text@5": ("retrieval_recall", "image_to_text@5"),
        "text_to_image_r_precision": ("retrieval_r_precision", "text_to_image"),
    }
)
"""What may be found or not for an image -> metric and definition of the share of images for which it is."""

_AT_ONCE = 16_000_000


def retrieval_hits(
    images: NDArray[np.float32], captions: NDArray[np.float32], caption_of: NDArray[np.int64]
) -> dict[str, NDArray[np.bool_]]:
    """Return for every image whether it finds its caption, and whether its caption finds it.

    Parameters
    ----------
    images : (n, d) float32
        Unit vectors.
    captions : (c, d) float32
        Unit vectors; several images may share a caption, as captions made of labels do.
    caption_of : (n,) int
        Position of each image's caption.

    Returns
    -------
    dict of str to (n,) bool
        By the names of `HITS`. `image_to_text@k`: the image's caption is among the k captions nearest to it; ties
        take the lower position. `text_to_image_r_precision`: the image is among the R images nearest to its caption,
        R being the number of images with that caption; ties take the earlier image. Its mean over images is the mean
        over captions of R-precision, weighted by R (Manning, Raghavan & Schütze 2008, section 8.4).

        At most 64 MiB of similarities exist at a time, whatever n and c.

    Raises
    ------
    MetricError
        If the shapes disagree, a caption's position is out of range, or a vector is not of unit norm.
    """
    _check(images, captions, caption_of)
    place = np.empty(len(images), dtype=np.int64)
    for rows in _chunks(len(images), len(captions)):
        place[rows] = _places(images[rows] @ captions.T, caption_of[rows])
    found = np.zeros(len(images), dtype=bool)
    own = np.argsort(caption_of, kind="stable")
    relevant = np.bincount(caption_of, minlength=len(captions))
    ends = np.cumsum(relevant)
    used = np.flatnonzero(relevant)
    for rows in _chunks(len(used), len(images)):
        for caption, scores in zip(used[rows], captions[used[rows]] @ images.T):
            of_caption = own[ends[caption] - relevant[caption] : ends[caption]]
            found[of_caption] = _among_best(scores, of_caption)
    return {
        "image_to_text@1": place < 1,
        "image_to_text@5": place < 5,
        "text_to_image_r_precision": found,
    }


def _chunks(rows: int, columns: int) -> Iterator[slice]:
    step = max(1, _AT_ONCE // max(1, columns))
    return (slice(start, start + step) for start in range(0, rows, step))


def _places(scores: NDArray[np.float32], own: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the place of each row's own column in its (b, c) scores, from 0."""
    at_own = np.take_along_axis(scores, own[:, None], axis=1)
    earlier = np.arange(scores.shape[1]) < own[:, None]
    return (scores > at_own).sum(axis=1) + ((scores == at_own) & earlier).sum(axis=1)


def _among_best(scores: NDArray[np.float32], chosen: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which of r chosen positions are among the r highest of all (n,) scores."""
    r = len(chosen)
    least = scores.max() if r == 1 else np.partition(scores, len(scores) - r)[len(scores) - r]
    # As many of those that tie at the r-th place as there is room for, the earlier ones.
    tied = np.flatnonzero(scores == least)[: r - int((scores > least).sum())]
    return (scores[chosen] > least) | np.isin(chosen, tied, assume_unique=True)


def _check(images: NDArray[np.float32], captions: NDArray[np.float32], caption_of: NDArray[np.int64]) -> None:
    shapes = f"images {images.shape}, captions {captions.shape}, caption_of {caption_of.shape}"
    if (
        images.ndim != 2
        or captions.ndim != 2
        or images.shape[1] != captions.shape[1]
        or caption_of.shape != images.shape[:1]
    ):
        raise MetricError(
            "images and captions must be of one space", found=shapes, expected="(n, d), (c, d), (n,)"
        )
    if caption_of.size and not 0 <= caption_of.min() <= caption_of.max() < len(captions):
        raise MetricError(
            "an image's caption is none of the captions",
            found=f"{caption_of.min()} .. {caption_of.max()}",
            expected=f"0 .. {len(captions) - 1}",
        )
    for name, vectors in (("image", images), ("caption", captions)):
        away = np.abs(np.linalg.norm(vectors, axis=1) - 1)
        # Written so that nan is caught too.
        if not (away <= 1e-3).all():
            raise MetricError(
                f"retrieval is by cosine: {name} vectors must be of unit norm",
                found=f"{int((~(away <= 1e-3)).sum())} of {len(vectors)} are not",
                hint="divide them by their norms",
            )
