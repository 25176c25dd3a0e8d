"""The few numbers of a cell that MLflow's charts show, under names that are the same before and after a mitigation."""

import math
import re

import polars as pl

from plumbline.catalog.schema import BEFORE, BEFORE_TEST_ROWS
from plumbline.catalog.suites import MIXED_SUITES
from plumbline.digests import digest_bytes
from plumbline.language.registry import LANGUAGE_METRICS
from plumbline.metrics.family import EVERY
from plumbline.metrics.paired.comparisons import SMOOTHED_SKEW
from plumbline.metrics.registry import METRICS
from plumbline.report.scorecard import BY_ID, headline_numbers

# One number per question; words of a trait and single templates are only in the tables.
_HEADLINES = {
    **{traits.name: traits.headline for traits in METRICS.values() if traits.headline},
    "macro_accuracy_gain": "test_rows",
}
_PARTS = ("metric", "suite", "event", "attribute", "group", "probe")
_TEST_ROWS, _JUDGED_ROWS = "test_rows", "judged_rows"
ON_JUDGED = "On judged images"
"""First part of the names of the numbers of the scorecard where they are not of all images."""


def scorecard_numbers(rows: pl.DataFrame) -> dict[str, float]:
    """Return the numbers of the scorecard that metric rows of one condition answer, by what is measured.

    As in `Crime labels by race: percent more often`, in the unit of the name.

    With four digits: there is no room for more in a list of runs.
    """
    if rows.is_empty():
        return {}
    return {tracked_name(name, blank=" "): float(f"{value:.4g}") for name, value in headline_numbers(rows).items()}


def judged_numbers(frame: pl.DataFrame, condition: str = BEFORE) -> dict[str, float]:
    """Return the same on the images on which mitigations of texts are judged, before one and after it alike.

    Parameters
    ----------
    frame : DataFrame
        Metric rows of the cell under all conditions, of which only those without a mitigation may be of all images.
    condition : str
        `before`, or the id of a mitigation of texts.
    """
    fewer = frame.filter(pl.col("condition") == BEFORE_TEST_ROWS)
    rows = frame.filter(pl.col("condition") == condition)
    if condition == BEFORE:
        rows = pl.concat([rows.join(fewer, on="suite", how="anti", nulls_equal=True), fewer])
    return {f"{ON_JUDGED}/{title}": value for title, value in scorecard_numbers(rows).items()}


def sections() -> tuple[str, ...]:
    """Return the first parts of the names of all numbers that are sent, under which MLflow's page folds its charts."""
    costs = ("zero_shot_accuracy", "retrieval_recall", "retrieval_r_precision")
    of_language = (name for name, traits in LANGUAGE_METRICS.items() if traits.headline)
    return (ON_JUDGED, *sorted({*_HEADLINES, *costs, *of_language}), "loss", "questions_with_evidence")


def headline_metrics(frame: pl.DataFrame, condition: str = BEFORE, *, of_texts: bool = True) -> dict[str, float]:
    """Return the finite headline numbers of a cell by a readable key, such as `max_skew/crime/crime/race`.

    Beside each skew stands the smoothed one, `max_skew/crime/crime/race/smoothed`; alone where pairs of groups are left
    out, since a mean over other pairs says nothing beside that of another run.

    Parameters
    ----------
    frame : DataFrame
        Metric rows of the cell under all conditions.
    condition : str
        `before`, or a mitigation's id.
    of_texts : bool
        Whether that mitigation acts on texts. Numbers on the images on which those are judged end in `/judged_rows`
        where these are not all images, before and after alike. A logit adjustment's own end in `/test_rows`; those
        before it on the same images are of `before_test_rows`.
    """
    fewer = frame.filter(pl.col("condition") == BEFORE_TEST_ROWS)["suite"].unique().to_list()
    wanted = (BEFORE, BEFORE_TEST_ROWS) if condition == BEFORE else (condition,)
    metrics: dict[str, float] = {}
    for row in _headlines(frame.filter(pl.col("condition").is_in(wanted))).iter_rows(named=True):
        if row["value"] is not None and math.isfinite(row["value"]):
            named = [str(row[part]) for part in _PARTS if row[part]]
            if row["definition"] == SMOOTHED_SKEW:
                named.append(SMOOTHED_SKEW)
            if row["definition"].startswith(_TEST_ROWS):
                named.append(row["definition"])
            elif condition != BEFORE and not of_texts:
                named.append(_TEST_ROWS)
            elif row["suite"] in fewer and (row["condition"] == BEFORE_TEST_ROWS or condition != BEFORE) and of_texts:
                named.append(_JUDGED_ROWS)
            metrics[tracked_name("/".join(named))] = row["value"]
    return metrics


def headlines_of_answers(frame: pl.DataFrame, *, first_scorer: str | None) -> dict[str, float]:
    """Return the same of a generative model, such as `max_toxicity/faces/race_gender/pretend/p90`.

    Parameters
    ----------
    frame : DataFrame
        Metric rows under one instruction.
    first_scorer : str, optional
        The scorer whose numbers are told.
    """
    headline = {traits.name: traits.headline for traits in LANGUAGE_METRICS.values() if traits.headline}
    rows = of_scorer(frame, first_scorer).filter(
        pl.col("definition") == pl.col("metric").replace_strict(headline, default=None, return_dtype=pl.String),
        pl.col("occupation").is_null(),
        # What each group got is in the tables: hundreds of charts hold a browser for minutes.
        pl.col("group").is_null(),
    )
    parts = ("metric", "dataset", "attribute", "prompt", "scorer", "event", "statistic")
    return {
        tracked_name("/".join(str(row[part]) for part in parts if row[part])): row["value"]
        for row in rows.iter_rows(named=True)
        if row["value"] is not None and math.isfinite(row["value"])
    }


