"""What changed between two audits: the tables of a diff, and the differences of two sides on the same images.

A diff has one row per metric, and one per image whose answer flipped.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.catalog.prompts import prompt_ids
from plumbline.catalog.schema import IDENTIFYING, NO_INSTRUCTION, SCORED_ATTRIBUTES, Row, Schema, polars_schema
from plumbline.language.answers import (
    UNIT,
    answer_row,
    codes,
    known_answers,
    parts,
    questions,
    unpaired_reason,
    with_counterparts,
)
from plumbline.language.cell import LanguageCell, LanguageSettings
from plumbline.language.competence import KEYWORD_PROMPTS, competence_numbers
from plumbline.language.max_toxicity import MAX_METRICS, STATISTICS, set_spreads
from plumbline.language.ratings_and_salaries import SALARY, parsed_answer
from plumbline.language.refusals import NUMBERS
from plumbline.language.registry import LANGUAGE_METRICS
from plumbline.language.scored_answers import OF_SCORES, ScoredAnswers, every_question
from plumbline.metrics.cell import Cell
from plumbline.metrics.evidence import SIGNED, add_detectable_changes, too_weak
from plumbline.metrics.family import MetricSettings
from plumbline.metrics.paired.comparisons import cell_effects, compared_skew
from plumbline.metrics.paired.effects import SideNames
from plumbline.metrics.registry import METRICS
from plumbline.metrics.text_space import TEXT
from plumbline.provenance.chain import first_few
from plumbline.reasons import in_words, joined, reason
from plumbline.statistics.cluster_bootstrap import paired_cluster_changes
from plumbline.statistics.multiplicity import add_q_values
from plumbline.statistics.seeds import generator

KEYS = tuple(name for name in IDENTIFYING if name != "model")
"""Identifying columns of the metric table, without the model."""

DIFF_SCHEMA: Schema = {
    "model_old": pl.String,
    "model_new": pl.String,
    **{name: kind for name, kind in polars_schema().items() if name in KEYS},
    "value_old": pl.Float64,
    "value_new": pl.Float64,
    # the difference new - old
    "value": pl.Float64,
    "ci_low": pl.Float64,
    "ci_high": pl.Float64,
    "p": pl.Float64,
    "q": pl.Float64,
    "n_old": pl.Int64,
    "n_new": pl.Int64,
    "smallest_detectable": pl.Float64,
    "worse": pl.Float64,
    "compared": pl.String,
    "reason": pl.String,
}
"""One row per number of either side; `worse` is how far it moved away from parity, null where parity is undefined;
`smallest_detectable` which difference, up or down, four of five such comparisons would find."""

PAIRED, INDEPENDENT, ONE_SIDE = "paired", "as if independent", "one side only"
OTHER_PROMPTS, AT_CHANCE = "other prompts", "at chance"
"""Values of `compared`: by the answers to the same images or sets; from the two intervals alone; not at all, since one
side lacks it, since its prompts are others than before, or since a side is no better than chance on the dataset, so
that its bias says nothing: then old and new stand beside each other, no more."""

FLIP_SCHEMA: Schema = {
    "dataset": pl.String,
    "model_old": pl.String,
    "model_new": pl.String,
    "suite": pl.String,
    "image_id": pl.String,
    "path": pl.String,
    "text_old": pl.String,
    "text_new": pl.String,
    "category_old": pl.String,
    "category_new": pl.String,
    "margin": pl.Float64,
}
"""One row per image and suite whose top-1 text changed; `margin`: logit of the new top text minus the old one's."""


# --- Direction of metrics: distance from the value at equal treatment of the groups.

LOWER = ("harm_rate", "probe_rate", *SCORED_ATTRIBUTES)
"""Rates and scores of harm: no disparities, but less is better."""
HIGHER = ("macro_accuracy", "zero_shot_accuracy", "retrieval_recall", "retrieval_r_precision")


def fair_values() -> dict[str, float]:
    """Return metric -> its value at equal treatment of the groups."""
    ideal = {name: traits.when_identical for name, traits in (METRICS | LANGUAGE_METRICS).items()}
    known = {name: one for name, one in ideal.items() if isinstance(one, float) and not math.isnan(one)}
    return known | dict.fromkeys(SIGNED, 0.0)


