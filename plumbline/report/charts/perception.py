"""Social perception: associations of groups with scales of words, markedness, valences, and who is ranked first."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import polars as pl

from plumbline.report.charts.chart import Chart
from plumbline.report.charts.dots import Rows, tip_of
from plumbline.report.charts.estimates import drawn_models, estimates
from plumbline.report.charts.heat import Cell, heat
from plumbline.report.evidence import evidence
from plumbline.report.numbers import MINUS, count, number
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, by, defined, in_order, largest_first, or_nan, where
from plumbline.report.vocabulary import DIMENSIONS, attribute_title, event_title, group_title, is_composite

SCALES = (
    "warmth", "competence", "agency_positive", "agency_negative",
    "belief_positive", "belief_negative", "communion_positive", "communion_negative",
)  # fmt: skip
ATTRIBUTES = ("gender", "race", "age_group", "physical")
OTHERS = "others"
EVERYONE = "all images"
AVERAGED = "mean_over_templates"
_BLOCKS: tuple[tuple[str, Mapping[str, str]], ...] = (
    ("", {"warmth": "warmth", "competence": "compet."}),
    *((name, {f"{name}_positive": "positive", f"{name}_negative": "negative"}) for name in DIMENSIONS),
    (f"positive {MINUS} negative words", {dimension: dimension for dimension in DIMENSIONS}),
)  # fmt: skip
_PLACES = {event: (over, title) for over, names in _BLOCKS for event, title in names.items()}


def scale_title(scale: str, suite: str | None = None) -> str:
    """Return a scale in words: `warmth`, `agency, negative words`; that of an own suite with its suite."""
    dimension, _, pole = scale.rpartition("_")
    is_pole = pole in ("positive", "negative") and dimension
    return f"{event_title(dimension, suite)}, {pole} words" if is_pole else event_title(scale, suite)


def comparison_title(row: Row) -> str:
    """Return who is compared: `man − woman`, `Black` (against all others)."""
    group = group_title(row["group"])
    return (
        group if row["reference_group"] in (None, OTHERS) else f"{group} {MINUS} {group_title(row['reference_group'])}"
    )


def scale_rows(table: pl.DataFrame, dataset: str, *, metric: str = "sc_weat_effect") -> pl.DataFrame:
    """Return the effect sizes of the scales on a dataset, with the p-values that evidence goes by.

    They are those of the test that respects clusters where images come in clusters, of the two-sided one elsewhere.
    """
    rows = where(table, metric=metric, dataset=dataset, condition="before", probe=None)
    of_clusters = where(rows, definition="cluster_t")
    return where(rows, definition="two_sided") if of_clusters.is_empty() else of_clusters


def by_scale(
    rows: pl.DataFrame, reading: Reading, models: Iterable[str], *, name: str, title: str, description: str, axis: str
) -> Chart | None:
    """Draw estimates of groups (rows, by model) by scale of words (columns) as a table of numbers.

    Darker is further from 0, to either side; a frame and an asterisk are evidence of a difference. None without a row.
    """
    rows, left_out = drawn_models(rows.filter(pl.col("event").is_in(list(_PLACES))), tuple(models))
    order = {name: place for place, name in enumerate(in_order(rows["attribute"], ATTRIBUTES))}
    ordered = sorted(rows.to_dicts(), key=lambda row: (order[row["attribute"]], row["group"]))
    largest = max((abs(row["value"]) for row in ordered if defined(row["value"])), default=0.0)
    cells = [_of_scale(row, reading, largest) for row in ordered]
    blocks = tuple(
        (model, tuple(dict.fromkeys(cell.row for cell in cells if cell.heading == model)))
        for model in in_order(rows["model"], tuple(models))
    )
    present = {(cell.over, cell.column) for cell in cells}
    columns = tuple(
        (over, tuple(name for name in names.values() if (over, name) in present)) for over, names in _BLOCKS
    )
    return heat(
        name,
        title,
        description + left_out,
        cells=cells,
        rows=Rows(blocks),
        columns=Rows(tuple((over, names) for over, names in columns if names)),
        axis=axis,
        cell_width=58,
    )


def _of_scale(row: Row, reading: Reading, largest: float) -> Cell:
    who, value, evident = comparison_title(row), or_nan(row["value"]), evidence(row, reading)
    over, column = _PLACES[row["event"]]
    # `old` can be a group of either.
    named = f"{who} ({attribute_title(row['attribute'])})" if row["attribute"] in ("age_group", "physical") else who
    return Cell(
        heading=row["model"],
        row=named,
        over=over,
        column=column,
        value=largest if math.isinf(value) else abs(value),
        text="–" if math.isnan(value) else f"{number(value, decimals=2)}{'*' if evident else ''}",
        framed=evident,
        tip=tip_of(row, f"{row['model']}, {attribute_title(row['attribute'])}, {who}, {scale_title(row['event'])}"),
    )


def associations(table: pl.DataFrame, reading: Reading, models: Iterable[str], dataset: str) -> Chart | None:
    """Draw with which words a model associates whom: SC-WEAT and WEAT effect sizes by model, group and scale.

    Source: `sc_weat_effect` by scale and `weat_effect` by dimension, of Caliskan et al. 2017.
    """
    rows = pl.concat([scale_rows(table, dataset, metric=metric) for metric in ("sc_weat_effect", "weat_effect")])
    return by_scale(
        rows,
        reading,
        models,
        name=f"associations-{dataset}",
        title=f"Who is associated with what, {dataset}",
        description="The difference between the mean cosines of two groups of faces with the words of a scale, in "
        "standard deviations: one group against the other where there are two, each against all others where there "
        "are more. Above 0 the group lies closer to the words. The last columns are of positive less negative words.",
        axis="effect size (SC-WEAT, WEAT), in standard deviations; framed and *: evidence of a difference",
    )


def association_intervals(
    table: pl.DataFrame, reading: Reading, models: Iterable[str], dataset: str, *, model: str
) -> Chart | None:
    """Draw the SC-WEAT effect sizes of one model with their intervals, by group (rows) and scale (panels)."""
    rows = where(scale_rows(table, dataset), model=model)
    return estimates(
        f"association-intervals-{model}-{dataset}",
        f"Associations with their intervals: {model} on {dataset}",
        "The effect sizes of the table above, with their intervals.",
        rows.with_columns(comparison=pl.Series([comparison_title(row) for row in rows.to_dicts()], dtype=pl.String)),
        row="comparison",
        heading="attribute",
        panel="event",
        order={"event": SCALES, "attribute": ATTRIBUTES},
        words={"event": scale_title},
        reading=reading,
        line=0.0,
        axis="SC-WEAT effect size, in standard deviations (right: the group lies closer to the words)",
    )


def strongest_first(table: pl.DataFrame, models: tuple[str, ...], dataset: str) -> list[str]:
    """Return the models with associations on a dataset, the one with the largest effect first."""
    return largest_first(scale_rows(table, dataset), models)


# --- Markedness: which groups a model takes for granted, and which have to be named.


def markedness(table: pl.DataFrame, reading: Reading, models: Iterable[str], dataset: str) -> Chart | None:
    """Draw the share of each group's faces (rows) that is closer to the prompt without its name, by model (panels).

    Source: `markedness`, averaged over the templates.
    """
    rows = where(table, metric="markedness", definition=AVERAGED, dataset=dataset, condition="before")
    return estimates(
        f"markedness-{dataset}",
        f"Who has to be named, {dataset}",
        "The share of a group's faces that lie closer to the prompt without the group's name, averaged over four "
        "templates, with its interval. Far right: the group is what a person is taken to be.",
        rows.with_columns(pl.col("value", "ci_low", "ci_high") / 100),
        row="group",
        heading="attribute",
        panel="model",
        order={"attribute": ATTRIBUTES, "model": tuple(models)},
        unit="share",
        axis="share of faces closer to “a person” than to the prompt that names their group (left: marked)",
    )


def valence_correlations(table: pl.DataFrame, reading: Reading, models: Iterable[str], dataset: str) -> Chart | None:
    """Draw the correlation of positive and negative words by group (rows), and by model and dimension (columns).

    Source: `valence_correlation`, of all images and of gender × race, or of single attributes without a crossing.
    """
    rows = where(table, metric="valence_correlation", dataset=dataset, condition="before")
    rows, left_out = drawn_models(rows, tuple(models))
    names, attributes = in_order(rows["model"], tuple(models)), in_order(rows["attribute"], ATTRIBUTES)
    attributes = [name for name in attributes if is_composite(name)] or attributes
    rows = rows.filter(pl.col("attribute").is_null() | pl.col("attribute").is_in(attributes))
    groups: list[str] = []
    for attribute in attributes:
        groups += [group_title(group) for group in in_order(where(rows, attribute=attribute)["group"], ())]
    cells = [_correlation(row, reading) for row in rows.to_dicts() if defined(row["value"])]
    return heat(
        f"valences-{dataset}",
        f"Do positive and negative words go together? {dataset}",
        "Pearson's correlation, over a group's faces, of the mean cosine with the positive words and with the "
        "negative words of a dimension. Near 1 a face that is close to the one is close to the other: read both poles "
        "together. In brackets: groups with fewer "
        f"than {reading.minimum_group} images.{left_out}",
        cells=cells,
        rows=Rows.plain([EVERYONE, *groups]),
        columns=Rows(tuple((name, tuple(in_order(rows["event"], DIMENSIONS))) for name in names)),
        axis="correlation of the mean cosines with positive and with negative words",
        largest=1.0,
        cell_width=max(40, min(62, 560 // max(1, len(names) * len(DIMENSIONS)))),
    )


def _correlation(row: Row, reading: Reading) -> Cell:
    group = EVERYONE if row["group"] is None else group_title(row["group"])
    text = number(row["value"], decimals=2)
    return Cell(
        over=row["model"],
        column=row["event"],
        row=group,
        value=max(0.0, row["value"]),
        text=text if row["n"] >= reading.minimum_group else f"({text})",
        tip=tip_of(row, f"{row['model']}, {group}, {row['event']}"),
    )


# --- Rankings: whose faces come first when all are ranked by the words of a scale.

RANKED, EQUAL = "ranked", "equal"
"""Desired shares: those of the ranked set, which p is about, and equal ones, which the paper takes."""
AGAINST = {RANKED: "the share of all ranked faces", EQUAL: "an equal share for every group"}
_WHOLE = {
    "max_skew_at_k": ("The most favoured group among the first k", "MaxSkew@k (0: every group has its desired share)"),
    "ndkl": ("Whole rankings", "NDKL (0: every prefix of the ranking has the desired shares)"),
}


def ranking_rows(
    table: pl.DataFrame, dataset: str, metric: str, definition: str, *, statistic: str = "estimate"
) -> pl.DataFrame:
    """Return the rows of a metric for the scales of a dataset; with `statistic="chance"` what random rankings give."""
    rows = where(table, metric=metric, definition=definition, dataset=dataset, condition="before")
    rows = where(rows, statistic=statistic, probe=None)
    return rows if statistic == "chance" else rows.drop_nulls("event")


def skew_at_k(
    table: pl.DataFrame, reading: Reading, models: Iterable[str], dataset: str, *, definition: str = RANKED
) -> Chart | None:
    """Draw who comes first: Skew@k by model and group (rows) and scale (columns). Source: `skew_at_k`."""
    rows = ranking_rows(table, dataset, "skew_at_k", definition)
    k = next(iter(rows["k"].drop_nulls()), None)
    return by_scale(
        rows,
        reading,
        models,
        name=f"rankings-{definition}-{dataset}",
        title=f"Who comes first, {dataset}" + (", against equal shares" if definition == EQUAL else ""),
        description="Faces are ranked by how well the words of a scale fit them. The number is the logarithm of a "
        f"group's share among the {count(k)} best over {AGAINST[definition]}: 0.69 is twice as many as desired, "
        "−∞ none.",
        axis=f"Skew@k against {AGAINST[definition]}; framed and *: evidence of a difference",
    )


def ranking_spread(
    table: pl.DataFrame,
    reading: Reading,
    models: Iterable[str],
    dataset: str,
    *,
    metric: str = "ndkl",
    definition: str = RANKED,
) -> Chart | None:
    """Draw MaxSkew@k or NDKL by model (rows) and scale (panels), with what random rankings give behind each dot.

    Source: `max_skew_at_k` or `ndkl`; the stroke is the mean over random rankings, the band holds 95% of them.
    """
    rows = ranking_rows(table, dataset, metric, definition)
    chance = ranking_rows(table, dataset, metric, definition, statistic="chance")
    random = by(chance, "model", "attribute")
    expected = [random.get((row["model"], row["attribute"]), {}) for row in rows.to_dicts()]
    title, axis = _WHOLE[metric]
    return estimates(
        f"{metric}-{definition}-{dataset}",
        f"{title}, {dataset}",
        f"Each dot is a model's value against {AGAINST[definition]}, with its interval. It is above 0 by chance too: "
        "the stroke is the mean over random rankings of the same groups, the pale band holds 95% of them.",
        rows.with_columns(
            pl.Series(name, [row.get(column) for row in expected], dtype=pl.Float64)
            for name, column in (("second", "value"), ("span_low", "ci_low"), ("span_high", "ci_high"))
        ),
        row="model",
        heading="attribute",
        panel="event",
        order={"model": tuple(models), "attribute": ATTRIBUTES, "event": SCALES},
        words={"event": scale_title},
        reading=reading,
        axis=axis,
    )
