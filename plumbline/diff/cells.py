"""What two states of one encoder, or two encoders, answer differently to the same images."""

from __future__ import annotations

import numpy as np
import polars as pl

from plumbline.diff.schema import FLIP_SCHEMA
from plumbline.metrics.cell import Cell
from plumbline.metrics.cell_effects import cell_effects
from plumbline.metrics.paired_effect import SideNames
from plumbline.metrics.settings import MetricSettings
from plumbline.tables.schema import Row

OLD_AND_NEW = SideNames("new", "old", "the {} side", " and the ")


def same_images(old: Cell, new: Cell) -> bool:
    """Return whether both are of the same images in the same order, so that they can be compared image by image."""
    return old.records["image_id"].equals(new.records["image_id"])


def paired_differences(old: Cell, new: Cell, *, settings: MetricSettings) -> list[Row]:
    """Return new - old of skews, parity differences, harm rates, Trident rates and accuracy, on the same images.

    Intervals and p are those of `plumbline.metrics.factor_effects`: a resample holds both answers to an image. Columns
    are `KEYS` of `plumbline.diff.schema` where they differ from null, the estimate, `value_old` and `value_new`.
    """
    effects = cell_effects(
        old,
        new,
        rows=np.ones(new.records.height, dtype=bool),
        named=("audit_diff", new.dataset, old.model, new.model),
        names=OLD_AND_NEW,
        settings=settings,
    )
    renamed = {"value_before": "value_old", "value_after": "value_new"}
    told = {
        "dataset": new.dataset, "condition": "before", "statistic": "estimate",
        "model_old": old.model, "model_new": new.model,
    }  # fmt: skip
    left_out = ("kind", "better")
    return [
        told | {renamed.get(name, name): value for name, value in row.items() if name not in left_out}
        for row in effects
    ]


def flips(old: Cell, new: Cell) -> pl.DataFrame:
    """Return the images whose winning text is another one, widest margin first, in `FLIP_SCHEMA`.

    Of the outcome suites, where one text wins an image: one counts where both sides have the same candidates, an image
    where both keep it.
    """
    frames = [pl.DataFrame(schema=FLIP_SCHEMA)]
    for name, after in new.logits.items():
        before = old.logits.get(name)
        if before is None or after.suite.family != "outcomes" or before.suite.hash != after.suite.hash:
            continue
        first, second = before.ranking.argmax(axis=1), after.ranking.argmax(axis=1)
        at = np.flatnonzero((first != second) & old.rows(name) & new.rows(name))
        candidates = after.suite.candidates
        margin = after.ranking[at, second[at]] - after.ranking[at, first[at]]
        frames.append(
            pl.DataFrame(
                {
                    "dataset": [new.dataset] * len(at),
                    "model_old": [old.model] * len(at),
                    "model_new": [new.model] * len(at),
                    "suite": [name] * len(at),
                    "image_id": new.records["image_id"].gather(at),
                    "path": new.records["path"].gather(at),
                    "text_old": [candidates[i].text for i in first[at]],
                    "text_new": [candidates[i].text for i in second[at]],
                    "category_old": [candidates[i].category for i in first[at]],
                    "category_new": [candidates[i].category for i in second[at]],
                    "margin": margin.astype(np.float64),
                },
                schema=FLIP_SCHEMA,
            )
        )
    return pl.concat(frames).sort("margin", "image_id", "suite", descending=[True, False, False])