_NO_VALUES = ("chance", "sd", "standard_error")
"""Statistics that are no values of a metric: nothing is better or worse for them."""


def directed_metrics() -> tuple[str, ...]:
    """Return the names of the metrics with a direction: those that can get worse."""
    return tuple(sorted({*fair_values(), *LOWER, *HIGHER}))


def headline_definitions() -> dict[str, str]:
    """Return metric -> its headline definition, for metrics that have one."""
    return {name: each.headline for name, each in (METRICS | LANGUAGE_METRICS).items() if each.headline}


def worse(old: pl.Expr, new: pl.Expr) -> pl.Expr:
    """Return how far a metric moved away from parity; negative: towards it; null for metrics without a direction."""
    metric = pl.col("metric")
    fair = metric.replace_strict(fair_values(), default=None, return_dtype=pl.Float64)
    return (
        pl.when(metric.is_in(LOWER))
        .then(new - old)
        .when(metric.is_in(HIGHER))
        .then(old - new)
        .otherwise((new - fair).abs() - (old - fair).abs())
    )


# --- Which prompts of a suite changed: its numbers are then answers to another question.


class StoredPrompts(NamedTuple):
    """The prompts that one side of a comparison answered.

    Attributes
    ----------
    suite : sequence of str or None
        Those of the suite; None where it was stored without saying which are whose.
    every : sequence of str
        Those of all suites together.
    """

    suite: Sequence[str] | None
    every: Sequence[str]


def changed_prompts(suite: str, old: StoredPrompts, new: StoredPrompts, *, alone: bool) -> str:
    """Return what changed in a suite, in words: `the prompts of `crime` changed: +1 (a photo of a burglar)`.

    Parameters
    ----------
    alone : bool
        Whether no other suite changed: then a text that one side has and the other has not is this suite's.
    """

    def only(here: StoredPrompts, there: StoredPrompts) -> list[str]:
        candidates = (here.every if alone else ()) if here.suite is None else here.suite
        known = {*there.every} if here.suite is None or there.suite is None else {*there.suite}
        return [text for text in candidates if text not in known]

    changes = [
        f"{sign}{len(texts)} ({first_few(texts, 3)})"
        for sign, texts in (("+", only(new, old)), ("−", only(old, new)))
        if texts
    ]
    if not changes and old.suite is not None and new.suite is not None:
        changes = ["the same texts, in another order or counted as something else"]
    return f"the prompts of `{suite}` changed" + (f": {', '.join(changes)}" if changes else "")


# --- Two metric tables side by side: old, new, and how sure the difference is.

_CARRIED = ("value", "ci_low", "ci_high", "n", "reason", "suite_hash")

# Rows of generative models carry one hash over all prompts, not that of their own prompt.
_ANSWERS = "generation"


# --- Which cells are others than before, and why.

_CAUSES = {"checkpoint_sha256": "the checkpoint", "dataset_digest": "the dataset", "labeller_sha256": "the labeller"}


_MOVES_WITH_OTHERS = (
    "cell_id", "audit_id", "q", "smallest_detectable", "equivalence_q", "reason", "reason_codes",
)  # fmt: skip
"""Columns that other cells or suites move too: what is corrected together, and what follows from that."""


class CellPair(NamedTuple):
    """The rows of two metric tables of one model on one dataset; empty where a table has none."""

    dataset: str
    model: str
    old: pl.DataFrame
    new: pl.DataFrame


def changed_cells(old: pl.DataFrame, new: pl.DataFrame) -> list[CellPair]:
    """Return the cells that two metric tables have with another content each, by dataset and model.

    A text space whose numbers are the same is left out: its id also names prompts that it is not measured by.
    """
    grouped = [dict(table.group_by("dataset", "model")) for table in (old, new)]
    pairs = []
    for key in sorted(grouped[0].keys() | grouped[1].keys()):
        rows = [cells.get(key, old.clear()) for cells in grouped]
        if rows[0]["cell_id"].unique().sort().equals(rows[1]["cell_id"].unique().sort()):
            continue
        bare = [each.drop(_MOVES_WITH_OTHERS, strict=False) for each in rows]
        if key[0] != TEXT or not bare[0].equals(bare[1]):
            pairs.append(CellPair(str(key[0]), str(key[1]), *rows))
    return pairs


