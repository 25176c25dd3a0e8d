"""What mitigations give and cost: their charts, a table probe by probe, and the findings about them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence

import polars as pl

from plumbline.metrics.paired.mitigations import IMPROVED, NO_EVIDENCE, UNDEFINED, WORSENED
from plumbline.mitigations.retrieval import METRICS
from plumbline.mitigations.settings import METHODS, method_title
from plumbline.report.chapter import Chapter, Part
from plumbline.report.charts.chart import BLUE, DOWN, SLATE, UP, VERMILION, Chart, label
from plumbline.report.charts.dots import Dot, Rows, Series, dots
from plumbline.report.charts.estimates import MOST_MODELS, drawn_models
from plumbline.report.finding import Finding
from plumbline.report.inputs import ReportInputs
from plumbline.report.listings import Listing, share
from plumbline.report.numbers import bare_p, count, interval, percent, points, with_interval
from plumbline.report.reading import Reading
from plumbline.report.recommendation import advice, recommended
from plumbline.report.rows import Row, by, defined, in_order, or_nan, where
from plumbline.report.transfer import (
    BLOCKS,
    COSTS,
    JUDGED,
    Tried,
    block_of,
    both_values,
    change,
    change_interval,
    detectable_change,
    is_gap,
    place,
    row_title,
    row_words,
    tried,
    undefined_rows,
    with_compared_skew,
)
from plumbline.report.vocabulary import VALENCES, probes, suite_title

# --- What each mitigation changes, one panel a mitigation.

VERDICTS = {
    IMPROVED: Series("improved", BLUE, "circle"),
    WORSENED: Series("worsened", VERMILION, UP),
    NO_EVIDENCE: Series("no evidence of a change", SLATE, "square"),
}
_STATES = {IMPROVED: "evidence", WORSENED: "evidence", NO_EVIDENCE: "no_evidence"}


def changes(candidates: Sequence[Tried], *, model: str, dataset: str) -> list[Chart]:
    """Draw the change of max skews, then of shares of images, by mitigation (panels), with its paired interval.

    Rows: bias transfer, of the axes the gaps alone (`plumbline.report.transfer.is_gap`). Skews, harm rates and rates
    of probes are better left of the line, accuracy and retrieval right of it.

    Parameters
    ----------
    candidates : sequence of Tried
        What was tried on the model and dataset.
    """
    rows = [(one, row) for one in candidates for row in one.rows if _is_shown(row)]
    panels = [one.condition for one in candidates]
    drawn = []
    for in_points, name, title in (
        (False, "skew", "Max skew"),
        (True, "share", "Harm, probes, accuracy and retrieval"),
    ):
        titles = {block.name: block.title for block in BLOCKS if block.share is in_points}
        titled = [(one, row) for one, row in rows if block_of(row) in titles]
        blocks = _blocks([row for _, row in titled], titles)
        drawn.append(
            dots(
                f"mitigations-{name}-{model}-{dataset}",
                f"{title}: what each mitigation changes, {model} on {dataset}",
                "One panel a mitigation; each dot is the number with it minus the number without it, on the same "
                "images, with its paired interval. Skews, harm rates and rates of the probes are better further left, "
                "accuracy and retrieval further right. A number at the end of a scale lies beyond it.",
                marks=_with_gaps(
                    [_change(row, one, titles[str(block_of(row))]) for one, row in titled], blocks, panels
                ),
                rows=blocks,
                panels=panels,
                series=tuple(VERDICTS.values()),
                unit="share" if in_points else "number",
                line=0.0,
                axis="change in points" if in_points else "change of max skew",
                overlaid=True,
                extremes=in_points,
            )
        )
    return [chart for chart in drawn if chart]


def _is_shown(row: Row) -> bool:
    return block_of(row) is not None and (block_of(row) != "axis" or is_gap(row))


def _blocks(rows: Sequence[Row], titles: dict[str, str]) -> Rows:
    ordered = sorted(rows, key=place)
    return Rows(
        tuple(
            (title, tuple(dict.fromkeys(row_title(row) for row in ordered if block_of(row) == name)))
            for name, title in titles.items()
            if any(block_of(row) == name for row in ordered)
        )
    )


def _with_gaps(marks: list[Dot], rows: Rows, panels: Sequence[str]) -> list[Dot]:
    """Say of each row and mitigation without a dot that it was not judged."""
    there, series = {(one.heading, one.row, one.panel) for one in marks}, VERDICTS[NO_EVIDENCE].name
    return marks + [
        Dot(row=name, heading=heading, panel=panel, series=series, value=math.nan, words="not judged")
        for heading, name in rows.lines
        for panel in panels
        if marks and name is not None and (heading, name, panel) not in there
    ]


def _change(row: Row, one: Tried, heading: str) -> Dot:
    verdict = row["verdict"]
    known = verdict != UNDEFINED and all(defined(row[name]) for name in ("value", "value_before", "value_after"))
    return Dot(
        row=row_title(row),
        heading=heading,
        panel=one.condition,
        series=VERDICTS.get(verdict, VERDICTS[NO_EVIDENCE]).name,
        state=_STATES.get(verdict),  # type: ignore[arg-type]
        value=row["value"] if known else math.nan,
        low=or_nan(row["ci_low"]) if known else math.nan,
        high=or_nan(row["ci_high"]) if known else math.nan,
        tip={
            "of": f"{one.condition}, {row_words(row)}",
            "value": change(row),
            "interval": change_interval(row),
            "before → after": both_values(row),
            "q": bare_p(row["q"]),
            "n": count(row["n"]),
            "verdict": str(verdict).replace("_", " "),
        },
    )


# --- Macro accuracy before and after the logit adjustment, probe by probe.


def adjustments(table: pl.DataFrame, dataset: str, suite: str, *, leaking: tuple[str, ...] = ()) -> list[str]:
    """Return the ids of the logit adjustments that a suite was judged with; those that leak come last."""
    gains = where(table, metric="macro_accuracy_gain", definition="test_rows", dataset=dataset, suite=suite)
    return sorted(in_order(gains["condition"], ()), key=lambda name: name in leaking)


def on_test_rows(table: pl.DataFrame, metric: str, *, condition: str) -> pl.DataFrame:
    """Return a metric before and after an adjustment, on the images that it was not fitted on.

    Adjustments with other training rows than the first have test rows, and so a definition, of their own.
    """
    keys = ["model", "dataset", "suite", "definition"]
    rows = where(table, metric=metric, condition=("before", condition)).filter(
        pl.col("definition").str.starts_with("test_rows")
    )
    return rows.join(where(rows, condition=condition).select(keys).unique(), on=keys, how="semi")


_BETTER, _WORSE = Series("after, better", BLUE), Series("after, worse", VERMILION, DOWN)


def adjustment(
    table: pl.DataFrame, models: tuple[str, ...], dataset: str, suite: str, *, condition: str
) -> Chart | None:
    """Draw macro accuracy with each probe (rows) after a logit adjustment, a stroke where it was before, by model.

    Rows: `macro_accuracy` on test rows, mean over trials; the tip has the standard deviation over trials.

    Parameters
    ----------
    condition : str
        Id of the logit adjustment, as in `adjustments`.
    """
    rows = on_test_rows(where(table, dataset=dataset, suite=suite), "macro_accuracy", condition=condition)
    after, left_out = drawn_models(where(rows, condition=condition, statistic="mean"), models)
    values, valence = by(rows, "model", "probe", "condition", "statistic"), dict(probes())
    marks = []
    for row in after.to_dicts():
        model, probe = row["model"], row["probe"]
        old = or_nan(values.get((model, probe, "before", "mean"), {}).get("value"))
        spread = values.get((model, probe, condition, "sd"), {}).get("value")
        if probe in valence and defined(old) and defined(row["value"]):
            better = row["value"] >= old
            tip = {
                "of": f"{model}, {probe}",
                "value": f"{percent(old)} before, {percent(row['value'])} after",
                "sd over trials": percent(spread),
            }
            place_ = {"row": probe, "heading": valence[probe], "panel": model}
            marks.append(
                Dot(
                    **place_,
                    value=row["value"],
                    low=min(old, row["value"]),
                    high=max(old, row["value"]),
                    second=old,
                    series=(_BETTER if better else _WORSE).name,
                    tip=tip,
                )
            )
    return dots(
        f"adjustment-{condition}-{suite}-{dataset}",
        f"Probe by probe before and after {condition}: {suite_title(suite)}, {dataset}",
        f"A line a probe, from the accuracy before (stroke) to the accuracy after (dot), a panel a model.{left_out}",
        marks=marks,
        rows=Rows(tuple((v, tuple(word for word, of in valence.items() if of == v)) for v in VALENCES)),
        panels=in_order(after["model"], models),
        series=(_BETTER, _WORSE),
        unit="share",
        zero=False,
        axis="macro accuracy over the classes on test rows, mean over trials (stroke: before)",
        overlaid=True,
    )


def adjustment_findings(table: pl.DataFrame, reading: Reading) -> list[Finding]:
    """Return the gain of every logit adjustment that does not leak, one a model, dataset and suite."""
    gains = where(
        table, metric="macro_accuracy_gain", definition="test_rows", statistic="mean"
    ).filter(pl.col("value").is_finite(), ~pl.col("condition").is_in(list(reading.leaking)))  # fmt: skip
    keys = ("dataset", "suite", "condition", "model")
    groups = sorted(gains.group_by(*keys), key=lambda item: str(item[0]))
    return [_adjustment(*map(str, key), rows=rows.sort("value")) for key, rows in groups]


def _adjustment(dataset: str, suite: str, condition: str, model: str, *, rows: pl.DataFrame) -> Finding:
    values = rows["value"].to_numpy()
    mean, worst = float(values.mean()), rows.row(0, named=True)
    lowered = int((values < 0).sum())
    # The probes share their images, so their spread is a range and no interval of the mean.
    ends = f"range over probes {points(values.min()).removesuffix(' points')} to {points(values.max())}"
    verb = "raises" if mean > 0 else "lowers"
    sentence = (
        f"{model} on {dataset} ({suite_title(suite)}): the logit adjustment ({condition}) {verb} macro accuracy on "
        f"test rows by {points(abs(mean)).lstrip('+')} on average over {count(rows.height)} probes ({ends})."
    )
    if lowered:
        sentence += f" It lowers it for {lowered} of them, most for “{worst['probe']}” ({points(worst['value'])})."
    return Finding(
        tone="gain" if mean > 0 else "cost",
        topic=("adjustment", dataset, suite, condition),
        model=model,
        dataset=dataset,
        short=f"Macro accuracy gained by {condition} ({suite_title(suite)})",
        sentence=sentence,
        value=mean,
        value_text=points(mean),
        interval_text=ends,
        strength=abs(mean),
    )


# --- What mitigations change, as tables: all numbers, and one line a model.

SIGNS = {IMPROVED: "✓ improved", WORSENED: "✗ worsened", NO_EVIDENCE: "no evidence", UNDEFINED: "undefined"}
"""Verdict -> how a table writes it: the sign tells it without colour."""


def _sign(row: Row) -> str:
    """Return the verdict of a comparison; beside no evidence, which change would have been found."""
    sign, least = SIGNS.get(row["verdict"], str(row["verdict"])), detectable_change(row)
    return f"{sign}; detectable: {least}" if row["verdict"] == NO_EVIDENCE and least else sign


def transfer_listing(rows: pl.DataFrame) -> Listing:
    """List every comparison of a checkpoint and dataset, with further readings of the axes, by mitigation."""
    shown = [
        (
            row["condition"],
            method_title(row["method"]),
            row_title(row),
            f"{row['metric']} · {row['definition']}".replace("_", " "),
            both_values(row),
            change(row),
            change_interval(row),
            bare_p(row["q"]),
            count(row["n"]) if row["n"] is not None else "–",
            _sign(row),
            row["reason"] or "",
        )
        for row in sorted(
            with_compared_skew(rows).to_dicts(), key=lambda r: (r["condition"], block_of(r) is None, place(r))
        )
    ]
    heads = ("Mitigation", "Method", "What", "Metric", "Before → after", "Change", "Interval of the change", "q", "n")
    return Listing((*heads, "Verdict", "Note"), shown, frozenset({4, 5, 6, 7, 8}))


def training_listing(names: Collection[str], trained_on: Sequence[tuple[str, str]]) -> Listing:
    """List what mitigations were trained on."""
    return Listing(("Mitigation", "Trained on"), [row for row in trained_on if row[0] in names])


def retrieval_listing(rows: pl.DataFrame) -> Listing:
    """List what mitigations change in retrieval on image-text pairs, from rows of recall and of what it gained."""
    keys = ("model", "condition", "event", "definition", "k")
    recall = {tuple(row[key] for key in keys): row for row in where(rows, metric="retrieval_recall").to_dicts()}
    shown = []
    for row in where(rows, metric="retrieval_recall_gain").sort(keys).to_dicts():
        place = tuple(row[key] for key in keys)
        before, after = recall[place[0], "before", *place[2:]], recall[place]
        gained = with_interval(points(row["value"]), interval(row["ci_low"], row["ci_high"], scale=100))
        shown.append(
            (
                row["model"], row["condition"], row["event"], f"{_DIRECTIONS[row['definition']]}, recall@{row['k']}",
                share(before), share(after), gained, bare_p(row["q"]), count(row["n"]),
            )
        )  # fmt: skip
    heads = ("Model", "Mitigation", "Image-text pairs", "What", "Before", "After", "Gained", "q", "Images")
    return Listing(heads, shown, frozenset({4, 5, 6, 7, 8}), note="No mitigation was trained on one of these images.")


_DIRECTIONS = {"image_to_text": "captions of an image", "text_to_image": "the image of a caption"}


_COUNTED = (
    "Counted are Max Skews and harm rates, then gaps of which only another reading (parity difference, smoothed skew, "
    "a variant of the suite) says that they change; “costs” where accuracy or retrieval clearly falls."
)


def overview_listing(by_model: Sequence[Sequence[Tried]], conditions: Sequence[str]) -> Listing:
    """List for each model which mitigation to use, and how many axes and harm rates each changes."""
    rows = []
    for candidates in by_model:
        chosen, by_name = recommended(candidates), {one.condition: one for one in candidates}
        cells = [_counted(by_name[name]) if name in by_name else "–" for name in conditions]
        rows.append((candidates[0].model, chosen.condition if chosen else "none", *cells))
    heads = ("Model", "To use", *(label(name, longest=40) for name in conditions))
    return Listing(heads, rows, note=_COUNTED)


def glance_listing(own: Sequence[Tried]) -> Listing:
    """List of each mitigation of a model how many bias measures it changes, what it costs most, and how it works."""
    rows = []
    for one in own:
        most = sorted(one.of(*COSTS, verdict=WORSENED), key=lambda row: -abs(row["value"]))
        known = "none seen" if one.of(*COSTS) else "not measured"
        cost = f"{row_title(most[0])} {change(most[0])}" if most else known
        how = METHODS[one.method].takes if one.method in METHODS else "–"
        rows.append((one.name, _counted(one), cost, how, "; ".join(_caveats(one))))
    return Listing(("Mitigation", "Bias measures", "Largest cost", "How", "Note"), rows, note=_COUNTED)


def _caveats(one: Tried) -> Iterator[str]:
    if one.leaking:
        yield "for comparison only: images that it is judged on had a say in its fit"
    if one.disputed:
        yield f"readings disagree: {row_words(one.disputed[0])} gets worse"
    if undefined := undefined_rows(one.rows):
        yield f"undefined comparisons: {count(len(undefined))}"


def _counted(one: Tried) -> str:
    judged = one.of(*JUDGED)
    if not judged:
        return "not judged"
    better, worse = (len(one.of(*JUDGED, verdict=verdict)) for verdict in (IMPROVED, WORSENED))
    better_by, worse_by = (len(one.by_other_readings(verdict)) for verdict in (IMPROVED, WORSENED))
    others = f"; by other readings {better_by} better, {worse_by} worse" if better_by or worse_by else ""
    costs = "; costs" if one.of(*COSTS, verdict=WORSENED) else ""
    return f"{better} better, {worse} worse of {len(judged)}{others}{costs}"


# --- What helps, at what cost, and what it makes worse: every mitigation that was tried on each
# checkpoint.


def _parts(table: pl.DataFrame, inputs: ReportInputs) -> list[Part]:
    parts = []
    transfer = inputs.transfer
    known = [table["dataset"]] + ([transfer["dataset"]] if transfer is not None else [])
    for dataset in inputs.datasets_in(pl.concat(known)):
        by_model = _by_model(transfer, inputs, dataset) if transfer is not None else []
        if len(by_model) > 1:
            parts.append(_overview(by_model, dataset))
        parts += [_of_model(of_model, inputs) for of_model in by_model[:MOST_MODELS]]
        parts += _probe_by_probe(table, inputs, dataset)
        parts += _on_pairs(table, dataset)
    return parts + _trained(transfer, inputs)


def _on_pairs(table: pl.DataFrame, dataset: str) -> list[Part]:
    """Return what mitigations cost on image-text pairs."""
    rows = table.filter(pl.col("metric").is_in(METRICS), dataset=dataset)
    if rows.is_empty():
        return []
    listings = [("Recall before and after", retrieval_listing(rows))]
    return [Part(f"{dataset}: retrieval on image-text pairs", listings=listings)]


def _trained(transfer: pl.DataFrame | None, inputs: ReportInputs) -> list[Part]:
    tried = set() if transfer is None else set(transfer["condition"])
    listing = training_listing(tried, inputs.audit.trained_on)
    return [Part("What each was trained on", tables=[("Trained on", listing)])] if listing.rows else []


def _by_model(transfer: pl.DataFrame, inputs: ReportInputs, dataset: str) -> list[list[Tried]]:
    of_dataset = transfer.filter(pl.col("dataset") == dataset)
    return [
        tried(of_dataset, dataset=dataset, model=model, leaking=inputs.audit.leaking)
        for model in in_order(of_dataset["model"], inputs.models)
    ]


def _overview(by_model: list[list[Tried]], dataset: str) -> Part:
    names = list(dict.fromkeys(one.condition for of_model in by_model for one in of_model))
    return Part(title=f"{dataset}: every model", tables=[("At a glance", overview_listing(by_model, names))])


def _of_model(own: list[Tried], inputs: ReportInputs) -> Part:
    model, dataset = own[0].model, own[0].dataset
    part = Part.of(f"{dataset}: {model}", changes(own, model=model, dataset=dataset), notes=[advice(own, inputs.audit)])
    part.tables.append(("Each at a glance", glance_listing(own)))
    if inputs.transfer is not None:
        rows = inputs.transfer.filter(model=model, dataset=dataset)
        part.listings.append(("Every comparison in numbers", transfer_listing(rows)))
    return part


def _probe_by_probe(table: pl.DataFrame, inputs: ReportInputs, dataset: str) -> list[Part]:
    """Return the accuracy with each probe before and after the logit adjustments; those that leak come last."""
    charts = [
        adjustment(table, inputs.models, dataset, suite, condition=name)
        for suite in ("trident", "trident_mixed", "trident_composite")
        for name in adjustments(table, dataset, suite, leaking=inputs.audit.leaking)
    ]
    if not charts:
        return []
    notes = ["What it costs: probes that get worse."]
    leaks = [name for name in inputs.audit.leaking if any(chart and f" {name}:" in chart.title for chart in charts)]
    notes += [f"{name}: test accuracy had a say in the fit; for comparison only." for name in leaks]
    return [Part.of(f"{dataset}: the logit adjustment, probe by probe", charts, notes=notes)]


def _first_adjustment(table: pl.DataFrame, reading: Reading, models: tuple[str, ...], dataset: str) -> Chart | None:
    """Draw the first logit adjustment of a dataset on the single-attribute suite."""
    ids = adjustments(table, dataset, "trident", leaking=reading.leaking)
    return adjustment(table, models, dataset, "trident", condition=ids[0]) if ids else None


CHAPTER = Chapter(
    anchor="mitigations",
    title="What helps, at what cost, and what it makes worse",
    lead="Each mitigation was applied to the models that the audit file tries it on, and judged on the same images "
    "before and after: on gaps between groups (by gender and race in crime, communion and agency words; in words of "
    "your own, and by attributes of your own), on how often labels are harmful, on the Trident probes, and on what it "
    "costs in accuracy and retrieval. A mitigation that lowers one bias may raise another. “No "
    "evidence” means that chance alone may explain a difference; it never means that there is none.",
    parts=_parts,
    findings=adjustment_findings,
    pictures={"adjustment": _first_adjustment},
    method=(
        (
            "Bias transfer",
            "The number with the mitigation minus the number without it, on the same images, none of which the "
            "mitigation was fitted on. Intervals: paired bootstrap, an image's answers before and after are drawn "
            "together. q: Benjamini–Hochberg for one mitigation at a time, over all models and datasets, within a "
            "metric and definition.",
        ),
        (
            "Improved, worsened, no evidence",
            "Improved or worsened: q is below the significance level, and the difference points that way. Lower is "
            "better for skews, parity differences, harm rates and rates of the probes; higher is better for accuracy "
            "and retrieval. Else there is no evidence, which is not evidence of no difference. A mitigation is "
            "recommended where it improves one of these gaps or a harm rate, worsens no axis and no "
            "harm rate, and costs no accuracy or retrieval; among several, the one that improves most gaps.",
        ),
        (
            "What a mitigation costs",
            "Zero-shot accuracy on the dataset's own labels, over images (micro) and as the mean over classes "
            "(macro); macro accuracy with one probe among the labels, mean over probes; how often an image's caption, "
            "or where images have none a sentence made of its labels such as “a photo of a Black woman, 20-29 years "
            "old” (a label sentence: it asks for what a mitigation may be meant to blur), "
            "is the nearest to it (recall@1) or among the five nearest (recall@5); and how often an image is among the "
            "nearest to its caption (R-precision). Where the audit file names image-text pairs under `retrieval`: how "
            "often one of an image's captions is among the k nearest to it, and an image among the k nearest to its "
            "caption, on pairs that no mitigation was trained on.",
        ),
        *((method.title, method.works) for method in METHODS.values()),
    ),
)
