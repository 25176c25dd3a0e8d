"""Every mitigation of a cell, judged on images that it was not fitted on: its numbers, and its paired effects."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import dagster as dg
import numpy as np
import polars as pl
from numpy.typing import NDArray

from assets.adjustments import Adjustments, read_adjustments
from assets.cells import JUDGING_VERSION, StoredCell, passed_cell
from assets.metrics import metric_settings
from assets.mitigation_fits import FittedTexts, read_text_fits
from assets.partitions import GRID
from assets.pictures import draw_pictures
from assets.results import OWNERS, markdown_table, materialised
from assets.text_mitigations import TEXT_METHODS
from plumbline.catalog.schema import polars_schema
from plumbline.encoders.embedding import read_embedded
from plumbline.metrics.cell import Cell, SuiteLogits
from plumbline.metrics.paired.comparisons import TridentAnswers, caption_hits
from plumbline.metrics.paired.mitigations import MITIGATION_EFFECTS_SCHEMA, mitigated_cell, mitigation_effects
from plumbline.metrics.registry import FAMILIES
from plumbline.mitigations import LogitAdjustment, adjustment_rows
from plumbline.mitigations.logit_adjustment.cells import (
    JUDGED_TRIAL,
    TRIDENT,
    adjusted_outcomes,
    adjusted_winners,
    class_winners,
)
from plumbline.mitigations.training_rows import judged_rows, label_captions
from plumbline.provenance.tracked_numbers import BEFORE_TEST_ROWS
from resources.workspace import Workspace

_JUDGES = ("outcome_metrics", "trident_metrics")
Hits = dict[str, NDArray[np.bool_]]


@dg.asset(
    deps=[
        "logit_adjustment",
        *(m.name for m in TEXT_METHODS),
        "probe_logits",
        "image_embeddings",
        "extended_records",
        "mitigation_texts",
    ],
    kinds={"numpy", "polars"},
    partitions_def=GRID,
    group_name="mitigation",
    owners=OWNERS,
    code_version=JUDGING_VERSION,
)
def mitigated_metrics(
    context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace]
) -> dg.MaterializeResult:
    """Outcome and Trident metrics after each mitigation, on held-out images.

    Also the paired effects, after minus before on the same images, on skews, harm rates and Trident rates, and on the
    costs, zero-shot accuracy and image-text retrieval. `bias_transfer` summarises them over all cells.
    """
    stored, lake = passed_cell(context, workspace), workspace.lake
    rows, effects = [pl.DataFrame(schema=polars_schema())], [pl.DataFrame(schema=MITIGATION_EFFECTS_SCHEMA)]
    if stored.mitigations:
        judge = _Judge(stored, stored.read())
        for verdict in judge.verdicts():
            rows.append(verdict.rows)
            effects.append(verdict.effects)
    frame, paired = stored.with_lineage(pl.concat(rows)), pl.concat(effects)
    lake.write_table("mitigation_effects", paired, partition=stored.partition, details={"cell_id": stored.identity})
    committed = lake.write_table(
        "mitigated_metrics", frame, partition=stored.partition, details={"cell_id": stored.identity}
    )
    clear = paired.filter(pl.col("p") < 0.01).sort("p").drop("model", "dataset", "method", "reason")
    return materialised(
        committed,
        lake=lake,
        frame=frame.drop("cell_id", "dataset_digest", "checkpoint_sha256"),
        clearest_effects=dg.MetadataValue.md(markdown_table(clear.head(20))),
        **draw_pictures(
            workspace, frame, asset="mitigated_metrics", partition=context.partition_key, names=("adjustment",)
        ),
    )


@dataclass(frozen=True)
class _Verdict:
    """What judging a mitigation gives: metric rows, and paired effects in `MITIGATION_EFFECTS_SCHEMA`."""

    rows: pl.DataFrame
    effects: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=MITIGATION_EFFECTS_SCHEMA))


@dataclass(frozen=True)
class _Judge:
    """A cell as it is, against which its mitigations are judged."""

    stored: StoredCell
    cell: Cell

    def verdicts(self) -> Iterator[_Verdict]:
        """Judge each mitigation."""
        yield from self._adjusted(read_adjustments(self.stored))
        fits = [read_text_fits(self.stored, method.name) for method in TEXT_METHODS]
        fitted = [texts for texts in fits if texts.fits]
        if not fitted:
            return
        yield _Verdict(self._on_fewer_rows())
        # All methods are given the same texts of the cell.
        before = self._hits(fitted[0], fitted[0].before)
        for texts in fitted:
            yield from self._mitigated(texts, before)

    @cached_property
    def _settings(self):
        return metric_settings(self.stored.workspace)

    @cached_property
    def _rows(self) -> NDArray[np.bool_]:
        return judged_rows(self.cell.records).to_numpy()

    @cached_property
    def _images(self) -> NDArray[np.float32]:
        committed = self.stored.workspace.lake.require("image_embeddings", partition=self.stored.partition)
        shards = [(s["key"], s["sha256"]) for s in committed.details["shards"]]
        return read_embedded(shards, self.stored.workspace.shards)

    def _metrics(self, cell: Cell, condition: str) -> pl.DataFrame:
        frames = [FAMILIES[name].compute(cell, settings=self._settings) for name in _JUDGES]
        return pl.concat(frames).with_columns(pl.lit(condition).alias("condition"))

    def _on_fewer_rows(self) -> pl.DataFrame:
        """Return the numbers as they are, where mitigations are judged on fewer images than the suite counts."""
        fewer = {name: each for name, each in self.cell.logits.items() if (self.cell.rows(name) & ~self._rows).any()}
        kept = {name: self.cell.rows(name) & self._rows for name in fewer}
        return self._metrics(replace(self.cell, logits=fewer, keep=kept), BEFORE_TEST_ROWS)

    # --- mitigations of texts

    def _mitigated(self, fits: FittedTexts, before: Hits) -> Iterator[_Verdict]:
        for name, fit in fits.fits.items():
            after = mitigated_cell(
                self.cell,
                fits.texts,
                fits.features[name],
                self._images,
                logit_scale=self.stored.logits.details["logit_scale"],
                scaled=self.stored.family.logit == "scaled_cosine",
                keep=self._rows,
            )
            effects = mitigation_effects(
                self.cell,
                after,
                condition=name,
                method=fit.method,
                rows=self._rows,
                settings=self._settings,
                hits=(before, self._hits(fits, fits.features[name])),
            )
            yield _Verdict(self._metrics(after, name), effects)

    def _hits(self, fits: FittedTexts, features: NDArray[np.float32]) -> Hits:
        """Return what retrieval finds among the judged images and their captions; False for all others."""
        captions = label_captions(self.cell.records.filter(pl.Series(self._rows)))
        return caption_hits(self._images, captions, fits.texts, features, rows=self._rows)

    # --- logit adjustments

    def _adjusted(self, adjustments: Adjustments) -> Iterator[_Verdict]:
        if not adjustments.fits:
            return
        settings = self._settings
        of_probes = adjustment_rows(
            self.cell, adjustments.of_probes, confidence=settings.confidence, min_group=settings.min_group
        )
        yield _Verdict(of_probes)
        for name, fits in adjustments.fits.items():
            if fits:
                yield self._of_adjustment(name, fits)

    def _of_adjustment(self, name: str, fits: dict[str, LogitAdjustment]) -> _Verdict:
        n = self.cell.records.height
        rows = np.logical_and.reduce([fit.test_rows(n)[JUDGED_TRIAL] for fit in fits.values()])
        outcomes = {suite: fit for suite, fit in fits.items() if suite != TRIDENT}
        logits = {
            suite: SuiteLogits(self.cell.logits[suite].suite, adjusted_outcomes(self.cell, suite, fit))
            for suite, fit in outcomes.items()
        }
        kept = {suite: self.cell.rows(suite) & rows for suite in self.cell.logits}
        after = replace(self.cell, logits=logits, keep=kept)
        answers = self._answers(fits.get(TRIDENT))
        paired = logits if answers is None else logits | {TRIDENT: self.cell.logits[TRIDENT]}
        effects = mitigation_effects(
            self.cell,
            replace(after, logits=paired),
            condition=name,
            method="logit_adjustment",
            rows=rows,
            settings=self._settings,
            answers=(None, answers),
        )
        return _Verdict(self._metrics(after, name), effects)

    def _answers(self, fit: LogitAdjustment | None) -> TridentAnswers | None:
        # The composite tests have other candidates than the ones before the adjustment that it is paired with.
        if fit is None or fit.settings.candidates == "composite":
            return None
        return TridentAnswers(winner=adjusted_winners(self.cell, fit), class_winner=class_winners(self.cell, fit))