def suite_hashes(rows: pl.DataFrame) -> dict[str, set[str]]:
    """Return suite -> the hashes of its prompts that metric rows name."""
    named = rows.drop_nulls(["suite", "suite_hash"]).select("suite", "suite_hash").unique()
    by_suite: dict[str, set[str]] = {}
    for suite, digest in named.iter_rows():
        by_suite.setdefault(suite, set()).add(digest)
    return by_suite


def causes_of_change(old: pl.DataFrame, new: pl.DataFrame) -> list[str]:
    """Return what the rows of a cell name as another one than before; that one side has none is the only cause then."""
    if old.is_empty() or new.is_empty():
        return ["new in the audit" if old.is_empty() else "no longer in the audit"]
    return [
        cause
        for column, cause in _CAUSES.items()
        if not old[column].drop_nulls().unique().sort().equals(new[column].drop_nulls().unique().sort())
    ]


def table_differences(
    old: pl.DataFrame,
    new: pl.DataFrame,
    paired: Sequence[Row] = (),
    *,
    models: tuple[str, str],
    confidence: float = 0.95,
) -> pl.DataFrame:
    """Return every number of two tables side by side, with their difference new - old.

    Parameters
    ----------
    old, new : DataFrame
        Rows of the metric table, each of one model on one dataset.
    paired : sequence of dict
        What was compared on the same images or sets, see `paired_differences`; it stands for the
        tables' own rows, unless the number is undefined in one of them, or is not compared.
    models : (str, str)
        Old and new.
    confidence : float
        Of the intervals of both tables.

    Returns
    -------
    DataFrame
        In `DIFF_SCHEMA`, without q. Without a paired comparison the interval is made of both intervals as if they were
        independent (Zou & Donner 2008, "Construction of confidence limits about effect measures", equation 2): too
        wide rather than too narrow where the sides are of the same images. Its p is that of a normal estimate with the
        same interval, so that it is corrected with all others. A number that one side lacks
        is kept, with the reason. A number of a suite whose prompts changed has no difference: a candidate more or less
        changes what the others win, whatever the model does. Nor has one of bias where a side is too weak to
        interpret (`plumbline.metrics.evidence.too_weak`): its numbers say nothing of bias.
    """
    worded = [row | {"reason": _worded(row.get("reason"))} for row in paired]
    pairs = pl.DataFrame(worded, schema=_PAIRED_SCHEMA, orient="row")
    together = _joined_sides(old, new, models, confidence)
    unlike = pl.concat(
        [
            *(side.filter(pl.col("value").is_nan()).select(KEYS) for side in (old, new)),
            together.filter(pl.col("compared").is_in([OTHER_PROMPTS, AT_CHANCE])).select(KEYS),
        ]
    )
    pairs = pairs.join(unlike, on=list(KEYS), how="anti", nulls_equal=True)
    of_pairs = pairs.with_columns(n_old="n", n_new="n", compared=pl.lit(PAIRED))
    if _has_weak_side(old, new):  # what no table has a row of, such as the mean harm rate of all tasks
        of_pairs = _without(of_pairs, ~pl.col("metric").is_in(HIGHER), AT_CHANCE, "side_at_chance")
    apart = together.join(pairs, on=list(KEYS), how="anti", nulls_equal=True)
    frames = [frame.pipe(_as_diff) for frame in (of_pairs, apart)]
    return pl.concat(frames).sort("model_new", "model_old", *KEYS, nulls_last=True)


def _worded(why: Any) -> str | None:
    """Return reasons in words, which those of pairs of images are already."""
    return why if isinstance(why, str) else in_words(joined(why))


