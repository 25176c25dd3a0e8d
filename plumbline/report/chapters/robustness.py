"""What the rows of the robustness family say, one finding a model, dataset and question."""

from __future__ import annotations

import math
from functools import partial

import polars as pl

from plumbline.report.chapter import Chapter, Part, drawn
from plumbline.report.evidence import finding_of, interval_words
from plumbline.report.figures.robustness import (
    TASK_TITLES,
    TASKS,
    TEMPLATES,
    bias_rows,
    bias_size_figure,
    control_figure,
    is_control,
    template_figure,
    template_title,
)
from plumbline.report.finding import Finding
from plumbline.report.inputs import ReportInputs
from plumbline.report.listings import Listing, estimate, share
from plumbline.report.numbers import bare_p, count, number, p_value, percent
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, by, defined, in_order, or_nan, where
from plumbline.report.vocabulary import attribute_title, group_title

DEFAULT = "positive_minus_negative"


def robustness_findings(table: pl.DataFrame, reading: Reading) -> list[Finding]:
    """Return what wording does to the bias, what the neutral control shows, and from where on it harms."""
    findings: list[Finding] = []
    for dataset in table["dataset"].unique().sort().to_list():
        of_dataset = where(table, dataset=dataset, condition="before")
        control = is_control(of_dataset, dataset)
        for model in of_dataset["model"].unique().sort().to_list():
            of_model = where(of_dataset, model=model)
            findings += _control(of_model, dataset, reading) if control else _shift(of_model, dataset, reading)
            findings += [] if control else _harm(of_model, reading)
        findings += _order(of_dataset, dataset)
    return findings


