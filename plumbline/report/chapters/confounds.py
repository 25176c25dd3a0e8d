"""Confounds: what pose, lighting and a smile do to what a model reads in a face, beside age."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import polars as pl

from plumbline.reasons import find
from plumbline.report.chapter import Chapter, Part
from plumbline.report.charts.chart import WIDTH, Chart, Spec, label, top_level
from plumbline.report.charts.dots import tip_of
from plumbline.report.charts.estimates import MOST_MODELS, STYLES, Words, estimates
from plumbline.report.evidence import evidence, finding_of, titled
from plumbline.report.finding import DIFFERENCES, Finding
from plumbline.report.inputs import ReportInputs
from plumbline.report.numbers import MINUS
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, defined, in_order, or_nan, significance_level, where
from plumbline.report.vocabulary import attribute_title, sentence_start

ORDER = ("pose", "lighting", "smiling", "age")
PROTECTED = ("gender", "race", "age")
VALENCES = ("positive", "negative")
SPLIT = ("pose", "smiling")
"""Confounds that are fitted below and above 0 apart."""
_HALF_LABELS = {"below": " (0 and below)", "above": " (0 and above)", "all": ""}
_WORDS: Mapping[str, str] = {"positive": "positive words", "negative": "negative words"}
_EVENTS: Mapping[str, Words] = {"event": lambda event: _WORDS.get(event, "")}


def slope_rows(table: pl.DataFrame) -> pl.DataFrame:
    """Return the slopes that are told: errors over the clusters, by valence, of the halves of a split confound."""
    rows = where(table, metric="confound_slope", definition="cluster", statistic="estimate", condition="before")
    halves = pl.col("attribute").is_in(list(SPLIT)) == (pl.col("group") != "all")
    return rows.filter(halves, pl.col("event").is_not_null())


def slopes(table: pl.DataFrame, reading: Reading, models: Iterable[str], dataset: str) -> Chart | None:
    """Draw the slope of the outcome along each confound (rows) by model (panels), a dot a valence of the words.

    Source: `confound_slope`, errors over the clusters.
    """
    rows = where(slope_rows(table), dataset=dataset)
    lines = [f"{attribute_title(row['attribute'])}{_HALF_LABELS[row['group']]}" for row in rows.to_dicts()]
    order = [f"{attribute_title(name)}{half}" for name in ORDER for half in _HALF_LABELS.values()]
    return estimates(
        f"slopes-{dataset}",
        f"Does a confound move what a model reads in a face? {dataset}",
        "The change of the outcome with one level of the confound, nothing else about the face changed. 0: the "
        "confound does not matter. The outcome is the cosine of a face with a word less its cosine without a word.",
        rows.with_columns(line=pl.Series(lines, dtype=pl.String)),
        row="line",
        panel="model",
        series="event",
        order={"line": order, "model": tuple(models), "event": VALENCES},
        words=_EVENTS,
        reading=reading,
        line=0.0,
        axis="slope: change of the outcome with one level",
        columns=3,
    )


def changes(table: pl.DataFrame, reading: Reading, models: Iterable[str], dataset: str) -> Chart | None:
    """Draw how much changing one attribute (rows) moves the outcome, by model (panels): confounds, then protected ones.

    Source: `attribute_change`, errors over the clusters.
    """
    rows = where(table, metric="attribute_change", definition="cluster", dataset=dataset, condition="before")
    kind = pl.when(pl.col("attribute").is_in(list(PROTECTED))).then(pl.lit("protected")).otherwise(pl.lit("confound"))
    return estimates(
        f"changes-{dataset}",
        f"Does a confound move a model as much as a protected attribute? {dataset}",
        "The mean absolute change between two faces of one seed that differ in one attribute alone, with its "
        "interval. A confound as far right as gender or race can hide, or feign, a bias in photographs.",
        rows.with_columns(kind=kind),
        row="attribute",
        heading="kind",
        panel="model",
        series="event",
        order={"attribute": (*ORDER, *PROTECTED), "model": tuple(models), "event": VALENCES, "kind": ("confound",)},
        words=_EVENTS,
        axis="mean absolute change of the outcome between two faces that differ in this alone",
        columns=3,
    )


def curves(
    table: pl.DataFrame, reading: Reading, models: Iterable[str], dataset: str, *, model: str | None = None
) -> Chart | None:
    """Draw the mean outcome of one model (the first that has it) at each level of a confound (panels), by valence.

    Source: `perception_by_level`, with the intervals of the shape (`within_sets`) where faces come in sets.
    """
    rows = where(table, metric="perception_by_level", dataset=dataset, condition="before")
    rows = rows.filter(pl.col("value").is_finite(), pl.col("definition") != "raw")
    model = model or next(iter(in_order(rows["model"], tuple(models))), None)
    rows = where(rows, model=model)
    centred = "within_sets" in rows["definition"]
    rows = where(rows, definition="within_sets") if centred else rows
    if rows.is_empty():
        return None
    whose = (
        "Intervals are of the shape of the line: every seed was first brought to the common mean."
        if centred
        else "Intervals are of the mean itself, and hold the differences between the seeds."
    )
    confounds = in_order(rows["attribute"], ORDER)
    data = [_point(row, confounds) for row in rows.to_dicts()]
    width = min(360, (WIDTH - 60) // len(confounds) - 26)
    return Chart(
        f"curves-{model}-{dataset}",
        f"What {model} reads in a face along each confound, {dataset}",
        "Each mark is the mean over the faces at one level and the words of one valence. A flat line is one that the "
        f"confound does not move. {whose}",
        top_level(
            {
                "data": {"values": data},
                "facet": {
                    "field": "panel",
                    "type": "ordinal",
                    "title": None,
                    "header": {"labelExpr": "panels[datum.value]", "labelAnchor": "start"},
                },
                "columns": 4,
                "resolve": {"scale": {"x": "independent"}},
                "spec": {"width": width, "height": 210, "layer": _curve_layers(_ends(rows), data)},
                "title": {
                    "text": ["across: level of the confound; upwards: cosine with the word, less the cosine without"],
                    "orient": "bottom",
                },
            },
            panels=[label(attribute_title(name)) for name in confounds],
        ),
    )


def _point(row: Row, confounds: list[str]) -> Spec:
    words = _WORDS.get(row["event"], row["event"])
    level = f"{float(row['group']):g}".replace("-", MINUS)
    point: Spec = {"panel": confounds.index(row["attribute"]), "level": float(row["group"]), "mean": row["value"]}
    if defined(row["ci_low"]) and defined(row["ci_high"]):
        point |= {"low": row["ci_low"], "high": row["ci_high"]}
    return point | {"words": words} | tip_of(row, f"{attribute_title(row['attribute'])} {level}, {words}")


def _ends(rows: pl.DataFrame) -> list[float]:
    """Return the ends of the scale: an interval of a few seeds is cut off rather than the curves flattened."""
    values = [*rows["value"]]
    ends = [v for name in ("value", "ci_low", "ci_high") for v in rows[name] if defined(v)]
    least, most = min(values), max(values)
    reach = 1.5 * (most - least) or 1e-3
    return [max(min(ends), least - reach), min(max(ends), most + reach)]


def _curve_layers(ends: list[float], data: Sequence[Mapping[str, Any]]) -> list[Spec]:
    x = {"field": "level", "type": "quantitative", "title": None, "scale": {"zero": False, "padding": 8}}
    x |= {"axis": {"grid": False, "tickCount": 4}}
    y: Spec = {"type": "quantitative", "title": None, "scale": {"domain": ends, "zero": False}}
    series: Spec = {"field": "words", "type": "nominal", "title": None, "legend": {"orient": "top"}}
    styles = [STYLES[name] for name in VALENCES]
    colour = {"color": series | {"scale": {"domain": [*_WORDS.values()], "range": [c for c, _ in styles]}}}
    shape = {"shape": series | {"scale": {"domain": [*_WORDS.values()], "range": [s for _, s in styles]}}}
    titles = ("of", "value", "interval", "n", "row")
    tips = [{"field": title, "type": "nominal", "title": title} for title in titles]
    mean = y | {"field": "mean"}
    layers: list[Spec] = [
        {"mark": {"type": "line", "strokeWidth": 1.5}, "encoding": {"x": x, "y": mean, **colour}},
        {
            "mark": {"type": "rule", "clip": True, "opacity": 0.6},
            "encoding": {"x": x, "y": y | {"field": "low"}, "y2": {"field": "high"}, **colour},
        },
        {
            "mark": {"type": "point", "filled": True},
            "encoding": {"x": x, "y": mean, **colour, **shape, "tooltip": tips},
        },
    ]
    return layers if any("low" in point for point in data) else [layers[0], layers[2]]


NOT_COMPARED = (
    "The slopes published for CLIP ViT-B/32 (table B.1) are not set beside these: the unit of its lighting and the "
    "signs of its pose slopes do not fit its own text, and its smiling rows look like those of the half below 0."
)
_HALVES = {"below": " below 0", "above": " above 0", "all": ""}


def _parts(table: pl.DataFrame, inputs: ReportInputs) -> list[Part]:
    used = where(table, metric="perception_by_level", condition="before")
    return [_part(where(table, dataset=dataset), inputs, dataset) for dataset in inputs.datasets_in(used["dataset"])]


def _part(own: pl.DataFrame, inputs: ReportInputs, dataset: str) -> Part:
    arguments = (own, inputs.audit, inputs.models, dataset)
    levels = where(own, metric="perception_by_level", condition="before")
    models = in_order(levels["model"], inputs.models)
    codes = levels["reason_codes"].drop_nulls().unique()
    few = {str(reason) for each in codes if (reason := find(each, "few_clusters"))}
    return Part.of(
        dataset,
        [slopes(*arguments), changes(*arguments), *(curves(*arguments, model=model) for model in models[:MOST_MODELS])],
        notes=[f"Read the intervals with care: {reason}." for reason in sorted(few)],
    )


def confound_findings(table: pl.DataFrame, reading: Reading) -> list[Finding]:
    """Return one finding a model, dataset and confound, and one on confounds against protected attributes."""
    common = {"definition": "cluster", "statistic": "estimate", "condition": "before"}
    findings = []
    by_confound = slope_rows(table).group_by("model", "dataset", "attribute", maintain_order=True)
    for (_, dataset, confound), lines in by_confound:
        findings.append(_slope(str(dataset), str(confound), lines.to_dicts(), reading))
    against = where(table, metric="confound_vs_protected", **common)
    for (_, dataset), subset in against.group_by("model", "dataset", maintain_order=True):
        findings.append(_comparison(str(dataset), subset.to_dicts(), reading))
    return findings


def _slope(dataset: str, confound: str, lines: list[Row], reading: Reading) -> Finding:
    known = [row for row in lines if defined(row["value"]) and significance_level(row) is not None]
    what, topic = attribute_title(confound), ("confound", dataset, confound)
    if not known:
        return _finding(lines[0], reading, "undefined", topic, titled("undefined", f"slope along {what}"))
    strongest = min(known, key=lambda row: (significance_level(row), -abs(row["value"])))
    evident = [row for row in known if evidence(row, reading)]
    if evident:
        tone = "bias" if confound in PROTECTED else "difference"
        line = f"{strongest['event']} words along {what}{_HALVES[strongest['group']]}"
        return _finding(strongest, reading, tone, topic, f"slope of {line}")
    return _finding(strongest, reading, "none", topic, titled("none", f"a slope along {what}"))


def _comparison(dataset: str, rows: list[Row], reading: Reading) -> Finding:
    known = [row for row in rows if defined(row["value"]) and significance_level(row) is not None]
    topic = ("confound size", dataset)
    if not known:
        return _finding(
            rows[0], reading, "undefined", topic, titled("undefined", "confounds against protected attributes")
        )
    more = [row for row in known if evidence(row, reading) and row["value"] > 0]
    largest = max(more or known, key=lambda row: row["value"])
    first, second = (attribute_title(largest[name]) for name in ("attribute", "reference_group"))
    if more:
        short = f"{first} moves {largest['event']} words more than {second}"
        return _finding(largest, reading, "difference", topic, short)
    return _finding(
        largest, reading, "none", topic, titled("none", "a confound that moves more than a protected attribute")
    )


def _finding(row: Row, reading: Reading, tone: str, topic: tuple[str, ...], short: str) -> Finding:
    low, high = or_nan(row["ci_low"]), or_nan(row["ci_high"])
    return finding_of(
        row,
        reading,
        tone=tone,
        topic=topic,
        short=sentence_start(short) if tone in DIFFERENCES else short,
        # The end of the interval that is nearest to no effect.
        strength=min(abs(low), abs(high)) if low * high > 0 else 0.0,
    )


METHOD = (
    (
        "Slope along a confound",
        "Least squares of the outcome on the level, every image and every one of the 32 ABC words a row; for smiling "
        "the paper fits the means per level instead. Pose and smiling are also fitted below and above 0 separately, 0 "
        "on both sides. The paper's errors take the 32 words of an image, and all pictures of one person, for "
        "independent; the intervals shown here do not: they are cluster-robust over the seeds, with t of seeds − 1 "
        f"degrees of freedom. {NOT_COMPARED}",
    ),
    (
        "Absolute change of an attribute",
        "Two faces of one seed that differ in this attribute alone: any two levels of a confound or of age at equal "
        "race and gender, or two races, or the two genders, at one level. The absolute difference of the outcome is "
        "averaged over the words of a valence, and over all such pairs. Table B.2 is not reproduced as printed: it "
        "does not say how faces were paired, and its rows for pose and smiling against gender have the same t for "
        "both valences.",
    ),
)

CHAPTER = Chapter(
    anchor="confounds",
    title="Confounds: pose, lighting, smiling, age",
    lead="CausalFace shows the same synthetic person again and again with one thing changed: pose, lighting, smile, or "
    "age. The first three say nothing about who a person is; where a model's reading of the face follows them, a "
    "difference between groups of photographs may be one of pose or light.",
    parts=_parts,
    findings=confound_findings,
    pictures={"confounds": curves},
    method=METHOD,
)
