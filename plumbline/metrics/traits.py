"""What every metric promises, declared once and proved for all by one contract test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from plumbline.metrics.outcomes import (
    OutcomeProportions,
    harm_rate,
    impact_ratio,
    outcome_proportions,
    parity_difference,
)
from plumbline.metrics.skew import max_skew
from plumbline.metrics.trident import normalise_probe_rates, probe_rate_gap, trident_scores
from plumbline.tables.schema import metric_frame

Measure = Callable[[NDArray[np.float64], NDArray[np.int64], int], NDArray[np.float64]]
"""Takes responses (n, g + 1), groups (n,) and g; gives the metric's values, () or (g,).

The last candidate is the event, or the probe; the others are the groups' own classes.
"""


@dataclass(frozen=True)
class MetricTraits:
    """What a metric promises.

    Attributes
    ----------
    name : str
        As in the column `metric`.
    function : callable
        The public function of `plumbline.metrics` that computes it.
    measure : callable
        The metric on responses and groups, so that one test can exercise all metrics.
    bounds : (float, float)
        Every defined value lies within.
    shape : {"scalar", "by_group"}
        One value, or one a group. Renaming groups leaves the first alone and permutes the second.
    when_identical : {"zero", "one", "equal", "undefined"} or None
        What groups that are answered alike give; None where the metric does not compare groups.
    empty_group : {"nan", "left_out"}
        An empty group's own value is nan; or the value is that of the other groups alone.
    ties : str
        How equal responses are resolved.
    """

    name: str
    function: Callable[..., Any]
    measure: Measure
    bounds: tuple[float, float]
    shape: Literal["scalar", "by_group"]
    when_identical: Literal["zero", "one", "equal", "undefined"] | None
    empty_group: Literal["nan", "left_out"]
    ties: Literal["lower index wins"] = "lower index wins"


def _proportions(responses: NDArray[np.float64], groups: NDArray[np.int64], g: int) -> OutcomeProportions:
    return outcome_proportions(responses.argmax(axis=1) == g, groups.tolist(), levels=range(g))


def _on_counts(value: Callable[..., Any]) -> Measure:
    def measure(responses: NDArray[np.float64], groups: NDArray[np.int64], g: int) -> NDArray[np.float64]:
        result = _proportions(responses, groups, g)
        return np.asarray(value(result.count, result.n))

    return measure


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


METRICS: dict[str, MetricTraits] = {
    traits.name: traits
    for traits in (
        MetricTraits(
            name="outcome_proportion",
            function=outcome_proportions,
            measure=lambda responses, groups, g: _proportions(responses, groups, g).proportion,
            bounds=(0, 1),
            shape="by_group",
            when_identical="equal",
            empty_group="nan",
        ),
        MetricTraits(
            name="max_skew",
            function=max_skew,
            measure=_on_counts(lambda x, n: max_skew(x, n).value),
            bounds=(0, np.inf),
            shape="scalar",
            when_identical="zero",
            empty_group="left_out",
        ),
        MetricTraits(
            name="harm_rate",
            function=harm_rate,
            measure=_on_counts(lambda x, n: harm_rate(x, n).value),
            bounds=(0, 1),
            shape="scalar",
            when_identical=None,
            empty_group="left_out",
        ),
        MetricTraits(
            name="parity_difference",
            function=parity_difference,
            measure=_on_counts(lambda x, n: parity_difference(x, n).value),
            bounds=(0, 1),
            shape="scalar",
            when_identical="zero",
            empty_group="left_out",
        ),
        MetricTraits(
            name="impact_ratio",
            function=impact_ratio,
            measure=_on_counts(lambda x, n: impact_ratio(x, n).value),
            bounds=(0, 1),
            shape="scalar",
            when_identical="one",
            empty_group="left_out",
        ),
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
            function=probe_rate_gap,
            measure=_on_counts(lambda x, n: probe_rate_gap(np.stack([n - x, x], axis=-1))),
            bounds=(0, 1),
            shape="scalar",
            when_identical="zero",
            empty_group="left_out",
        ),
    )
}
"""Every metric by name."""
