"""The Trident family: what one loaded word does to the classes of a dataset."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.metrics.cell import Cell
from plumbline.metrics.equal_opportunity import equal_opportunity_gap
from plumbline.metrics.families.equal_opportunity_rows import equal_opportunity_rows
from plumbline.metrics.families.trident_rows import trident_rows
from plumbline.metrics.family import MetricFamily
from plumbline.metrics.measures import on_counts
from plumbline.metrics.settings import MetricSettings
from plumbline.metrics.traits import Measure, MetricTraits
from plumbline.metrics.trident import normalise_probe_rates, probe_rate_gap, trident_scores
from plumbline.tables.schema import metric_frame

_DESCRIPTION = """
Trident Probe Testing: what happens when one loaded word, such as thief, person or hero, joins the true
classes as a possible answer. For each of 15 probes: accuracy over all images, by class and averaged over
classes, and P(class → probe), the share of a class that the model hands to the probe; the same for
classes crossed with automatic gender labels; and the gap between groups by the probes' valence. Without a
probe: how often each class is recognised in each group of the true labels, and the gap (equal opportunity).
Every number has its sample size and a 95% interval, gaps a permutation p-value.
"""


def _on_trident(field: str) -> Measure:
    def measure(responses: NDArray[np.float64], groups: NDArray[np.int64], g: int) -> NDArray[np.float64]:
        return np.asarray(getattr(trident_scores(responses, groups, n_classes=g), field))

    return measure


def _normalised(responses: NDArray[np.float64], groups: NDArray[np.int64], g: int) -> NDArray[np.float64]:
    rates = trident_scores(responses, groups, n_classes=g).probe_rate
    common = {
        "model": "m",
        "dataset": "d",
        "suite": "trident",
        "condition": "before",
        "statistic": "estimate",
    }
    rows = [
        common | {"metric": "probe_rate", "definition": "logit", "value": rate} for rate in rates.tolist()
    ]
    table = normalise_probe_rates(metric_frame(rows))
    return table["value"].to_numpy()[:g]


def _rows(cell: Cell, *, settings: MetricSettings) -> pl.DataFrame:
    return pl.concat([trident_rows(cell, settings=settings), equal_opportunity_rows(cell, settings=settings)])


_TRAITS = (
    MetricTraits(
        name="accuracy",
        function=trident_scores,
        measure=_on_trident("accuracy"),
        bounds=(0, 1),
        shape="scalar",
        when_identical=None,
        empty_group="left_out",
    ),
    MetricTraits(
        name="class_accuracy",
        function=trident_scores,
        measure=_on_trident("class_accuracy"),
        bounds=(0, 1),
        shape="by_group",
        when_identical=None,
        empty_group="nan",
    ),
    MetricTraits(
        name="macro_accuracy",
        headline="paper",
        function=trident_scores,
        measure=_on_trident("macro_accuracy"),
        bounds=(0, 1),
        shape="scalar",
        when_identical=None,
        empty_group="left_out",
    ),
    MetricTraits(
        name="probe_rate",
        function=trident_scores,
        measure=_on_trident("probe_rate"),
        bounds=(0, 1),
        shape="by_group",
        when_identical="equal",
        empty_group="nan",
    ),
    MetricTraits(
        name="probe_rate_normalised",
        function=normalise_probe_rates,
        measure=_normalised,
        bounds=(0, 100),
        shape="by_group",
        when_identical="undefined",
        empty_group="nan",
    ),
    MetricTraits(
        name="probe_rate_gap",
        headline="by_valence",
        function=probe_rate_gap,
        measure=on_counts(lambda x, n: probe_rate_gap(np.stack([n - x, x], axis=-1))),
        bounds=(0, 1),
        shape="scalar",
        when_identical="zero",
        empty_group="left_out",
    ),
    MetricTraits(
        name="true_positive_rate",
        function=equal_opportunity_gap,
        measure=on_counts(lambda x, n: equal_opportunity_gap(x[None], n[None]).rate[0]),
        bounds=(0, 1),
        shape="by_group",
        when_identical="equal",
        empty_group="nan",
    ),
    MetricTraits(
        name="equal_opportunity_gap",
        function=equal_opportunity_gap,
        measure=on_counts(lambda x, n: equal_opportunity_gap(x[None], n[None]).value),
        bounds=(0, 1),
        shape="scalar",
        when_identical="zero",
        empty_group="left_out",
    ),
)

TRIDENT = MetricFamily(
    name="trident_metrics",
    title="Trident",
    description=" ".join(_DESCRIPTION.split()),
    owner="trident",
    code_version="6",
    suites=("trident",),
    traits=_TRAITS,
    compute=_rows,
)
