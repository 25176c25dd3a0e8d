"""Trident: whether some classes are taken for a probe word, such as “thief”, more often than others."""

from __future__ import annotations

import polars as pl

from plumbline.report.chapter import Chapter, Part
from plumbline.report.charts.chart import DIAMOND, DOWN, UP, VALENCE_COLOURS, Chart
from plumbline.report.charts.dots import Dot, Rows, Series, dots, tip_of
from plumbline.report.charts.estimates import MOST_MODELS
from plumbline.report.charts.heat import Cell, heat
from plumbline.report.evidence import finding_of, titled, tone_of
from plumbline.report.finding import Finding
from plumbline.report.inputs import ReportInputs
from plumbline.report.numbers import percent
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, defined, in_order, or_nan, where
from plumbline.report.vocabulary import VALENCES, attribute_title, group_title, probes, suite_title

SUITES = ("trident", "trident_mixed")
_SHAPES = {"negative": DOWN, "neutral": DIAMOND, "positive": UP}
_ACCURACY = "macro accuracy with the probe"


def probe_rates(table: pl.DataFrame, *, model: str, dataset: str, suite: str) -> Chart | None:
    """Draw the share of each class (rows) that is taken for each probe (columns), as a table; None without rows.

    Rows: `probe_rate` by the logit, and `macro_accuracy` with the probe among the candidates below it. Source: the
    bubble charts of the Trident study; its normalised colour is left out, since it compares no two models.
    """
    tested = where(table, dataset=dataset, suite=suite, condition="before", statistic="estimate")
    of_all = where(tested, metric="probe_rate", definition="logit")
    chosen, rates = where(tested, model=model), where(of_all, model=model).to_dicts()
    accuracy = where(chosen, metric="macro_accuracy", definition="paper").to_dicts()
    valence = dict(probes())
    cells = [_cell(row, row["group"], valence) for row in rates if row["probe"] in valence]
    if not cells:
        return None
    cells += [_cell(row, _ACCURACY, valence) for row in accuracy if row["probe"] in valence]
    classes = tuple(dict.fromkeys(group_title(row["group"]) for row in rates))
    return heat(
        f"trident-{suite}-{model}-{dataset}",
        f"{suite_title(suite)}: {model} on {dataset}",
        "The percentage of each class's images that are taken for a probe word instead of the class. Colours are those "
        "of all models on the dataset.",
        cells=cells,
        rows=Rows((("", classes), ("", (_ACCURACY,) if accuracy else ()))),
        columns=Rows(tuple((v, tuple(word for word, of in valence.items() if of == v)) for v in VALENCES)),
        axis="percent of the class's images taken for the probe",
        largest=of_all["value"].fill_nan(None).max(),  # type: ignore[arg-type]
        cell_width=42,
    )


def _cell(row: Row, name: str, valence: dict[str, str]) -> Cell:
    value, probe = or_nan(row["value"]), row["probe"]
    rate = name != _ACCURACY
    return Cell(
        row=group_title(name),
        column=probe,
        over=valence[probe],
        value=value if rate else float("nan"),
        text=_shown(value),
        tip=tip_of(row, f"{group_title(name)} → {probe}" if rate else f"{name} {probe}", unit="share"),
    )


def _shown(value: float) -> str:
    return percent(value).removesuffix("%") if defined(value) and value < 0.01 else f"{100 * value:.0f}"


def gaps_by_valence(table: pl.DataFrame, reading: Reading, models: tuple[str, ...], dataset: str) -> Chart | None:
    """Draw the largest difference between classes in being taken for a probe, by model, suite and valence.

    Rows: `probe_rate_gap`, `by_valence`: the mean over the five probes of a valence; None without rows.
    """
    rows = where(table, metric="probe_rate_gap", definition="by_valence", dataset=dataset, condition="before")
    suites = in_order(rows["suite"], SUITES)
    return dots(
        f"gap-{dataset}",
        f"Gap between classes by valence of the probe, {dataset}",
        "Each dot is the difference between the class most and the class least often taken for a probe.",
        marks=[
            Dot.of(
                row,
                f"{row['model']}, {row['event']} probes",
                row=row["model"],
                reading=reading,
                unit="share",
                panel=suite_title(row["suite"]),
                series=f"{row['event']} probes",
            )
            for row in rows.to_dicts()
        ],
        rows=Rows.plain(in_order(rows["model"], models)),
        panels=[suite_title(suite) for suite in suites],
        series=[Series(f"{name} probes", VALENCE_COLOURS[name], _SHAPES[name]) for name in VALENCES],
        unit="share",
        axis="largest minus smallest class share taken for the probe, mean over five probes",
        columns=2,
    )


