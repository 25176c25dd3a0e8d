"""What the rows of the robustness family say, one finding a model, dataset and question."""

from __future__ import annotations

import math

import polars as pl

from plumbline.report.evidence import finding_of, interval_words
from plumbline.report.figures.wordings import TASK_TITLES, TEMPLATES, bias_rows, is_control, template_title
from plumbline.report.finding import Finding
from plumbline.report.numbers import number, p_value, percent
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, by, defined, or_nan, where

DEFAULT = "positive_minus_negative"


def robustness_findings(table: pl.DataFrame, reading: Reading) -> list[Finding]:
    """Return what wording does to the bias, what the neutral control shows, and from where on it harms."""
    found: list[Finding] = []
    for dataset in table["dataset"].unique().sort().to_list():
        own = where(table, dataset=dataset, condition="before")
        control = is_control(own, dataset)
        for model in own["model"].unique().sort().to_list():
            of_model = where(own, model=model)
            found += _control(of_model, dataset, reading) if control else _shift(of_model, dataset, reading)
            found += [] if control else _harm(of_model, reading)
        found += _order(own, dataset)
    return found


def _shift(rows: pl.DataFrame, dataset: str, reading: Reading) -> list[Finding]:
    shifts = where(rows, metric="template_shift", definition=DEFAULT, group=None).to_dicts()
    shifts = [row for row in shifts if defined(row["value"])]
    if not shifts:
        return []
    row = max(shifts, key=lambda r: (r["value"], r["event"]))
    means = where(bias_rows(rows, dataset), event=row["event"], definition=DEFAULT).to_dicts()
    told = ", ".join(
        f"{number(mean['value'])} for “{template_title(mean['probe'])}”"
        for mean in sorted(means, key=lambda m: _place(m["probe"]))
        if defined(mean["value"])
    )
    return [
        _finding(
            row,
            topic=("wording", dataset),
            short="Largest shift of the mean directional bias between wordings",
            sentence=f"{row['model']} on {dataset}: between wordings of the same prompts the mean directional bias "
            f"shifts by at most {number(row['value'])} cosine units ({_task(row)}; "
            f"{interval_words(row, reading)}): {told}.",
        )
    ]


def _control(rows: pl.DataFrame, dataset: str, reading: Reading) -> list[Finding]:
    means = [row for row in bias_rows(rows, dataset).to_dicts() if row["definition"] == DEFAULT]
    means = [row for row in means if defined(row["value"])]
    if not means:
        return []
    row = max(means, key=lambda r: (abs(r["value"]), r["event"], r["probe"]))
    alike = where(rows, metric="intra_set_cosine", statistic="estimate").to_dicts()
    seen = f" Their mean pairwise cosine is {number(alike[0]['value'])}." if alike else ""
    return [
        _finding(
            row,
            topic=("control", dataset),
            short="Largest directional bias of images that show no group",
            sentence=f"{row['model']} on {dataset}, images without any group: the directional bias furthest from 0 is "
            f"{number(row['value'])} ({_task(row)}, “{template_title(row['probe'])}”; "
            f"{interval_words(row, reading)}). That much of any bias is the metric's own.{seen}",
        )
    ]


def _harm(rows: pl.DataFrame, reading: Reading) -> list[Finding]:
    """Return the fullest account a task gives: the bin in which most are harmed, of those with enough images."""
    found = []
    bins = where(rows, metric="calibration_p_harm", definition="cosine")
    elbows = by(where(rows, metric="calibration_elbow", definition="cosine"), "event")
    for event in bins["event"].unique().sort().to_list():
        own = where(bins, event=event).to_dicts()
        full = [row for row in own if row["n"] >= reading.minimum_group and defined(row["value"])]
        if not full:
            continue
        row = max(full, key=lambda r: (r["value"], r["n"]))
        elbow = elbows.get((event,), {}).get("value")
        from_where = (
            f"From {number(elbow, digits=1)} on at least half are harmed"
            if defined(elbow)
            else "At no size of it are half of the images harmed"
        )
        found.append(
            _finding(
                row,
                tone="harm",
                topic=("calibration", row["dataset"], event),
                short=f"Largest share of harmful matches at one size of the {event} bias",
                sentence=f"{row['model']} on {row['dataset']}, {event}: of the images whose directional bias is in "
                f"{row['group']}, {percent(row['value'], row['n'])} have a harmful best match "
                f"({interval_words(row, reading, share=True)}). "
                f"{from_where}.",
                share=True,
            )
        )
    return found


def _order(rows: pl.DataFrame, dataset: str) -> list[Finding]:
    ranks = where(rows, metric="template_rank_correlation", definition=DEFAULT).to_dicts()
    ranks = [row for row in ranks if defined(row["value"])]
    if not ranks:
        return []
    row = min(ranks, key=lambda r: (r["value"], r["event"], r["group"]))
    one, other = (template_title(row[side]) for side in ("reference_group", "group"))
    kept = "keep their order" if row["value"] >= 1 - 1e-9 else "do not all keep their order"
    return [
        _finding(
            row,
            topic=("order", dataset),
            short="Lowest rank correlation of models between wordings",
            sentence=f"The {row['n']} models on {dataset} {kept} of directional bias under every wording: the lowest "
            f"rank correlation is {number(row['value'])} ({_task(row)}, “{one}” against “{other}”, "
            f"{p_value(row['p'])}).",
        )
    ]


def _finding(
    row: Row, *, topic: tuple[str, ...], short: str, sentence: str, tone: str = "robust", share: bool = False
) -> Finding:
    return finding_of(
        row,
        tone=tone,
        topic=topic,
        short=short,
        sentence=sentence,
        share=share,
        strength=math.fabs(or_nan(row["value"])),
    )


def _task(row: Row) -> str:
    return TASK_TITLES.get((row["event"], row["definition"]), str(row["event"]))


def _place(template: str) -> int:
    return TEMPLATES.index(template) if template in TEMPLATES else len(TEMPLATES)
