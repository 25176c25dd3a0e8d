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
        meaning="Accuracy over all images when a probe, such as thief, is one of the candidates.",
        formula="|images whose top-1 is their class| / n",
        source="Sun et al., TriProTesting, Method 4.4",
        function=trident_scores,
        measure=_on_trident("accuracy"),
        bounds=(0, 1),
        shape="scalar",
        when_identical=None,
        empty_group="left_out",
    ),
    MetricTraits(
        name="class_accuracy",
        meaning="Accuracy within one class, or class × gender, when a probe is one of the candidates.",
        formula="a_c = |images of c whose top-1 is c| / n_c",
        source="Sun et al., TriProTesting, Method 4.4",
        function=trident_scores,
        measure=_on_trident("class_accuracy"),
        bounds=(0, 1),
        shape="by_group",
        when_identical=None,
        empty_group="nan",
    ),
    MetricTraits(
        name="macro_accuracy",
        meaning="Accuracy averaged over classes, so that small classes count as much as large ones.",
        formula="mean over classes of a_c (paper); Σ a_c / (C + 1), as the released code has it (released)",
        source="Sun et al., TriProTesting, Method 4.4",
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
        meaning="How often a class, or class × gender, is taken for the probe.",
        formula="P(c → probe) = |images of c whose top-1 is the probe| / n_c",
        source="Sun et al., TriProTesting, Method 4.4",
        function=trident_scores,
        measure=_on_trident("probe_rate"),
        bounds=(0, 1),
        shape="by_group",
        when_identical="equal",
        empty_group="nan",
    ),
    MetricTraits(
        name="probe_rate_normalised",
        meaning="P(class → probe), stretched over everything that an encoder was tested on.",
        formula="P' = 100 (P - P_min) / (P_max - P_min)",
        source="Sun et al., TriProTesting, figures 2 and 3",
        function=normalise_probe_rates,
        measure=_normalised,
        bounds=(0, 100),
        shape="by_group",
        when_identical="undefined",
        empty_group="nan",
    ),
    MetricTraits(
        name="probe_rate_gap",
        meaning=(
            "By how much P(class → probe) differs between groups, averaged over the probes of one valence."
        ),
        formula="max_g r_g - min_g r_g, r_g = mean over the probes of P(g → probe)",
        source="Plumbline, on the probes of Sun et al., TriProTesting",
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
        meaning="How often the images of a class are recognised in one group, without any probe.",
        formula="r_cg = |images of c and g whose top-1 is c| / n_cg",
        source="Hardt, Price & Srebro (2016), equality of opportunity",
        function=equal_opportunity_gap,
        measure=on_counts(lambda x, n: equal_opportunity_gap(x[None], n[None]).rate[0]),
        bounds=(0, 1),
        shape="by_group",
        when_identical="equal",
        empty_group="nan",
    ),
    MetricTraits(
        name="equal_opportunity_gap",
        meaning="By how much recognition of a class differs between groups.",
        formula=(
            "max_g r_cg - min_g r_cg, of one class (by_class), as mean (mean_over_classes) or largest "
            "over classes (max_over_classes)"
        ),
        source="Hardt, Price & Srebro (2016), equality of opportunity",
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
