"""What a model can do: zero-shot accuracy on the classes of a labelled dataset, as CLIP_benchmark computes it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.blocks import Rows, blocks
from plumbline.catalog.schema import metric_frame
from plumbline.metrics.cell import Cell, base_row
from plumbline.metrics.family import Family, MetricSettings
from plumbline.reasons import reason
from plumbline.statistics.estimates import Estimate
from plumbline.statistics.intervals import mean_of_proportions, wilson

_TOP = (1, 5)


class Recognised(NamedTuple):
    """Accuracy over all images and its mean over classes.

    Attributes
    ----------
    top_1, top_5 : Estimate
        Share of images whose class is the best match, or among the five best, with Wilson's interval; top-5 is nan of
        fewer than five classes.
    mean_per_class : Estimate
        Mean over classes of the share that is recognised, with the interval of `mean_of_proportions`.
    """

    top_1: Estimate
    top_5: Estimate
    mean_per_class: Estimate


def class_ranks(scores: Rows, classes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return at which place the class of each image stands, from 0; of equal scores the lower index stands first.

    Parameters
    ----------
    scores : (n, m) numbers
    classes : (n,) int64
        Of an image without one, below 0, the place means nothing.
    """
    ranks = [np.zeros(0, dtype=np.int64)]
    for rows in blocks(0, len(scores), scores.shape[1]):
        values, true = scores[rows], classes[rows, None]
        of_class = np.take_along_axis(values, np.maximum(true, 0), axis=1)
        earlier = np.arange(values.shape[1]) < true
        ranks.append(((values > of_class) | ((values == of_class) & earlier)).sum(axis=1))
    return np.concatenate(ranks)


def zero_shot_recognition(
    ranks: NDArray[np.int64], classes: NDArray[np.int64], *, number: int, confidence: float = 0.95
) -> Recognised:
    """Return how many images are recognised.

    Parameters
    ----------
    ranks : (n,) int64
        At which place the true class of an image stands among all classes, from 0; see `class_ranks`.
    classes : (n,) int64
        The true class of each.
    number : int
        How many classes there are to choose from.
    """
    n = len(ranks)
    if not n:
        nothing = Estimate(float("nan"), float("nan"), float("nan"), n=0, reason=(reason("no_labelled_images"),))
        return Recognised(nothing, nothing, nothing)
    chosen = (reason("classes_to_choose_from", classes=number),)
    top = []
    for k in _TOP:
        hits = int((ranks < k).sum())
        low, high = wilson(hits, n, confidence=confidence)
        top.append(Estimate(hits / n, float(low), float(high), n=n, reason=chosen))
    if number < _TOP[1]:
        few = (reason("too_few_classes", classes=number),)
        top[1] = Estimate(float("nan"), float("nan"), float("nan"), n=n, reason=few)
    totals = np.bincount(classes, minlength=number)
    hits_of = np.bincount(classes[ranks == 0], minlength=number)
    seen = totals > 0
    low, high = mean_of_proportions(hits_of[seen], totals[seen], confidence=confidence)
    mean = float((hits_of[seen] / totals[seen]).mean())
    return Recognised(top[0], top[1], Estimate(mean, float(low), float(high), n=n, reason=chosen))


def utility_rows(cell: Cell, *, settings: MetricSettings) -> pl.DataFrame:
    """Return accuracy and mean per-class recall of every suite of classes."""
    rows = []
    for name, logits in sorted(cell.logits.items()):
        suite = logits.suite
        if not suite.ensemble:
            continue
        position = {candidate.id: i for i, candidate in enumerate(suite.candidates)}
        labels = cell.records[str(suite.attribute)].to_list()
        of_image = np.array([position.get(label, -1) for label in labels], dtype=np.int64)
        known = np.flatnonzero((of_image >= 0) & cell.rows(name))
        ranks = class_ranks(logits.scores, of_image)[known]
        recognised = zero_shot_recognition(
            ranks, of_image[known], number=len(suite.candidates), confidence=settings.confidence
        )
        common = base_row(cell, suite=suite.id, suite_hash=suite.hash, attribute=suite.attribute)
        for metric, definition, estimate in (
            ("utility_accuracy", "top_1", recognised.top_1),
            ("utility_accuracy", "top_5", recognised.top_5),
            ("mean_per_class_recall", "top_1", recognised.mean_per_class),
        ):
            rows.append(common | {"metric": metric, "definition": definition} | estimate.columns())
    return metric_frame(rows)


UTILITY = Family(name="utility_metrics", needs=("utility",), compute=utility_rows)