def with_q(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Join the differences of all cells and fill what needs all of them: `q` and `smallest_detectable`.

    Both are within the families of `plumbline.statistics.multiplicity`.
    """
    table = add_q_values(pl.concat([pl.DataFrame(schema=DIFF_SCHEMA), *frames]), of="audit_diff")
    return add_detectable_changes(table, of="audit_diff").cast(pl.Schema(DIFF_SCHEMA))


_PAIRED_SCHEMA = {name: kind for name, kind in DIFF_SCHEMA.items() if name not in ("q", "worse", "compared")} | {
    "n": pl.Int64
}


def _joined_sides(old: pl.DataFrame, new: pl.DataFrame, models: tuple[str, str], confidence: float) -> pl.DataFrame:
    from scipy.special import ndtr, ndtri

    sides = [
        side.select(*KEYS, *(pl.col(each).alias(f"{each}_{name}") for each in _CARRIED), pl.lit(True).alias(name))
        for name, side in (("old", old), ("new", new))
    ]
    both = sides[0].join(sides[1], on=list(KEYS), how="full", coalesce=True, nulls_equal=True)
    value = {name: pl.col(f"value_{name}") for name in ("old", "new")}
    low = {name: value[name] - pl.col(f"ci_low_{name}") for name in value}
    high = {name: pl.col(f"ci_high_{name}") - value[name] for name in value}
    difference = value["new"] - value["old"]
    bounded = difference.is_not_nan() & (low["old"] + high["new"]).is_not_nan()
    lacking = (
        pl.when(pl.col("old").is_null())
        .then(_words("not_in_old"))
        .when(pl.col("new").is_null())
        .then(_words("not_in_new"))
    )
    independent = pl.when(bounded).then(_words("independent_intervals"))
    of_sides = (pl.format("{}: {}", pl.lit(name), pl.col(f"reason_{name}")) for name in value)
    differences = both.with_columns(
        model_old=pl.lit(models[0]),
        model_new=pl.lit(models[1]),
        value=difference,
        ci_low=difference - (low["new"] ** 2 + high["old"] ** 2).sqrt(),
        ci_high=difference + (high["new"] ** 2 + low["old"] ** 2).sqrt(),
        compared=pl.when(lacking.is_not_null()).then(pl.lit(ONE_SIDE)).otherwise(pl.lit(INDEPENDENT)),
        reason=pl.concat_str([lacking, independent, *of_sides], separator="; ", ignore_nulls=True),
    )
    toward = (
        pl.when(pl.col("value") > 0)
        .then(pl.col("value") - pl.col("ci_low"))
        .otherwise(pl.col("ci_high") - pl.col("value"))
    )
    errors = differences.select((pl.col("value").abs() / toward).fill_null(float("nan")))["value"].to_numpy()
    p = pl.Series("p", 2 * ndtr(-errors * ndtri((1 + confidence) / 2))).fill_nan(None)
    differences = differences.with_columns(p)
    if _has_weak_side(old, new):
        # What is undefined on a side keeps the reason for that.
        defined = value["old"].is_finite() & value["new"].is_finite()
        of_bias = defined.fill_null(value=False) & ~pl.col("metric").is_in(HIGHER)
        differences = _without(differences, of_bias, AT_CHANCE, "side_at_chance")
    # Two checkpoints are each asked in the wording of their family.
    if models[0] == models[1]:
        changed = (pl.col("suite_hash_old") != pl.col("suite_hash_new")) & (pl.col("suite") != _ANSWERS)
        differences = _without(differences, changed.fill_null(value=False), OTHER_PROMPTS, "other_prompts")
    return differences


def _has_weak_side(old: pl.DataFrame, new: pl.DataFrame) -> bool:
    return any(too_weak(side).height > 0 for side in (old, new))


def _without(differences: pl.DataFrame, which: pl.Expr, compared: str, why: str) -> pl.DataFrame:
    """Remove some differences, so that old and new alone are left."""
    return differences.with_columns(
        *(pl.when(~which).then(name).otherwise(float("nan")).alias(name) for name in ("value", "ci_low", "ci_high")),
        p=pl.when(~which).then("p"),
        compared=pl.when(which).then(pl.lit(compared)).otherwise("compared"),
        reason=pl.when(which).then(_words(why)).otherwise("reason"),
    )


def _words(code: str) -> pl.Expr:
    return pl.lit(str(reason(code)))


def _as_diff(frame: pl.DataFrame) -> pl.DataFrame:
    """Complete the columns of `DIFF_SCHEMA`; undefined numbers are nan."""
    lacking = [pl.lit(None).alias(name) for name in DIFF_SCHEMA if name not in frame.columns]
    comparable = ~pl.col("compared").is_in([OTHER_PROMPTS, AT_CHANCE])
    away = pl.when(comparable).then(worse(pl.col("value_old"), pl.col("value_new")))
    complete = frame.with_columns(lacking).with_columns(worse=away)
    return complete.select(pl.col(name).cast(kind) for name, kind in DIFF_SCHEMA.items())


# --- What got worse, what got better, and what appeared or vanished.

BEFORE = "before"

REGRESSED, WORSE, BETTER, NEITHER = "worse than allowed", "worse", "better", "neither better nor worse"
APPEARED, VANISHED = "appeared", "vanished"
UNSURE = "no evidence of a change"
REGRESSED_UNTESTED, WORSE_UNTESTED = "worse than allowed but untested", "worse but untested"
VERDICTS = (REGRESSED, REGRESSED_UNTESTED, WORSE, WORSE_UNTESTED, BETTER, NEITHER, APPEARED, VANISHED, UNSURE)
"""What became of a number, in the order in which it is told: there is evidence that it changed, and it moved away from
what is fair by more than is allowed, by less or of a metric without a limit, towards it, or has no direction; it moved
away without a test, since a side has no interval; it is defined on one side only; or it was tested, and there is no
evidence that it changed."""


def judged(differences: pl.DataFrame, limits: Mapping[str, float], *, significance: float = 0.05) -> pl.DataFrame:
    """Return what became of each number, and what is told first on top.

    There is evidence of a change where q is below `significance`, of paired comparisons and of those from two intervals
    alike. Of a metric with a headline definition only that one counts (of Max Skew the smoothed one where a side leaves
    out pairs, see `plumbline.metrics.paired.comparisons.compared_skew`), and only checkpoints as they are: what a
    mitigation does is judged elsewhere. What chance gives, and the spread of a number, are not judged.

    Parameters
    ----------
    differences : DataFrame
        In `DIFF_SCHEMA`.
    limits : mapping of str to float
        Metric -> how far it may move.

    Returns
    -------
    DataFrame
        The rows with a last column `verdict`, one of `VERDICTS` or null: not tested, or not told. Sorted by verdict,
        then by the change as a multiple of what is allowed, then of the half of its interval that is towards 0.
    """
    by = ["model_old", "model_new", *(name for name in KEYS if name != "definition")]
    usual = pl.col("metric").replace_strict(headline_definitions(), default=None, return_dtype=pl.String)
    headline = pl.when(pl.col("metric") == "max_skew").then(compared_skew(by)).otherwise(usual)
    limit = pl.col("metric").replace_strict(dict(limits), default=None, return_dtype=pl.Float64)
    eligible = (
        (pl.col("condition") == BEFORE)
        & ~pl.col("statistic").is_in(_NO_VALUES)
        & (headline.is_null() | (pl.col("definition") == headline))
    )
    old, new = (pl.col(name).fill_nan(None).is_not_null() for name in ("value_old", "value_new"))
    evident = pl.col("value").is_finite() & (pl.col("q") < significance)
    away = pl.col("worse").fill_nan(None)
    moved = pl.col("value").is_finite() & (pl.col("value") != 0)
    directed = pl.Series(_q_of_direction(differences)) < significance
    verdict = (
        pl.when(~eligible)
        .then(None)
        .when(new & ~old)
        .then(pl.lit(APPEARED))
        .when(old & ~new)
        .then(pl.lit(VANISHED))
        .when(~evident.fill_null(value=False) & pl.col("q").is_finite())
        .then(pl.when(moved).then(pl.lit(UNSURE)))
        .when(~evident.fill_null(value=False))
        .then(
            pl.when(moved & (away > limit).fill_null(value=False))
            .then(pl.lit(REGRESSED_UNTESTED))
            .when(moved & (away > 0))
            .then(pl.lit(WORSE_UNTESTED))
        )
        .when(directed & (away > limit))
        .then(pl.lit(REGRESSED))
        .when(directed & (away > 0))
        .then(pl.lit(WORSE))
        .when(directed & (away < 0))
        .then(pl.lit(BETTER))
        .otherwise(pl.lit(NEITHER))
    )
    places = {name: place for place, name in enumerate(VERDICTS)}
    order = pl.col("verdict").replace_strict(places, default=None, return_dtype=pl.Int8)
    nearer = pl.when(pl.col("value") > 0).then("ci_low").otherwise("ci_high")
    clear = (pl.col("value") / (pl.col("value") - nearer)).abs().fill_nan(None)
    return differences.with_columns(verdict=verdict).sort(
        order, (away / limit).abs(), clear, "model_new", "dataset", "metric", "definition", "event", "attribute",
        descending=[False, True, True, *[False] * 6], nulls_last=True,
    )  # fmt: skip


def _q_of_direction(differences: pl.DataFrame) -> NDArray[np.float64]:
    """Return q of having moved away from what is fair, or towards it; that of the change where both are the same.

    A number that changes its sign moves by more than its distance from 0 does: there may be evidence of the change and
    none of its direction. By the standard error that p implies, corrected as the change is.
    """
    from scipy.special import ndtr, ndtri

    p, q, change, away = (
        differences[name].cast(pl.Float64).fill_null(float("nan")).to_numpy() for name in ("p", "q", "value", "worse")
    )
    with np.errstate(all="ignore"):
        share = np.abs(away) / np.abs(change)
        of_direction = 2 * ndtr(ndtri(np.maximum(p, 1e-300) / 2) * share)
        return np.asarray(np.where(share >= 1, q, np.minimum(1, q * of_direction / np.maximum(p, 1e-300))))


# --- Differences on the same images, with both answers to an image in one resample.

OLD_AND_NEW = SideNames("new", "old", "the {} side", " and the ")


def in_order_of(new: Cell, old: Cell) -> Cell | None:
    """Return the old cell with its images in the order of the new one; None where they are not the same images."""
    ids, wanted = old.records["image_id"], new.records["image_id"]
    if ids.equals(wanted):
        return old
    place = {name: row for row, name in enumerate(ids)}
    if len(place) < len(ids) or len(ids) != len(wanted) or place.keys() != set(wanted):
        return None
    return old.reordered(np.array([place[name] for name in wanted], dtype=np.int64))


def paired_differences(old: Cell, new: Cell, *, settings: MetricSettings) -> list[Row]:
    """Return new - old of skews, parity differences, harm rates, Trident rates and accuracy, on the same images.

    Intervals and p are those of `plumbline.metrics.paired.comparisons`: a resample holds both answers to an image.
    Columns are `KEYS` where they differ from null, the estimate, `value_old` and `value_new`.
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
    models = {"model_old": old.model, "model_new": new.model}
    common = models | {"dataset": new.dataset, "condition": "before", "statistic": "estimate"}
    left_out = ("kind", "better")
    return [
        common | {renamed.get(name, name): value for name, value in row.items() if name not in left_out}
        for row in effects
    ]


def flips(old: Cell, new: Cell) -> pl.DataFrame:
    """Return the images whose top text differs between the sides, largest margin first, in `FLIP_SCHEMA`.

    Of the outcome suites, where one text wins an image: one counts where both sides have the same candidates, an image
    where both keep it.
    """
    frames = [pl.DataFrame(schema=FLIP_SCHEMA)]
    for name, after in new.logits.items():
        before = old.logits.get(name)
        if before is None or after.suite.family != "outcomes" or before.suite.hash != after.suite.hash:
            continue
        first, second = before.top(), after.top()
        at = np.flatnonzero((first != second) & old.rows(name) & new.rows(name))
        text, category = (
            np.array([getattr(each, part) for each in after.suite.candidates]) for part in ("text", "category")
        )
        scores = after.scores[:]
        margin = scores[at, second[at]] - scores[at, first[at]]
        frames.append(
            new.records.select("image_id", "path")[at]
            .with_columns(
                dataset=pl.lit(new.dataset),
                model_old=pl.lit(old.model),
                model_new=pl.lit(new.model),
                suite=pl.lit(name),
                text_old=text[first[at]],
                text_new=text[second[at]],
                category_old=category[first[at]],
                category_new=category[second[at]],
                margin=margin.astype(np.float64),
            )
            .select(list(FLIP_SCHEMA))
        )
    return pl.concat(frames).sort("margin", "image_id", "suite", descending=[True, False, False])


# --- A number of the answers of two sides, compared over pairs.


@dataclass(frozen=True)
class Sides:
    """The two sides that are compared, old and new, and the settings of the comparison."""

    old: LanguageCell
    new: LanguageCell
    settings: LanguageSettings

    def change_row(self, answers: pl.DataFrame, columns: Row, *, what: str, quantile: float | None = None) -> Row:
        """Return new - old of a mean or quantile of pairs, with interval and p by whole sets.

        Parameters
        ----------
        answers : DataFrame
            `unit, old, new`; what lacks one side is left out, and the reason says of how many.
        columns : dict
            What the number is of.
        what : str
            What is paired, such as `answers`.
        quantile : float, optional
            Level of the quantile to compare; the mean by default.

        Returns
        -------
        dict
            Columns as in `paired_differences`.
        """
        pairs, models = answers.drop_nulls(["old", "new"]), (self.old.model, self.new.model)
        old, new = (pairs[name].to_numpy() for name in ("old", "new"))
        change = paired_cluster_changes(
            old,
            new,
            codes(pairs["unit"]),
            quantile=quantile,
            resamples=self.settings.resamples,
            permutations=self.settings.permutations,
            rng=generator(self.settings.seed, "audit_diff", *models, *map(str, columns.values())),
            confidence=self.settings.confidence,
        )
        row = {name: value for name, value in answer_row(models[1], **columns).items() if name != "model"}
        row |= {"model_old": models[0], "model_new": models[1]}
        row |= {"value_old": _value(old, quantile), "value_new": _value(new, quantile)}
        return row | change.columns(unpaired_reason(pairs.height, answers.height, what=what))


def _value(values: NDArray[np.float64], quantile: float | None) -> float:
    if not values.size:
        return float("nan")
    return float(values.mean() if quantile is None else np.quantile(values, quantile))


# --- What two states of one generative model, or two models, say differently of the people of the same
# sets.

_PART = [*OF_SCORES]
_SET = [*_PART, "unit", "seed"]
_PICTURED = ["group", "unit", "seed"]


def paired_answers(old: LanguageCell, new: LanguageCell, *, settings: LanguageSettings) -> list[Row]:
    """Return new - old of Max* and of each group's scores, mean and 90th percentile, over the same sets x seeds.

    As `plumbline.language.instruction_effects.max_change_rows` compares an instruction with none: of Max* sets that are
    complete on both sides, of a group's scores the sets and seeds that both have. Columns are as in
    `paired_differences`.
    """
    rows: list[Row] = []
    sides = Sides(old, new, settings)
    with every_question(old) as before, every_question(new) as after:
        of_old = {(each.prompt, each.instruction): each for each in before}
        for question in after:
            if (counterpart := of_old.get((question.prompt, question.instruction))) is not None:
                rows += _of_sets(sides, counterpart, question)
                rows += _of_groups(sides, counterpart, question)
    return rows


def _of_sets(sides: Sides, before: ScoredAnswers, after: ScoredAnswers) -> Iterator[Row]:
    """Yield the rows of Max* of one prompt under one instruction."""
    old = set_spreads(before, sides.old.expected).spreads.select(*_SET, old="spread")
    new = set_spreads(after, sides.new.expected).spreads.select(*_SET, new="spread")
    for names, spreads in parts(with_counterparts(old, new, on=_SET, by=_PART), *_PART):
        scored = names[-1]
        if scored in MAX_METRICS:
            columns = _columns(names, after.columns) | {"metric": MAX_METRICS[scored], "definition": "paper"}
            yield from _changes(sides, spreads, columns)


def _of_groups(sides: Sides, before: ScoredAnswers, after: ScoredAnswers) -> Iterator[Row]:
    """Yield the rows of each group's scores of one prompt under one instruction."""
    known = [{names for names, _ in parts(each.kinds, *OF_SCORES)} for each in (before, after)]
    for names in sorted(known[0] & known[1]):
        if names[-1] not in SCORED_ATTRIBUTES:
            continue
        scores = [
            each.scores_of(names, *_PICTURED, "score").group_by(_PICTURED).agg(pl.col("score").mean().alias(side))
            for each, side in ((before, "old"), (after, "new"))
        ]
        columns = _columns(names, after.columns) | {"metric": names[-1], "definition": "score"}
        for (group,), answers in parts(with_counterparts(*scores, on=_PICTURED, by=["group"]), "group"):
            yield from _changes(sides, answers, columns | {"group": group})


def _columns(names: tuple[str, ...], question: Row) -> Row:
    dataset, attribute, scorer, _ = names
    return {"dataset": dataset, "attribute": attribute, "scorer": scorer} | question


def _changes(sides: Sides, answers: pl.DataFrame, columns: Row) -> Iterator[Row]:
    for statistic, quantile in STATISTICS.items():
        yield sides.change_row(answers, columns | {"statistic": statistic}, what="sets × seeds", quantile=quantile)


# --- How means of numbers of single answers changed: answers about the same image, to the same question
# and seed.

_MEANS_PART = ["dataset", "attribute"]
_ANSWER = [*_MEANS_PART, "group", "unit", "image_id", "seed"]
_OVERALL = ("refusal_rate", "empty_rate", "unreadable_rate")
"""Rates that are also computed over all groups."""

Number = tuple[str, str, str]
"""Metric, definition and statistic."""


def paired_answer_means(old: LanguageCell, new: LanguageCell, *, settings: LanguageSettings) -> list[Row]:
    """Return new - old of refusals, lengths, words of competence, ratings and salaries of every group.

    The same images, questions and seeds are compared, answer by answer, where both have the number; the reason says how
    many have no counterpart. Interval and p are by whole sets (`plumbline.statistics.cluster_bootstrap`); n: sets of
    pairs. Columns are as in `paired_differences`.
    """
    rows: list[Row] = []
    for prompt, instruction in sorted({*questions(old)} & {*questions(new)}):
        numbers = _numbers(prompt, instruction, settings)
        sides = [_answers(cell, prompt, instruction, numbers, side) for cell, side in ((old, "old"), (new, "new"))]
        for names, answers in parts(with_counterparts(*sides, on=_ANSWER, by=_MEANS_PART), *_MEANS_PART):
            question: Row = {"dataset": names[0], "attribute": names[1], "prompt": prompt}
            question["instruction"] = None if instruction == NO_INSTRUCTION else instruction
            for number in numbers:
                rows += _of_number(Sides(old, new, settings), answers, number, question)
    return rows


def _numbers(prompt: str, instruction: str, settings: LanguageSettings) -> Mapping[Number, pl.Expr]:
    numbers: dict[Number, pl.Expr] = dict(NUMBERS)
    if prompt in KEYWORD_PROMPTS and instruction == NO_INSTRUCTION:
        for (metric, definition), number in competence_numbers(settings).items():
            numbers[metric, definition, "mean"] = number
    if prompt in prompt_ids("numeric"):
        parsed, metric = parsed_answer(prompt), SALARY if prompt == SALARY else "rating"
        unreadable = parsed.struct.field("unreadable").is_not_null()
        numbers[metric, "paper", "mean"] = pl.when(~unreadable).then(parsed.struct.field("value"))
        numbers["unreadable_rate", "paper", "estimate"] = unreadable
    return numbers


def _answers(
    cell: LanguageCell, prompt: str, instruction: str, numbers: Mapping[Number, pl.Expr], side: str
) -> pl.DataFrame:
    """Return the numbers of each answer; null where it has none."""
    named = {_column(number, side): each.cast(pl.Float64).fill_nan(None) for number, each in numbers.items()}
    answers = known_answers(cell.generations, prompts=[prompt], instruction=instruction).with_columns(unit=UNIT)
    return answers.select(*_ANSWER, **named).unique(_ANSWER).collect(engine="streaming")


def _column(number: Number, side: str) -> str:
    return f"{' '.join(number)} {side}"


def _of_number(sides: Sides, answers: pl.DataFrame, number: Number, question: Row) -> Iterator[Row]:
    """Yield the row of every group, and of all where the metric has one."""
    metric, definition, statistic = number
    columns = question | {"metric": metric, "definition": definition, "statistic": statistic}
    values = answers.rename({_column(number, side): side for side in ("old", "new")})
    compared = [(columns | {"group": group}, of_group) for (group,), of_group in parts(values, "group")]
    if metric in _OVERALL:
        compared.append((columns, values))
    for of, pairs in compared:
        yield sides.change_row(pairs, of, what="answers")
