"""What a logit adjustment gives and costs, probe by probe: a table and the findings about it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import polars as pl

from plumbline.metrics.paired.mitigations import IMPROVED, NO_EVIDENCE, UNDEFINED, WORSENED
from plumbline.mitigations.retrieval import METRICS
from plumbline.mitigations.settings import METHODS, method_title
from plumbline.report.chapter import Chapter, Part
from plumbline.report.charts.chart import Chart, label
from plumbline.report.charts.estimates import MOST_MODELS
from plumbline.report.charts.mitigations import adjustment, adjustments, changes
from plumbline.report.finding import Finding
from plumbline.report.inputs import ReportInputs
from plumbline.report.listings import Listing, share
from plumbline.report.numbers import bare_p, count, interval, points, with_interval
from plumbline.report.reading import Reading
from plumbline.report.recommendation import advice, foremost, recommended
from plumbline.report.rows import Row, in_order, where
from plumbline.report.transfer import (
    COSTS,
    JUDGED,
    Tried,
    block_of,
    both_values,
    change,
    change_interval,
    detectable_change,
    place,
    row_title,
    row_words,
    tried,
    undefined_rows,
)
from plumbline.report.vocabulary import suite_title


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
        for row in sorted(rows.to_dicts(), key=lambda r: (r["condition"], block_of(r) is None, place(r)))
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


def overview_listing(by_model: Sequence[Sequence[Tried]], conditions: Sequence[str]) -> Listing:
    """List for each model which mitigation to use, and how many axes and harm rates each changes."""
    rows = []
    for candidates in by_model:
        chosen, by_name = recommended(candidates), {one.condition: one for one in candidates}
        cells = [_counted(by_name[name]) if name in by_name else "–" for name in conditions]
        rows.append((candidates[0].model, chosen.condition if chosen else "none", *cells))
    heads = ("Model", "To use", *(label(name, longest=40) for name in conditions))
    note = "Counted are bias measures; “costs” where accuracy or retrieval clearly falls."
    return Listing(heads, rows, note=note)


def glance_listing(own: Sequence[Tried]) -> Listing:
    """List of each mitigation of a model how many bias measures it changes, what it costs most, and how it works."""
    rows = []
    for one in own:
        most = foremost(one.of(*COSTS, verdict=WORSENED), 1)
        cost = f"{row_title(most[0])} {change(most[0])}" if most else "–"
        how = METHODS[one.method].takes if one.method in METHODS else "–"
        rows.append((one.name, _counted(one), cost, how, "; ".join(_caveats(one))))
    return Listing(("Mitigation", "Bias measures", "Largest cost", "How", "Note"), rows)


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
    better, worse = len(one.of(*JUDGED, verdict=IMPROVED)), len(one.worsened)
    costs = ", costs" if one.of(*COSTS, verdict=WORSENED) else ""
    return f"{better} better, {worse} worse of {len(judged)}{costs}"


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
    lead="Each mitigation was applied to each model and judged on the same images as before: on the six contrastive "
    "metrics (gender and race, in crime, communion and agency words), on how often labels are harmful, on the Trident "
    "probes, and on what it costs in accuracy and retrieval. A mitigation that lowers one bias may raise another. “No "
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
            "recommended where it improves one of the six contrastive metrics or a harm rate, worsens no axis and no "
            "harm rate, and costs no accuracy or retrieval; among several, the one that improves most of the six.",
        ),
        (
            "What a mitigation costs",
            "Zero-shot accuracy on the dataset's own labels, over images (micro) and as the mean over classes "
            "(macro); macro accuracy with one probe among the labels, mean over probes; how often an image's caption "
            "is the nearest to it (recall@1) or among the five nearest (recall@5); and how often an image is among the "
            "nearest to its caption (R-precision). Where the audit file names image-text pairs under `retrieval`: how "
            "often one of an image's captions is among the k nearest to it, and an image among the k nearest to its "
            "caption, on pairs that no mitigation was trained on.",
        ),
        *((method.title, method.works) for method in METHODS.values()),
    ),
)
