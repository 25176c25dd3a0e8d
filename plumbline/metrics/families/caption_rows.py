"""Rows of captions by scene: an image is asked its own scene's captions, and the negative ones are the event."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.cores import side_by_side
from plumbline.metrics.cell import Cell, SuiteLogits
from plumbline.metrics.families.disparity_rows import RANGES, SKEWS, disparity_rows
from plumbline.metrics.families.outcome_rows import harm_rows, proportion_rows
from plumbline.metrics.families.rows import base_row
from plumbline.metrics.outcome_draws import Outcomes
from plumbline.metrics.settings import MetricSettings
from plumbline.metrics.tested_events import TestedEvent
from plumbline.statistics.clusters import cluster_codes
from plumbline.statistics.groups import Groups, label_codes
from plumbline.statistics.set_sampling import set_tables
from plumbline.statistics.strata import permute_strata
from plumbline.tables.schema import Row, metric_frame
from plumbline.tables.suites import Suite

CONTRASTED = ("race", "gender", "age")
"""Record columns whose groups have captions of their own."""

BY_SCENE = tuple(
    replace(reading, definition="by_scene") for reading in RANGES if reading.metric == "parity_difference"
)
"""Within one scene the groups are small and often without the event: the difference alone is always defined."""


@dataclass(frozen=True)
class CaptionEvent:
    """The negative captions of one attribute, on the images that were asked them.

    Attributes
    ----------
    groups : Groups
        Of the attribute; -1 where the image was not asked or has no label.
    scenes : Groups
        -1 where the image was not asked.
    hit : (n,) bool
        Whether the best of the scene's captions is a negative one.
    """

    suite: Suite
    event: str
    groups: Groups
    scenes: Groups
    hit: NDArray[np.bool_]

    @property
    def asked(self) -> NDArray[np.bool_]:
        """Return the (n,) mask of images that were asked."""
        return self.scenes.codes >= 0

    @property
    def tested(self) -> TestedEvent:
        """Return the same without groups."""
        return TestedEvent(self.suite.id, self.suite.hash, self.event, True, self.hit, self.asked)

    def outcomes(self, groups: Groups, sets: NDArray[np.int64] | None) -> Outcomes:
        """Return the outcomes of some groups; labels are shuffled within scenes."""
        codes = np.where(self.hit, 0, 1)
        return WithinScenes(groups, codes, np.array([[1, 0]]), sets, scenes=self.scenes.codes)


@dataclass(frozen=True)
class WithinScenes(Outcomes):
    """Outcomes whose group labels are shuffled within scenes, since each scene has captions of its own.

    Where images also come in sets, labels are shuffled as the sets demand.

    Attributes
    ----------
    scenes : (n,) int64
    """

    scenes: NDArray[np.int64]

    def permuted(self, permutations: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return (r, g, 2) tables as if group labels had been shuffled within each scene."""
        if self.sets is not None:
            return super().permuted(permutations, rng)
        tables = set_tables(
            self.groups.codes, self.codes, self.scenes, n_groups=self.n_groups, n_outcomes=self.n_outcomes
        )
        return permute_strata(tables, permutations=permutations, rng=rng).sum(axis=1)


def caption_rows(cell: Cell, *, settings: MetricSettings) -> pl.DataFrame:
    """Return the rows of the caption suites: shares by group over all scenes and by scene, and their disparities.

    For each attribute that has captions of its own: event `negative_<attribute>_caption`, top-1 by cosine (by logit
    where the encoder has none) among the captions of the image's scene; ties go to the lower index, the positive
    captions first. `probe` names the scene of rows by scene. Scenes without captions of both kinds are not asked, and
    neither are those in which fewer than two groups are seen: age is contrasted where both ages are shown.
    """
    sets = cluster_codes(cell.records)
    parts: list[Callable[[], list[Row]]] = []
    for event in caption_events(cell):
        parts.append(partial(_overall_rows, cell, event, sets, settings))
        for code, scene in enumerate(event.scenes.names):
            parts.append(partial(_scene_rows, cell, event, code, scene, sets, settings))
    return metric_frame(list(chain.from_iterable(side_by_side(parts))))


def caption_events(cell: Cell) -> Iterator[CaptionEvent]:
    """Give the event of every attribute for which the cell has captions and labels."""
    for logits in cell.logits.values():
        labels = cell.labels(logits.suite.id)
        if logits.suite.family != "captions" or "scene" not in labels.columns:
            continue
        for attribute in (name for name in CONTRASTED if name in labels.columns):
            names = tuple(sorted(labels[attribute].cast(pl.String).drop_nulls().unique()))
            groups = Groups(attribute, names, label_codes(labels[attribute], names))
            event = _asked(logits, groups, labels["scene"], cell.rows(logits.suite.id))
            if event.asked.any():
                yield event


def _asked(logits: SuiteLogits, groups: Groups, scene: pl.Series, counts: NDArray[np.bool_]) -> CaptionEvent:
    """Ask every image the captions of its scene."""
    suite, ranking = logits.suite, logits.ranking
    hit, codes = np.zeros(len(scene), dtype=bool), np.full(len(scene), -1)
    names: list[str] = []
    for name in scene.cast(pl.String).drop_nulls().unique().sort():
        positive, negative = (suite.columns(f"{name}:{groups.attribute}:{side}") for side in ("pos", "neg"))
        own = (scene == name).fill_null(False).to_numpy() & counts
        if positive and negative and len(np.unique(groups.codes[own & (groups.codes >= 0)])) > 1:
            hit[own] = ranking[own][:, positive + negative].argmax(axis=1) >= len(positive)
            codes[own] = len(names)
            names.append(name)
    return CaptionEvent(
        suite=suite,
        event=f"negative_{groups.attribute}_caption",
        groups=replace(groups, codes=np.where(codes >= 0, groups.codes, -1)),
        scenes=Groups("scene", tuple(names), codes),
        hit=hit,
    )


def _common(cell: Cell, event: CaptionEvent, attribute: str) -> Row:
    named = {"suite": event.suite.id, "suite_hash": event.suite.hash, "event": event.event}
    return base_row(cell, **named, attribute=attribute)


def _overall_rows(
    cell: Cell, event: CaptionEvent, sets: NDArray[np.int64] | None, settings: MetricSettings
) -> list[Row]:
    seen = event.outcomes(event.groups, sets)
    common = _common(cell, event, event.groups.attribute)
    rows = harm_rows(cell, event.tested, sets, settings)
    rows += proportion_rows(_common(cell, event, "scene"), event.outcomes(event.scenes, sets), settings)
    rows += proportion_rows(common, seen, settings)
    return rows + disparity_rows(common, seen, (*SKEWS, *RANGES), settings)


def _scene_rows(
    cell: Cell,
    event: CaptionEvent,
    code: int,
    scene: str,
    sets: NDArray[np.int64] | None,
    settings: MetricSettings,
) -> list[Row]:
    own = replace(event.groups, codes=np.where(event.scenes.codes == code, event.groups.codes, -1))
    seen = Outcomes(own, np.where(event.hit, 0, 1), np.array([[1, 0]]), sets)
    common = _common(cell, event, event.groups.attribute) | {"probe": scene}
    return proportion_rows(common, seen, settings) + disparity_rows(common, seen, BY_SCENE, settings)
