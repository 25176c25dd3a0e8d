"""A cell as it is after a mitigation of its text features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.catalog.schema import ESTIMATE, Schema
from plumbline.errors import MetricError
from plumbline.metrics.cell import Cell, SuiteLogits
from plumbline.metrics.evidence import add_detectable_changes
from plumbline.metrics.family import MetricSettings
from plumbline.metrics.paired.comparisons import HITS, Hits, TridentAnswers, cell_effects
from plumbline.metrics.paired.effects import MITIGATION
from plumbline.statistics.multiplicity import SIGNIFICANCE, add_q_values


def mitigated_cell(
    cell: Cell,
    texts: Sequence[str],
    features: NDArray[np.float32],
    images: NDArray[np.float32],
    *,
    logit_scale: float,
    scaled: bool,
    keep: NDArray[np.bool_],
) -> Cell:
    """Return a cell with the responses to mitigated text features, on the rows that no mitigation was fitted on.

    Features that nothing changed give the cell's own responses back, to float32 rounding.

    Parameters
    ----------
    cell : Cell
        Of n images, before the mitigation.
    texts : sequence of str
        The m prompts that have mitigated features, each once.
    features : (m, d) float32
        Of the texts, in the norm that the encoder gives them.
    images : (n, d) float32
        Embeddings as the encoder gives them, in the order of the cell's records.
    logit_scale, scaled
        The checkpoint's factor, and whether its family's logit is the scaled cosine: as `SuiteLogits.of_products`.
    keep : (n,) bool
        Rows to judge the mitigation on: every suite's own filter is narrowed to them.

    Returns
    -------
    Cell
        With the suites whose prompts are all among the texts. The others are left out, since their responses would
        be those before the mitigation, and so is `images`, which a mitigation of texts does not change.

    Raises
    ------
    MetricError
        If the shapes disagree, or a feature is not finite.
    """
    _check(cell, texts, features, images, keep)
    row = {text: i for i, text in enumerate(texts)}
    answered = [each.suite for each in cell.logits.values() if set(each.suite.texts) <= row.keys()]
    suite_texts = list(dict.fromkeys(text for suite in answered for text in suite.texts))
    column = {text: i for i, text in enumerate(suite_texts)}
    prompts = features[[row[text] for text in suite_texts]]
    products = images @ prompts.T
    image_norms, text_norms = (np.linalg.norm(each, axis=1) for each in (images, prompts))
    logits = {}
    for suite in answered:
        chosen = [column[text] for text in suite.texts]
        logits[suite.id] = SuiteLogits.of_products(
            suite, products, columns=chosen, image_norms=image_norms, text_norms=text_norms,
            logit_scale=logit_scale, scaled=scaled,
        )  # fmt: skip
    kept = {suite.id: cell.rows(suite.id) & keep for suite in answered}
    return replace(cell, logits=logits, keep=kept, images=None)


def _check(
    cell: Cell,
    texts: Sequence[str],
    features: NDArray[np.float32],
    images: NDArray[np.float32],
    keep: NDArray[np.bool_],
) -> None:
    n = cell.records.height
    fits = features.shape == (len(texts), images.shape[-1]) and len(images) == n and keep.shape == (n,)
    if not fits or len(set(texts)) != len(texts):
        raise MetricError(
            "a mitigated cell needs one feature for each text, and one embedding and one flag for each image",
            where=f"{cell.dataset}|{cell.model}",
            found=f"{len(texts)} texts ({len(set(texts))} different), features {features.shape}, "
            f"images {images.shape}, keep {keep.shape}",
            expected=f"(m, d), ({n}, d), ({n},)",
        )
    for name, array in (("text feature", features), ("image embedding", images)):
        if not (np.isfinite(array).all() and np.linalg.norm(array, axis=1).all()):
            raise MetricError(
                f"a mitigated cell has no answer to a {name} that is zero or not finite",
                where=f"{cell.dataset}|{cell.model}",
                hint="the mitigation left nothing of it: try a smaller step or fewer attributes",
            )


# --- The table of what a mitigation changes: one row per paired effect, with its verdict.

TRANSFER_SCHEMA: Schema = {
    # what was compared
    "model": pl.String,
    "dataset": pl.String,
    "condition": pl.String,
    "method": pl.String,
    "kind": pl.String,
    "suite": pl.String,
    "attribute": pl.String,
    "event": pl.String,
    "metric": pl.String,
    "definition": pl.String,
    # the difference after - before, on the same images
    **ESTIMATE,
    "value_after": pl.Float64,
    "value_before": pl.Float64,
    "smallest_detectable": pl.Float64,
    "better": pl.String,
    "verdict": pl.String,
}
"""`condition` is the mitigation's id in the audit file, `method` what it is; `attribute` is null for all images.

`kind`: what the row measures:

- `axis`: Max Skew (`mean_over_pairs`, `smoothed`) and the parity difference of every event of the outcome suites
  that both cells have, by every attribute, and of the mean over the three tasks.