def _shift(rows: pl.DataFrame, dataset: str, reading: Reading) -> list[Finding]:
    shifts = where(rows, metric="template_shift", definition=DEFAULT, group=None).to_dicts()
    shifts = [row for row in shifts if defined(row["value"])]
    if not shifts:
        return []
    row = max(shifts, key=lambda r: (r["value"], r["event"]))
    means = where(bias_rows(rows, dataset), event=row["event"], definition=DEFAULT).to_dicts()
    listing = ", ".join(
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
            f"{interval_words(row, reading)}): {listing}.",
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
    findings = []
    bins = where(rows, metric="harm_by_bias_size", definition="cosine")
    elbows = by(where(rows, metric="bias_size_elbow", definition="cosine"), "event")
    for event in bins["event"].unique().sort().to_list():
        of_event = where(bins, event=event).to_dicts()
        full = [row for row in of_event if row["n"] >= reading.minimum_group and defined(row["value"])]
        if not full:
            continue
        row = max(full, key=lambda r: (r["value"], r["n"]))
        elbow = elbows.get((event,), {}).get("value")
        from_where = (
            f"From {number(elbow, digits=1)} on at least half are harmed"
            if defined(elbow)
            else "At no size of it are half of the images harmed"
        )
        findings.append(
            _finding(
                row,
                tone="harm",
                topic=("bias size", row["dataset"], event),
                short=f"Largest share of harmful matches at one size of the {event} bias",
                sentence=f"{row['model']} on {row['dataset']}, {event}: of the images whose directional bias is in "
                f"{row['group']}, {percent(row['value'], row['n'])} have a harmful best match "
                f"({interval_words(row, reading, share=True)}). "
                f"{from_where}.",
                share=True,
            )
        )
    return findings


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


# --- How robust the contrastive audit is: wording, harm by bias size, neutral control.

METRICS = ("directional_bias", "intra_set_cosine")


def _parts(table: pl.DataFrame, inputs: ReportInputs) -> list[Part]:
    used = where(table, metric=METRICS, condition="before")
    return [_part(table, inputs, dataset) for dataset in inputs.datasets_in(used["dataset"])]


def _part(table: pl.DataFrame, inputs: ReportInputs, dataset: str) -> Part:
    of_dataset = where(table, dataset=dataset, condition="before")
    arguments = (of_dataset, inputs.audit, inputs.models, dataset)
    scaled = partial(bias_size_figure, definition="scaled")
    return Part(
        title=dataset,
        pictures=drawn(f(*arguments) for f in (template_figure, control_figure, bias_size_figure)),
        details=drawn([scaled(*arguments)]),
        listings=[
            ("Directional bias and its shift between wordings", bias_listing(of_dataset, inputs.models, dataset)),
            ("Order of the models between wordings", order_listing(of_dataset)),
            ("Gap of the directional bias between groups under each wording", gap_listing(of_dataset, inputs.models)),
            ("Directional bias by group", group_listing(of_dataset, inputs.models, dataset)),
            ("Harm by size of the bias, in numbers", bias_size_listing(of_dataset, inputs.models)),
        ],
    )


def bias_listing(table: pl.DataFrame, models: tuple[str, ...], dataset: str) -> Listing:
    """List mean and spread of the directional bias under every wording, and the shift, a row a model and task."""
    means = by(bias_rows(table, dataset), "model", "event", "definition", "probe")
    spreads = by(
        where(table, metric="directional_bias", dataset=dataset, statistic="sd", group=None),
        "model", "event", "definition", "probe",
    )  # fmt: skip
    shifts = by(where(table, metric="template_shift", dataset=dataset, group=None), "model", "event", "definition")
    templates = in_order(pl.Series([key[3] for key in means], dtype=pl.String), TEMPLATES)
    rows = []
    for model in in_order(pl.Series([key[0] for key in means], dtype=pl.String), models):
        for task in (task for task in TASKS if any((model, *task, t) in means for t in templates)):
            estimates = [means.get((model, *task, template)) for template in templates]
            shift = shifts.get((model, *task))
            spread = spreads.get((model, *task, templates[0]))
            rows.append(
                (
                    model,
                    TASK_TITLES[task],
                    *(estimate(row) for row in estimates),
                    estimate(spread),
                    estimate(shift),
                    bare_p(shift["p"] if shift else None),
                    bare_p(shift["q"] if shift else None),
                    count(next((row["n"] for row in estimates if row), None)),
                    (shift["reason"] or "") if shift else "",
                )
            )
    heads = ("Model", "Task", *(f"“{template_title(name)}”" for name in templates))
    last = len(heads)
    heads = (*heads, "Spread (sd), first wording", "Largest shift", "p", "q", "n", "Note")
    return Listing(heads, rows, frozenset(range(2, last + 5)))


def order_listing(table: pl.DataFrame) -> Listing:
    """List the rank correlations of all models between wordings."""
    chosen = where(table, metric="template_rank_correlation").sort("event", "definition", "reference_group", "group")
    rows = [
        (
            TASK_TITLES.get((row["event"], row["definition"]), row["event"]),
            f"“{template_title(row['reference_group'])}” and “{template_title(row['group'])}”",
            estimate(row),
            bare_p(row["p"]),
            count(row["n"]),
            row["reason"] or "",
        )
        for row in chosen.to_dicts()
    ]
    heads = ("Task", "Wordings", "Rank correlation", "p (one-sided)", "Models", "Note")
    return Listing(heads, rows, frozenset({2, 3, 4}))


def gap_listing(table: pl.DataFrame, models: tuple[str, ...]) -> Listing:
    """List the gap between groups of the mean directional bias, a row a model, task and attribute."""
    gaps = by(where(table, metric="directional_bias_gap"), "model", "attribute", "event", "definition", "probe")
    templates = in_order(pl.Series([key[4] for key in gaps], dtype=pl.String), TEMPLATES)
    keys = dict.fromkeys(key[:4] for key in sorted(gaps, key=lambda k: (_model_place(k[0], models), k[1:])))
    rows = []
    for key in keys:
        estimates = [gaps.get((*key, template)) for template in templates]
        cells = [f"{estimate(row)}, q {bare_p(row['q'])}" if row else "–" for row in estimates]
        shown = next(row for row in estimates if row)
        title = TASK_TITLES.get(key[2:], key[2])
        rows.append((key[0], title, attribute_title(key[1]), *cells, count(shown["n"]), shown["reason"] or ""))
    heads = ("Model", "Task", "Attribute", *(f"“{template_title(name)}”" for name in templates), "n", "Note")
    return Listing(heads, rows, frozenset(range(3, 4 + len(templates))), "The note is of the first wording.")


def group_listing(table: pl.DataFrame, models: tuple[str, ...], dataset: str) -> Listing:
    """List the mean directional bias of every group under the first wording, a row a model and group."""
    rows = where(table, metric="directional_bias", dataset=dataset, statistic="estimate").drop_nulls("group")
    templates = in_order(rows["probe"], TEMPLATES)
    if not templates:
        return Listing((), [])
    means = by(where(rows, probe=templates[0]), "model", "attribute", "group", "event", "definition")
    keys = dict.fromkeys(key[:3] for key in sorted(means, key=lambda k: _model_place(k[0], models)))
    shown = [
        (
            model,
            attribute_title(attribute),
            group_title(group),
            *(estimate(means.get((model, attribute, group, *task))) for task in TASKS),
            count(next(row["n"] for key, row in means.items() if key[:3] == (model, attribute, group))),
        )
        for model, attribute, group in keys
    ]
    heads = ("Model", "Attribute", "Group", *(TASK_TITLES[task] for task in TASKS), "n")
    note = f"Wording: “{template_title(templates[0])}”. The others are in the metric table."
    return Listing(heads, shown, frozenset(range(3, 8)), note)


def bias_size_listing(table: pl.DataFrame, models: tuple[str, ...]) -> Listing:
    """List elbow and largest share of harmful matches, a row a model and task, by cosines and by softmax mass."""
    elbows = by(where(table, metric="bias_size_elbow"), "model", "event", "definition")
    largest = by(where(table, metric="max_harm_by_bias_size"), "model", "event", "definition")
    keys = dict.fromkeys(key[:2] for key in sorted(elbows, key=lambda k: (_model_place(k[0], models), k[1])))
    rows = []
    for model, event in keys:
        cells, notes = [], []
        for definition in ("cosine", "scaled"):
            elbow, most = (rows_of.get((model, event, definition)) for rows_of in (elbows, largest))
            cells += [_elbow(elbow), share(most), count(most["n"]) if most else "–"]
            notes += [f"{definition}: {most['reason']}"] if most and most["reason"] else []
        rows.append((model, event, *cells, "; ".join(notes)))
    by_cosine = ("Elbow", "Largest share harmed", "n of that bin")
    heads = ("Model", "Task", *by_cosine, *(f"{head} (softmax mass)" for head in by_cosine), "Note")
    return Listing(heads, rows, frozenset(range(2, 8)))


def _elbow(row: Row | None) -> str:
    if row is None:
        return "–"
    return f"from {row['value']:.1f}" if defined(row["value"]) else "none"


def _model_place(model: str, models: tuple[str, ...]) -> tuple[int, str]:
    return (models.index(model) if model in models else len(models), model)


CHAPTER = Chapter(
    anchor="robustness",
    title="How robust: prompts, size of the bias, neutral control",
    lead="Directional bias says how much nearer an image lies to a task's positive prompts than to its negative ones, "
    "in cosine units. Does another wording of the same prompts change it? How large must it be before harmful "
    "descriptions win? And how large is it where an image shows nobody in particular?",
    parts=_parts,
    findings=robustness_findings,
    pictures={"templates": template_figure, "bias_size": bias_size_figure, "control": control_figure},
    method=(
        (
            "Directional bias",
            "Mean cosine to a task's positive prompts minus mean cosine to its negative ones, for each image; for "
            "crime, the descriptions of people against crime and animals. Intervals of its mean and spread are "
            "linearised; where images come in sets, sets are the units.",
        ),
        (
            "Shift between wordings",
            "The largest difference of the mean between two wordings, image by image; p tests that no wording "
            "differs from another (Hotelling's T²). Where it does not reject, the interval reaches 0.",
        ),
        (
            "Harm by size of the bias",
            "Images are sorted by the size of their bias into bins; in each, the share whose best match is harmful, "
            "with Wilson's interval. The elbow is the first bin in which it reaches one half. Cosines differ by "
            "little, so that most bins may be empty: softmax mass at the model's own temperature spreads them.",
        ),
        (
            "Order of the models",
            "Spearman's rank correlation of the models' mean bias under two wordings; p is one-sided and exact "
            "up to nine models.",
        ),
    ),
)