def of_scorer(frame: pl.DataFrame, scorer: str | None) -> pl.DataFrame:
    """Return metric rows that rest on no scores, or on those of one scorer."""
    return frame.filter(pl.col("scorer").is_null() | pl.col("scorer").eq_missing(pl.lit(scorer, pl.String)))


_UNTRACKED = re.compile(r"[^\w\-./: ]", re.ASCII)


def tracked_name(name: str, *, blank: str = "_") -> str:
    """Return a name that MLflow takes: other signs as `_`, and a digest where letters were lost by that.

    MLflow takes a name for a path, in which no part may be empty or of dots alone.
    """
    plain = name.replace("×", "x").replace("@", "_at_").replace(" ", blank)
    known = "/".join(part if part.strip(".") else "_" for part in _UNTRACKED.sub("_", plain).split("/"))
    return known if known == plain else f"{known}-{digest_bytes(name.encode())[:6]}"


def parity_differences(frame: pl.DataFrame) -> dict[str, float]:
    """Return the finite parity differences of a cell without a mitigation, by key."""
    rows = frame.filter(
        pl.col("value").is_finite(), metric="parity_difference", definition="max_minus_min", condition=BEFORE
    ).filter(~pl.col("suite").is_in(MIXED_SUITES))
    return {
        tracked_name("/".join(str(row[part]) for part in _PARTS if row[part])): row["value"]
        for row in rows.iter_rows(named=True)
    }


def before_test_rows(effects: pl.DataFrame) -> dict[str, float]:
    """Return the numbers before a logit adjustment on the images that it was not fitted on, by key.

    Such as `harm_rate/crime/crime/test_rows/before`, beside that of the adjustment without `before`. Of a skew it is
    the smoothed one, which both sides have.

    Parameters
    ----------
    effects : DataFrame
        Paired effects of the adjustment in the cell.
    """
    metrics: dict[str, float] = {}
    for row in effects.filter(pl.col("kind").is_in(["axis", "harm"])).iter_rows(named=True):
        known = row["value_before"] is not None and math.isfinite(row["value_before"])
        headline = SMOOTHED_SKEW if row["metric"] == "max_skew" else _HEADLINES.get(row["metric"])
        if known and row["definition"] == headline:
            named = [str(row[part]) for part in ("metric", "suite", "event", "attribute") if row[part]]
            named += [SMOOTHED_SKEW] * (row["definition"] == SMOOTHED_SKEW)
            metrics[tracked_name("/".join([*named, _TEST_ROWS, "before"]))] = row["value_before"]
    return metrics


def cost_metrics(effects: pl.DataFrame, condition: str = BEFORE) -> dict[str, float]:
    """Return what mitigations may cost, accuracy and retrieval, by key: `zero_shot_accuracy/macro`.

    Parameters
    ----------
    effects : DataFrame
        Paired effects of the cell; for `before` of the first mitigation of texts, which are all judged on the same
        images, or where there is none of the first that has them. After a mitigation the value before, on its own
        images, stands beside: `zero_shot_accuracy/macro/before`.
    """
    costs = effects.filter(pl.col("kind") == "cost")
    if condition == BEFORE:
        costs = costs.sort(pl.col("method") == "logit_adjustment", maintain_order=True)
        wanted = {"value_before": ""}
    else:
        wanted = {"value_after": "", "value_before": "/before"}
    metrics: dict[str, float] = {}
    for row in costs.iter_rows(named=True):
        name = tracked_name(f"{row['metric']}/{row['definition']}")
        for column, suffix in wanted.items():
            if row[column] is not None and math.isfinite(row[column]):
                metrics.setdefault(name + suffix, row[column])
    return metrics


_NEVER, _OTHER_PAIRS = "event_never_happens", "undefined_pairs"


def _has(code: str) -> pl.Expr:
    return pl.col("reason_codes").str.contains(code, literal=True).fill_null(value=False)


def _of_other_pairs() -> pl.Expr:
    return (pl.col("metric") == "max_skew") & _has(_OTHER_PAIRS)


def _headlines(frame: pl.DataFrame) -> pl.DataFrame:
    headline = pl.col("metric").replace_strict(_HEADLINES, default=None, return_dtype=pl.String)
    return frame.filter(
        (
            ((pl.col("definition") == headline) & ~_of_other_pairs())
            | ((pl.col("metric") == "max_skew") & (pl.col("definition") == SMOOTHED_SKEW) & ~_has(_NEVER))
            | (headline == EVERY)
            | ((pl.col("metric") == "macro_accuracy") & pl.col("definition").str.starts_with(_TEST_ROWS))
        )
        & pl.col("statistic").is_in(["estimate", "mean"])
        & ((pl.col("suite") != "perception") | pl.col("event").is_not_null() | (pl.col("metric") == "confound_slope"))
        & ((pl.col("suite") != "templates") | pl.col("group").is_null())
        # A chart a probe and class set would be a quarter of all charts; the probe is that of the scorecard's accuracy.
        & ((pl.col("metric") != "macro_accuracy") | (pl.col("probe") == BY_ID["accuracy"].probe))
        & ~pl.col("suite").is_in(MIXED_SUITES)
    )
