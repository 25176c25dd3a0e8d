"""A synthetic table of bias transfer: what every mitigation does to every axis, with its cost."""

import itertools
import math
from functools import partial

import polars as pl
from synthetic_table import EVENTS, GRID

from plumbline.metrics.paired.mitigations import TRANSFER_SCHEMA

TRIED = (
    # id, method, and by attribute and event the change of max skew that it makes
    ("logit_adjustment", "logit_adjustment", None),
    ("logit_adjustment_released", "logit_adjustment", None),
    ("bias_prompts", "bias_prompts", {("race", "crime"): -0.5, ("gender", "negative_communion"): -0.12}),
    ("prompt_array-gender", "prompt_array", {("gender", "negative_communion"): -0.1, ("race", "crime"): 0.4}),
    ("saner", "saner", {}),
)
"""What `transfer_frame` tries; None is judged on the Trident probes alone."""


def transfer_row(model, dataset, condition, method, kind, metric, definition, **values):
    """Return a row of bias transfer; the verdict follows from `value`, its interval and `better`."""
    row = dict.fromkeys(TRANSFER_SCHEMA) | {
        "model": model, "dataset": dataset, "condition": condition, "method": method, "kind": kind,
        "metric": metric, "definition": definition, "n": 2100, "value_before": 0.8,
        "better": "higher" if kind == "cost" else "lower", **values,
    }  # fmt: skip
    value, half = row["value"], values.pop("half", 0.08)
    row.pop("half", None)
    if value is None or math.isnan(value):
        return row | {"value": math.nan, "verdict": "undefined", "reason": "no group has the label"}
    clear = abs(value) > half
    good = (value < 0) == (row["better"] == "lower")
    return row | {
        "ci_low": value - half, "ci_high": value + half, "p": 0.0004 if clear else 0.4, "q": 0.002 if clear else 0.6,
        "value_after": row["value_before"] + value,
        "verdict": values.get("verdict", ("improved" if good else "worsened") if clear else "no evidence"),
    }  # fmt: skip


def transfer_frame(models=GRID, datasets=("planted-fairface", "planted-utkface"), tried=TRIED):
    """Return a plausible table of bias transfer: Bias Prompts helps, Prompt Array moves bias, SANER does nothing."""
    rows = []
    for (model, *_), dataset, (condition, method, changes) in itertools.product(models, datasets, tried):
        add = partial(transfer_row, model, dataset, condition, method)
        if changes is not None:
            rows += _axis_rows(add, changes)
        gain = changes is None
        for event in ("negative", "neutral", "positive"):
            common = {"event": event, "value": -0.06 if gain else 0.004, "half": 0.02, "value_before": 0.14}
            rows.append(add("trident", "probe_rate", "by_valence", suite="trident", **common))
            for suite, attribute in (("trident", "race"), ("trident_mixed", "race_gender")):
                common |= {"suite": suite, "attribute": attribute}
                rows.append(add("trident", "parity_difference", "max_minus_min", **common))
        for suite, metric, definition, before, value in (
            ("trident", "macro_accuracy", "mean_over_probes", 0.82, 0.04 if gain else -0.002),
            ("trident", "zero_shot_accuracy", "macro", 0.88, -0.004),
            ("trident", "zero_shot_accuracy", "micro", 0.89, -0.003),
            ("retrieval", "retrieval_recall", "image_to_text@1", 0.21, -0.002),
            ("retrieval", "retrieval_recall", "image_to_text@5", 0.55, -0.004),
            ("retrieval", "retrieval_r_precision", "text_to_image", 0.33, -0.003),
        ):
            if suite == "trident" or not gain:
                common = {"suite": suite, "value": value, "half": 0.012, "value_before": before}
                rows.append(add("cost", metric, definition, **common))
    return pl.DataFrame(rows, schema=dict(TRANSFER_SCHEMA))


def _axis_rows(add, changes):
    rows = []
    for (suite, event), attribute in itertools.product(EVENTS, ("gender", "race", "age_group", "gender_race")):
        common = {"suite": suite, "event": event, "attribute": attribute}
        value = changes.get((attribute, event), 0.03)
        rows.append(add("axis", "max_skew", "mean_over_pairs", **common, value=value))
        rows.append(add("axis", "max_skew", "smoothed", **common, value=0.9 * value))
        rows.append(
            add("axis", "parity_difference", "max_minus_min", **common, value=value / 5, value_before=0.2, half=0.05)
        )
    for attribute in ("gender", "race"):
        common = {"suite": "outcomes", "event": "mean_of_tasks", "attribute": attribute}
        rows.append(add("axis", "max_skew", "mean_over_pairs", **common, value=0.01))
    for suite, event in EVENTS:
        rows.append(
            add("harm", "harm_rate", "top1", suite=suite, event=event, value=-0.004, half=0.01, value_before=0.15)
        )
    return rows
