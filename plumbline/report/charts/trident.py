"""Trident: how often a class is taken for a probe word, and the gap between classes by the valence of the probe."""

from __future__ import annotations

import polars as pl

from plumbline.report.charts.chart import DIAMOND, DOWN, UP, VALENCE_COLOURS, Chart
from plumbline.report.charts.dots import Dot, Rows, Series, dots, tip_of
from plumbline.report.charts.heat import Cell, heat
from plumbline.report.numbers import percent
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, defined, in_order, or_nan, where
from plumbline.report.vocabulary import VALENCES, group_title, probes, suite_title

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