def _parts(table: pl.DataFrame, inputs: ReportInputs) -> list[Part]:
    used = where(table, metric="probe_rate", definition="logit", suite=SUITES, condition="before")
    return [_part(where(table, dataset=dataset), inputs, dataset) for dataset in inputs.datasets_in(used["dataset"])]


def _part(own: pl.DataFrame, inputs: ReportInputs, dataset: str) -> Part:
    rates = (
        probe_rates(own, model=model, dataset=dataset, suite=suite)
        for suite in SUITES
        for model in _widest_first(own, inputs.models, suite)[:MOST_MODELS]
    )
    return Part.of(dataset, [gaps_by_valence(own, inputs.audit, inputs.models, dataset), *rates])


def _widest_first(own: pl.DataFrame, models: tuple[str, ...], suite: str) -> list[str]:
    """Return the models of a suite, the one with the widest gap for negative probes first."""
    gaps = where(own, metric="probe_rate_gap", suite=suite, event="negative", condition="before")
    widest = {row["model"]: row["value"] for row in gaps.to_dicts() if defined(row["value"])}
    names = in_order(where(own, metric="probe_rate", suite=suite, condition="before")["model"], models)
    return sorted(names, key=lambda name: -widest.get(name, 0.0))


def _single(table: pl.DataFrame, reading: Reading, models: tuple[str, ...], dataset: str) -> Chart | None:
    """Draw the first model's single-attribute test."""
    return probe_rates(table, model=models[0], dataset=dataset, suite="trident") if models else None


def gap_findings(table: pl.DataFrame, reading: Reading) -> list[Finding]:
    """Return for each model, dataset, suite and valence whether classes are taken for probes equally often."""
    rows = where(table, metric="probe_rate_gap", definition="by_valence", condition="before")
    return [_gap(row, reading) for row in rows.to_dicts()]


def _gap(row: Row, reading: Reading) -> Finding:
    # Whether it is a bias that one group is called “citizen” more often is for the reader to judge.
    tone = tone_of(row, reading, "bias" if row["event"] == "negative" else "difference")
    between = f"between {attribute_title(row['attribute'])} classes"
    gap = f"a gap in {row['event']} probe words {between}"
    return finding_of(
        row,
        reading,
        tone=tone,
        topic=("trident", row["dataset"], row["suite"], row["event"]),
        short=titled(tone, f"{row['event']} probe words: gap {between}" if tone != "none" else gap),
        share=True,
    )


CHAPTER = Chapter(
    anchor="trident",
    title="Trident: who is taken for a thief or a hero",
    lead="Each test adds one probe word to the dataset's own classes. A face that is taken for “thief” rather than for "
    "its class is a misreading; when that happens to some classes more than to others, it is a biased one. Mixed tests "
    "split the same predictions by the automatic gender label as well, whose errors the chapter on labels shows.",
    parts=_parts,
    findings=gap_findings,
    pictures={"trident": _single, "gap": gaps_by_valence},
    method=(
        (
            "Trident",
            "The classes of a dataset and one probe word compete for each image, 15 probes in turn, by the logit that "
            "the study's released code takes from the model's family (CLIP: the raw dot product; ALIGN: its image "
            "logits; BridgeTower: the image-text-matching logit; OWLv2: the mean class logit over the patches). Macro "
            "accuracy: the mean over classes of the share of images given their class. Normalised shares: min-max "
            "normalised to 0–100 within a model over everything it was tested on, single and mixed tests apart.",
        ),
        (
            "Gap by valence",
            "Mean share over the five probes of a valence, largest minus smallest class. Intervals: BCa; p: "
            "permutation.",
        ),
    ),
)