- `harm`: the share of all images in the event; every event of the outcome suites is a harmful one.
- `trident`: P(class → probe), averaged over the probes of a valence (`event`), of all labelled images
  (`probe_rate`), and its largest minus smallest value over the classes (suite `trident`) and over classes by
  automatic gender label (`trident_mixed`). Being classified as the probe is
  an error, whatever the probe's valence.
- `cost` (`better` is `higher`; for all others `lower`): `macro_accuracy` of the one-probe tests, averaged over
  classes and probes; `zero_shot_accuracy` among the classes alone, averaged over classes (`macro`) or images
  (`micro`); and retrieval.

`better` is `lower` or `higher`; `verdict` one of `VERDICTS`.
"""

IMPROVED, WORSENED, NO_EVIDENCE, UNDEFINED = "improved", "worsened", "no evidence", "undefined"
VERDICTS = (IMPROVED, WORSENED, NO_EVIDENCE, UNDEFINED)
"""`no evidence`: chance alone may explain the difference (q at or above 0.05); never "no difference"."""


# --- What a mitigation changes in one cell, on images that it was not fitted on, each before and after
# it.
#
# Sources of what is measured: Sun et al. (TriProTesting); Al Sahili et al., "Data Matters Most", section
# 3.4.

MITIGATION_EFFECTS_SCHEMA: Schema = {
    name: kind for name, kind in TRANSFER_SCHEMA.items() if name not in ("q", "verdict", "smallest_detectable")
}
"""The effects of one mitigation on one cell; what is left out needs the rows of all cells, see `bias_transfer`."""

_SIDES = ("before", "after")


def mitigation_effects(
    before: Cell,
    after: Cell,
    *,
    condition: str,
    method: str,
    rows: NDArray[np.bool_],
    settings: MetricSettings,
    answers: tuple[TridentAnswers | None, TridentAnswers | None] = (None, None),
    hits: tuple[Hits, Hits] | None = None,
) -> pl.DataFrame:
    """Return what a mitigation changed in one cell, after - before, on images that it was not fitted on.

    See `plumbline.metrics.paired.mitigations.TRANSFER_SCHEMA` for the meaning of `kind`.

    Parameters
    ----------
    before, after : Cell
        Two states of the same n records. A suite counts where both have it, an image where both keep it.
    condition, method : str
        The mitigation's id, and what it is.
    rows : (n,) bool
        Records that the mitigation was not fitted on.
    answers : pair of TridentAnswers or None
        Before and after, over all n records. Needed after a logit adjustment, whose factors differ between the
        one-probe tests; by default they follow from the Trident logits of the cells.
    hits : pair of mappings, optional
        Before and after. Records outside `rows` are ignored.

    Returns
    -------
    DataFrame
        In `MITIGATION_EFFECTS_SCHEMA`. Interval and p are those of `factor_effects`, with `after` in the place of the
        first checkpoint. Undefined values are nan with the reason; there is no row for a disparity of fewer than two
        groups with images.

    Raises
    ------
    MetricError
        If the cells are not of the same records, something is not of their length, or `rows` chooses none.
    """
    _effect_check(before, after, condition, rows, hits)
    common = {"model": before.model, "dataset": before.dataset, "condition": condition, "method": method}
    effects = cell_effects(
        before,
        after,
        rows=rows,
        named=("bias_transfer", before.model, before.dataset, condition),
        names=MITIGATION,
        settings=settings,
        answers=answers,
        hits=hits,
    )
    table = [common | row for row in effects]
    return pl.DataFrame(table, schema=MITIGATION_EFFECTS_SCHEMA, orient="row")


def _effect_check(
    before: Cell, after: Cell, condition: str, rows: NDArray[np.bool_], hits: tuple[Hits, Hits] | None
) -> None:
    where, n = f"{before.dataset}|{before.model}, {condition}", before.records.height
    if not before.records["image_id"].equals(after.records["image_id"]):
        raise MetricError(
            "a mitigation is judged on the same images, before and after",
            where=where,
            found=f"{after.records.height} images after",
            expected=f"the {n} images before",
        )
    if rows.shape != (n,) or rows.dtype != np.bool_ or not rows.any():
        raise MetricError(
            "there must be images that the mitigation was not fitted on",
            where=where,
            found=f"{rows.dtype} {rows.shape}, {int(rows.sum())} chosen",
            expected=f"bool ({n},), at least one chosen",
        )
    for side, of_side in zip(_SIDES, hits or ()):
        if of_side.keys() != HITS.keys() or any(each.shape != (n,) for each in of_side.values()):
            raise MetricError(
                "retrieval must say of every image what it finds",
                where=f"{where}, {side}",
                found={name: each.shape for name, each in of_side.items()},
                expected=f"({n},) for each of {', '.join(HITS)}",
            )


# --- Bias transfer: what mitigations improve, what they worsen, and which of them only move bias
# elsewhere.

_CELL = ["model", "dataset", "condition", "method"]


def bias_transfer(frames: Iterable[pl.DataFrame], *, confidence: float = 0.95) -> pl.DataFrame:
    """Judge the effects of all mitigations on all cells.

    Parameters
    ----------
    frames : iterable of DataFrame
        From `mitigation_effects`.
    confidence : float
        Of the intervals of the effects.

    Returns
    -------
    DataFrame
        In `TRANSFER_SCHEMA`: the frames one below the other, with `q`, see
        `plumbline.statistics.multiplicity.CORRECTED_TOGETHER`, and `verdict`: `improved` or `worsened` by the sign of
        the difference against `better`, `no evidence`, and `undefined` where there is no difference or no test of it.
    """
    tables = [pl.DataFrame(schema=MITIGATION_EFFECTS_SCHEMA), *frames]
    judged = add_q_values(pl.concat(tables), of="bias_transfer")
    judged = add_detectable_changes(judged, of="bias_transfer", confidence=confidence)
    gain = pl.when(better="higher").then(pl.col("value")).otherwise(-pl.col("value"))
    verdict = (
        pl.when(pl.col("q").is_null() | pl.col("value").is_nan().fill_null(True))
        .then(pl.lit(UNDEFINED))
        .when(pl.col("q") >= SIGNIFICANCE)
        .then(pl.lit(NO_EVIDENCE))
        .when(gain > 0)
        .then(pl.lit(IMPROVED))
        .otherwise(pl.lit(WORSENED))
    )
    return judged.with_columns(verdict=verdict).select(list(TRANSFER_SCHEMA)).cast(pl.Schema(TRANSFER_SCHEMA))


def verdict_counts(table: pl.DataFrame) -> pl.DataFrame:
    """Count the verdicts of a table of `bias_transfer`, by mitigation, cell and kind, with a column per verdict."""
    counts = [(pl.col("verdict") == verdict).sum().cast(pl.Int64).alias(verdict) for verdict in VERDICTS]
    return table.group_by([*_CELL, "kind"], maintain_order=True).agg(counts)


def bias_shifts(table: pl.DataFrame) -> pl.DataFrame:
    """Return the mitigations that move bias: that improve an axis of a cell, and worsen another axis or a harm rate.

    An axis is one event seen by one attribute. Its statistics may disagree, since a falling rate can lower a difference
    and raise a ratio: one and the same axis that is both improved and worsened is not by itself a transfer.

    Parameters
    ----------
    table : DataFrame
        From `bias_transfer`.

    Returns
    -------
    DataFrame
        One row per mitigation and cell: `model, dataset, condition, method`, the numbers `improved_axes`,
        `worsened_axes` and `worsened_harms`, and in `improved` and `worsened` what they are, each with the statistic
        of smallest q: `crime crime by race (smoothed max_skew): 0.41 -> 0.12`. Empty where nothing is moved.
    """
    changed = table.filter(pl.col("verdict").is_in([IMPROVED, WORSENED]), pl.col("kind").is_in(["axis", "harm"]))
    rows = [
        dict(zip(_CELL, cell)) | facts
        for cell, of_cell in changed.group_by(_CELL, maintain_order=True)
        if (facts := _moved(of_cell))
    ]
    counts = dict.fromkeys(("improved_axes", "worsened_axes", "worsened_harms"), pl.Int64)
    texts = dict.fromkeys(("improved", "worsened"), pl.String)
    return pl.DataFrame(rows, schema={**dict.fromkeys(_CELL, pl.String), **counts, **texts}, orient="row")


def _moved(own: pl.DataFrame) -> dict[str, object] | None:
    """Return the facts of a mitigation of one cell, None where it moves nothing."""
    # By q, and by falling size where q ties.
    ordered = own.sort("q", pl.col("value").abs(), descending=[False, True], maintain_order=True)
    verdicts: dict[tuple[str, str], dict[tuple[object, ...], str]] = {}
    for row in ordered.to_dicts():
        what = (row["suite"], row["event"], row["attribute"])
        verdicts.setdefault((row["kind"], row["verdict"]), {}).setdefault(what, _fact(row))
    better, worse = verdicts.get(("axis", IMPROVED), {}), verdicts.get(("axis", WORSENED), {})
    harms = verdicts.get(("harm", WORSENED), {})
    if not better or not (harms or worse.keys() - better.keys()):
        return None
    return {
        "improved_axes": len(better),
        "worsened_axes": len(worse),
        "worsened_harms": len(harms),
        "improved": "; ".join(better.values()),
        "worsened": "; ".join([*worse.values(), *harms.values()]),
    }


def _fact(row: Mapping[str, Any]) -> str:
    by = f" by {row['attribute']}" if row["attribute"] else ""
    change = f"{row['value_before']:.3g} -> {row['value_after']:.3g}"
    return f"{row['suite']} {row['event']}{by} ({row['definition']} {row['metric']}): {change}"
