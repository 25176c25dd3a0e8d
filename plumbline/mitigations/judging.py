"""Evaluation of a cell's mitigations: its metrics after each of them, and paired effects, on held-out images.

Outcome and Trident metrics of the cell are computed again as if the mitigated responses were the model's own; effects
compare them with the responses before on the same images, none of which any mitigation was fitted on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.catalog.schema import BEFORE_TEST_ROWS, polars_schema
from plumbline.errors import MetricError
from plumbline.metrics.cell import Cell, SuiteLogits
from plumbline.metrics.family import MetricSettings
from plumbline.metrics.outcomes import OUTCOMES
from plumbline.metrics.paired.comparisons import TridentAnswers, caption_hits
from plumbline.metrics.paired.mitigations import MITIGATION_EFFECTS_SCHEMA, mitigated_cell, mitigation_effects
from plumbline.metrics.trident.rows import TRIDENT as TRIDENT_FAMILY
from plumbline.mitigations.logit_adjustment.adjustment import LogitAdjustment
from plumbline.mitigations.logit_adjustment.cells import (
    JUDGED_TRIAL,
    TRIDENT,
    Adjustments,
    adjusted_outcomes,
    adjusted_winners,
    class_winners,
)
from plumbline.mitigations.logit_adjustment.rows import adjustment_rows
from plumbline.mitigations.training_rows import judged_rows, label_captions
from plumbline.reasons import in_words, reason

Hits = dict[str, NDArray[np.bool_]]


@dataclass(frozen=True)
class MitigatedTexts:
    """A cell's text embeddings under the mitigations of one method.

    Attributes
    ----------
    method : str
    texts : sequence of str
        The m prompts of the cell's suites and captions of its images.
    before : (m, d) float32
        Their features as the encoder gives them.
    features : mapping of str to (m, d) float32
        The mitigated features by the mitigation's id.
    """

    method: str
    texts: Sequence[str]
    before: NDArray[np.float32]
    features: Mapping[str, NDArray[np.float32]]


class Judgement(NamedTuple):
    """Results of evaluating mitigations; empty tables by default.

    Attributes
    ----------
    rows : DataFrame
        Metric rows without lineage; `condition` is the mitigation's id, or `BEFORE_TEST_ROWS`.
    effects : DataFrame
        In `MITIGATION_EFFECTS_SCHEMA`.
    """

    rows: pl.DataFrame = pl.DataFrame(schema=polars_schema())
    effects: pl.DataFrame = pl.DataFrame(schema=MITIGATION_EFFECTS_SCHEMA)


def judge_mitigations(
    cell: Cell,
    adjustments: Adjustments,
    mitigated: Sequence[MitigatedTexts],
    *,
    images: NDArray[np.float32] | None = None,
    logit_scale: float = 1.0,
    scaled: bool = False,
    settings: MetricSettings,
) -> Judgement:
    """Evaluate all mitigations of a cell.

    Parameters
    ----------
    cell : Cell
        Before any mitigation.
    adjustments : Adjustments
        Each is judged on the test images of its first trial.
    mitigated : sequence of MitigatedTexts
        One per method, all of the same texts; judged on the images that training may not see. Where these are fewer
        than a suite counts, the metrics before on them are among the rows, under `BEFORE_TEST_ROWS`.
    images : (n, d) float32, optional
        Embeddings as the encoder gives them, in the order of the cell's records; needed for mitigated texts.
    logit_scale, scaled
        Of the checkpoint, as in `mitigated_cell`.

    Raises
    ------
    MetricError
        If shapes disagree, or no image is left to judge on.
    """
    judged = [Judgement()]
    if adjustments.fits:
        rows = adjustment_rows(
            cell, adjustments.of_probes, confidence=settings.confidence, min_group=settings.min_group
        )
        judged.append(Judgement(rows))
    judged += [_of_adjustment(cell, name, fits, settings) for name, fits in adjustments.fits.items() if fits]
    if mitigated:
        if images is None:
            raise MetricError("mitigations of texts are judged with image embeddings", where=cell.dataset, found=None)
        bench = _TextBench(cell, images, judged_rows(cell.records).to_numpy(), logit_scale, scaled, settings)
        judged += bench.judged(mitigated)
    return Judgement(*(pl.concat(tables) for tables in zip(*judged)))


def _of_adjustment(cell: Cell, name: str, fits: Mapping[str, LogitAdjustment], settings: MetricSettings) -> Judgement:
    n = cell.records.height
    rows = np.logical_and.reduce([fit.test_rows(n)[JUDGED_TRIAL] for fit in fits.values()])
    # In double precision, as they were adjusted: rounding could make ties.
    logits = {
        suite: SuiteLogits(cell.logits[suite].suite, adjusted_outcomes(cell, suite, fit))
        for suite, fit in fits.items()
        if suite != TRIDENT
    }
    after = replace(cell, logits=logits, keep={suite: cell.rows(suite) & rows for suite in cell.logits})
    answers = _trident_answers(cell, fits.get(TRIDENT))
    paired = logits if answers is None else logits | {TRIDENT: cell.logits[TRIDENT]}
    effects = mitigation_effects(
        cell,
        replace(after, logits=paired),
        condition=name,
        method="logit_adjustment",
        rows=rows,
        settings=settings,
        answers=(None, answers),
    )
    return Judgement(_metrics(after, name, settings), effects)


def _trident_answers(cell: Cell, fit: LogitAdjustment | None) -> TridentAnswers | None:
    # The composite tests have other candidates than the ones before the adjustment that it is paired with.
    if fit is None or fit.settings.candidates == "composite":
        return None
    return TridentAnswers(winner=adjusted_winners(cell, fit), class_winner=class_winners(cell, fit))


@dataclass(frozen=True)
class _TextBench:
    """A cell before mitigation of its texts, with its evaluation settings; `rows` are the held-out images."""

    cell: Cell
    images: NDArray[np.float32]
    rows: NDArray[np.bool_]
    logit_scale: float
    scaled: bool
    settings: MetricSettings

    def judged(self, mitigated: Sequence[MitigatedTexts]) -> Iterator[Judgement]:
        yield Judgement(self._on_fewer_rows())
        before = self._hits(mitigated[0].texts, mitigated[0].before)
        for of_method in mitigated:
            for name, features in of_method.features.items():
                yield self._of_features(name, of_method, features, before)

    def _on_fewer_rows(self) -> pl.DataFrame:
        """Return the metrics before, of the suites that count further images."""
        fewer = {name: each for name, each in self.cell.logits.items() if (self.cell.rows(name) & ~self.rows).any()}
        kept = {name: self.cell.rows(name) & self.rows for name in fewer}
        return _metrics(replace(self.cell, logits=fewer, keep=kept), BEFORE_TEST_ROWS, self.settings)

    def _of_features(
        self, name: str, of_method: MitigatedTexts, features: NDArray[np.float32], before: Hits
    ) -> Judgement:
        after = mitigated_cell(
            self.cell,
            of_method.texts,
            features,
            self.images,
            logit_scale=self.logit_scale,
            scaled=self.scaled,
            keep=self.rows,
        )
        effects = mitigation_effects(
            self.cell,
            after,
            condition=name,
            method=of_method.method,
            rows=self.rows,
            settings=self.settings,
            hits=(before, self._hits(of_method.texts, features)),
        )
        if not self._captioned:
            of_labels = in_words((reason("captions_of_labels"),))
            noted = pl.concat_str(pl.col("reason"), pl.lit(of_labels), separator="; ", ignore_nulls=True)
            retrieval = pl.col("metric").str.starts_with("retrieval")
            effects = effects.with_columns(reason=pl.when(retrieval).then(noted).otherwise("reason"))
        return Judgement(_metrics(after, name, self.settings), effects)

    @property
    def _captioned(self) -> bool:
        """Whether every image has a caption of its own."""
        records = self.cell.records
        return "caption" in records.columns and records["caption"].null_count() == 0

    @cached_property
    def _captions(self) -> tuple[str, ...]:
        return label_captions(self.cell.records.filter(pl.Series(self.rows)))

    def _hits(self, texts: Sequence[str], features: NDArray[np.float32]) -> Hits:
        """Return retrieval hits among the held-out images and their captions; False for all others."""
        return caption_hits(self.images, self._captions, texts, features, rows=self.rows)


def _metrics(cell: Cell, condition: str, settings: MetricSettings) -> pl.DataFrame:
    frames = [family.compute(cell, settings=settings) for family in (OUTCOMES, TRIDENT_FAMILY)]
    return pl.concat(frames).with_columns(pl.lit(condition).alias("condition"))
