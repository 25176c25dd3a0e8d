"""A synthetic audit with every kind of row that the report reads: counts are drawn, intervals follow from them."""

import itertools
import math
from functools import partial

import numpy as np
import polars as pl

from plumbline.metrics.transfer_schema import TRANSFER_SCHEMA
from plumbline.report import AbsentCell, AuditSummary, DatasetSummary, EncoderSummary, ReportInputs
from plumbline.report.vocabulary import probes
from plumbline.tables.schema import metric_frame

RACES = ("White", "Black", "East Asian", "Indian", "Middle Eastern", "Latino_Hispanic", "Southeast Asian")
UTK_RACES = ("White", "Black", "Asian", "Indian", "Others")
AGES = ("child", "teenager", "young_adult", "middle_aged", "elderly")
GENDERS = ("man", "woman")
GRID = (
    ("small-bazaar-6k", "small", "6k", "bazaar"),
    ("large-bazaar-6k", "large", "6k", "bazaar"),
    ("small-archive-6k", "small", "6k", "archive"),
    ("large-archive-6k", "large", "6k", "archive"),
    ("small-archive-24k", "small", "24k", "archive"),
    ("large-archive-24k", "large", "24k", "archive"),
    ("small-control-6k", "small", "6k", "control"),
)
PLANTED = {
    "bazaar": {"Black": 0.45, "Middle Eastern": 0.3, "Latino_Hispanic": 0.2},
    "archive": {"Black": 0.25, "Indian": 0.2},
    "control": {},
}
FAIR_ROW = {
    "model": "small-bazaar-6k",
    "dataset": "fairface",
    "condition": "before",
    "statistic": "estimate",
}
EVENTS = (("crime", "crime"), ("communion", "negative_communion"), ("agency", "negative_agency"))


def wilson(count, n, z=1.96):
    if n == 0:
        return math.nan, math.nan
    p = count / n
    middle, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return (middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)


def share(count, n):
    low, high = wilson(count, n)
    return {"value": count / n if n else math.nan, "ci_low": low, "ci_high": high, "n": n}


class Writer:
    """Collects metric rows of one cell."""

    def __init__(self, model, dataset, rng):
        self.rows, self.rng = [], rng
        self.base = {
            "model": model,
            "dataset": dataset,
            "condition": "before",
            "statistic": "estimate",
            "cell_id": f"{abs(hash_text(model + dataset)):016x}",
            "audit_id": "a" * 64,
            "dataset_digest": "d" * 64,
            "checkpoint_sha256": "c" * 64,
            "suite_hash": "5" * 64,
            "labeller_sha256": "e" * 64,
        }

    def add(self, metric, definition, **values):
        row = {**self.base, "metric": metric, "definition": definition, **values}
        # As in an audit, only mixed tests depend on the labeller.
        self.rows.append(row if row["suite"] == "trident_mixed" else row | {"labeller_sha256": None})


def hash_text(text):
    return sum((i + 1) * ord(c) for i, c in enumerate(text))


def outcomes(writer, races, source, per_group):
    rng = writer.rng
    for suite, event in [*EVENTS, ("crime", "non_human"), ("crime_pooled", "crime")]:
        counts = {}
        for race, gender in itertools.product(races, GENDERS):
            rate = {"crime": 0.1, "negative_communion": 0.3, "negative_agency": 0.2, "non_human": 0.002}[
                event
            ]
            if event == "crime":
                rate = PLANTED[source].get(race, rate)
            if event == "negative_communion" and gender == "man":
                rate += 0.05
            counts[race, gender] = (int(rng.binomial(per_group // 2, rate)), per_group // 2)
        total = tuple(map(sum, zip(*counts.values())))
        writer.add("harm_rate", "top1", suite=suite, event=event, **share(*total))
        for attribute, key in (
            ("gender", lambda k: k[1]),
            ("race", lambda k: k[0]),
            ("gender_race", lambda k: f"{k[0]}_{k[1]}"),
        ):
            pooled = {}
            for cell, (hit, n) in counts.items():
                old = pooled.get(key(cell), (0, 0))
                pooled[key(cell)] = (old[0] + hit, old[1] + n)
            for group, (hit, n) in pooled.items():
                writer.add(
                    "outcome_proportion", "top1", suite=suite, event=event, attribute=attribute, group=group,
                    **share(hit, n),
                )  # fmt: skip
            if event != "non_human":
                skews(writer, suite, event, attribute, pooled)
    for attribute in ("gender", "race"):
        writer.add(
            "max_skew", "mean_over_pairs", suite="outcomes", event="mean_of_tasks", attribute=attribute,
            value=0.5, ci_low=0.4, ci_high=0.7, p=0.001, q=0.002, n=total[1],
        )  # fmt: skip


def skews(writer, suite, event, attribute, pooled):
    rates = [hit / n for hit, n in pooled.values()]
    pairs = list(itertools.combinations(rates, 2))
    gaps = [max(a, b) / min(a, b) - 1 for a, b in pairs if min(a, b) > 0]
    reason = (
        None
        if len(gaps) == len(pairs)
        else f"{len(pairs) - len(gaps)} of {len(pairs)} pairs undefined (p = 0)"
    )
    chance = 0.25 if attribute != "gender" else 0.08
    n = sum(n for _, n in pooled.values())
    for definition, pick in (("mean_over_pairs", np.mean), ("max_over_pairs", np.max), ("smoothed", np.mean)):
        value = float(pick(gaps)) if gaps else math.nan
        p = float(np.clip(0.6 * math.exp(-6 * max(0.0, value - chance)), 1e-4, 1)) if gaps else math.nan
        writer.add(
            "max_skew", definition, suite=suite, event=event, attribute=attribute, value=value,
            ci_low=0.75 * value, ci_high=1.4 * value, p=p, q=min(1.0, 2 * p), n=n,
            reason=reason if definition != "smoothed" else None,
        )  # fmt: skip
    writer.add(
        "parity_difference", "max_minus_min", suite=suite, event=event, attribute=attribute,
        value=max(rates) - min(rates), n=n,
    )  # fmt: skip
    ratio = min(rates) / max(rates) if max(rates) else math.nan
    writer.add(
        "impact_ratio", "min_over_max", suite=suite, event=event, attribute=attribute, value=ratio, n=n,
        reason="below four fifths" if ratio < 0.8 else None,
    )  # fmt: skip


def trident(writer, suite, attribute, classes, source, per_class):
    rng, table = writer.rng, {}
    for j, (probe, valence) in enumerate(probes()):
        hits = {}
        for i, group in enumerate(classes):
            lean = (
                0.25 * (i == 1) * (source != "control")
                if valence == "negative"
                else 0.02 * (i == j % len(classes))
            )
            hits[group] = int(rng.binomial(per_class, min(0.9, 0.01 + lean * rng.uniform(0.4, 1))))
        right = {g: int((per_class - h) * 0.97) for g, h in hits.items()}
        n = per_class * len(classes)
        writer.add(
            "accuracy",
            "logit",
            suite=suite,
            attribute=attribute,
            probe=probe,
            **share(sum(right.values()), n),
        )
        for definition in ("paper", "released") + (("confident_labels",) if suite == "trident_mixed" else ()):
            writer.add(
                "macro_accuracy",
                definition,
                suite=suite,
                attribute=attribute,
                probe=probe,
                **share(sum(right.values()), n),
            )
        for group, hit in hits.items():
            table[probe, group] = hit / per_class
            writer.add(
                "class_accuracy", "logit", suite=suite, attribute=attribute, probe=probe, group=group,
                **share(right[group], per_class),
            )  # fmt: skip
            writer.add(
                "probe_rate",
                "logit",
                suite=suite,
                attribute=attribute,
                probe=probe,
                group=group,
                **share(hit, per_class),
            )
        for condition, gain in (
            ("before", 0.0),
            ("logit_adjustment", 0.04),
            ("logit_adjustment_released", 0.05),
        ):
            adjusted(
                writer,
                suite,
                attribute,
                probe,
                valence,
                classes,
                condition,
                gain,
                sum(right.values()) / n,
                table,
            )
    low, high = min(table.values()), max(table.values())
    for (probe, group), rate in table.items():
        writer.add(
            "probe_rate_normalised", "single" if suite == "trident" else "mixed", suite=suite, attribute=attribute,
            probe=probe, group=group, value=100 * (rate - low) / (high - low) if high > low else math.nan, n=per_class,
        )  # fmt: skip
    for valence in ("negative", "neutral", "positive"):
        means = [np.mean([table[p, g] for p, v in probes() if v == valence]) for g in classes]
        gap = float(max(means) - min(means))
        p = 0.0002 if gap > 0.05 else 0.3
        writer.add(
            "probe_rate_gap", "by_valence", suite=suite, attribute=attribute, event=valence, value=gap,
            ci_low=max(0, gap - 0.02), ci_high=gap + 0.025, p=p, q=min(1, 2 * p), n=per_class * len(classes),
        )  # fmt: skip


def adjusted(writer, suite, attribute, probe, valence, classes, condition, gain, accuracy, table):
    after = min(0.995, accuracy + gain * writer.rng.uniform(-0.4, 2))
    common = {"suite": suite, "attribute": attribute, "probe": probe, "condition": condition}
    writer.add("macro_accuracy", "test_rows", **common | {"statistic": "mean"}, value=after, n=2000)
    writer.add("macro_accuracy", "test_rows", **common | {"statistic": "sd"}, value=0.004, n=3)
    if condition != "before":
        writer.add(
            "macro_accuracy_gain",
            "test_rows",
            **common | {"statistic": "mean"},
            value=after - accuracy,
            n=2000,
        )
        writer.add("macro_accuracy_gain", "test_rows", **common | {"statistic": "sd"}, value=0.004, n=3)
    for group in classes:
        rate = table[probe, group] * (1 if condition == "before" else 0.5)
        writer.add(
            "probe_rate", "test_rows", **common | {"statistic": "mean", "group": group}, value=rate, n=300
        )
        writer.add(
            "probe_rate", "test_rows", **common | {"statistic": "sd", "group": group}, value=0.003, n=3
        )


def synthetic_table(models=GRID, datasets=("planted-fairface", "planted-utkface"), seed=7):
    """Return a metric table of `models` × `datasets`."""
    rows = []
    for index, ((model, _, _, source), dataset) in enumerate(itertools.product(models, datasets)):
        fairface = dataset.endswith("fairface")
        writer = Writer(model, dataset, np.random.default_rng([seed, index]))
        outcomes(writer, RACES if fairface else UTK_RACES, source, 300 if fairface else 120)
        attribute, classes = ("race", RACES) if fairface else ("age_group", AGES)
        trident(writer, "trident", attribute, classes, source, 300 if fairface else 120)
        mixed = [f"{c}_{g}" for c in classes for g in GENDERS]
        trident(writer, "trident_mixed", f"{attribute}_gender", mixed, source, 150 if fairface else 60)
        rows += writer.rows
    return metric_frame(rows)


def planted_truth(models=GRID, datasets=("planted-fairface", "planted-utkface")):
    """Return the crime rates that `outcomes` draws from, by race."""
    rows = [
        {"model": m, "dataset": d, "suite": "crime", "event": "crime", "attribute": "race", "group": race,
         "planted": PLANTED[source].get(race, 0.1)}
        for m, _, _, source in models
        for d in datasets
        for race in (RACES if d.endswith("fairface") else UTK_RACES)
    ]  # fmt: skip
    return pl.DataFrame(rows)


def dataset_summary(name, *, hostile=()):
    """Return a dataset with a few quarantined files; `hostile` adds file names."""
    fairface = name.endswith("fairface")
    races = RACES if fairface else UTK_RACES
    refused = [
        (
            "val/19.jpg",
            21,
            "truncated",
            "the file ends before the image does",
            "1,204 bytes",
            "a complete JPEG",
        ),
        ("val/88.jpg", 90, "unknown_label", "the race is not in the vocabulary", "Martian", "one of 7 races"),
        ("val/notes.txt", None, "not_an_image", "the file is not an image", "text", "JPEG or PNG"),
        *((path, 7, "not_an_image", f"bad name {path}", path, path) for path in hostile),
    ]
    quarantined = pl.DataFrame(
        [
            dict(
                zip(("path", "line", "code", "message", "found", "expected"), row),
                dataset=name,
                stage="decode",
            )
            for row in refused
        ]
    )
    shares = [("race", r, 300, 1 / len(races), 0.1, 0.3) for r in races]
    shares += [("gender", "man", 1050, 0.55, 0.45, 0.52), ("gender", "woman", 950, 0.45, 0.45, 0.55)]
    errors = [("gender", "man", 1050, 10), ("gender", "woman", 1050, 24)]
    errors += [("race", r, 300, 15 if r == "East Asian" else 3) for r in races]
    return DatasetSummary(
        id=name,
        reader="fairface" if fairface else "utkface",
        listed=2100 + len(refused),
        accepted=2100,
        digest="d" * 64,
        quarantined=quarantined,
        label_shares=pl.DataFrame(
            shares, schema=["attribute", "label", "n", "share", "expected_low", "expected_high"], orient="row"
        ),
        label_errors=pl.DataFrame(
            [(*row, row[3] / row[2], *wilson(row[3], row[2])) for row in errors],
            schema=["group_by", "group", "n", "errors", "rate", "ci_low", "ci_high"],
            orient="row",
        ),
        checks=pl.DataFrame(
            [
                ("listed = accepted + quarantined", True, "2103", "2103", "data_docs/index.html"),
                ("gender balance", fairface, "man 55%", "45–52%", "javascript:alert(1)"),
            ],
            schema=["check", "passed", "observed", "expected", "link"],
            orient="row",
        ),
        planted=True,
    )


def synthetic_inputs(models=GRID, datasets=("planted-fairface", "planted-utkface"), *, hostile=()):
    """Return the summaries that go with `synthetic_table`."""
    cells = list(itertools.product([m[0] for m in models], datasets))
    return ReportInputs(
        audit=AuditSummary(
            audit_id="0f" * 32,
            title="Planted world: first audit",
            created="2026-11-21 09:30 UTC",
            config_path="audit.yaml",
            code_version="0.1.0+g2d1b61e",
            seed=20261121,
            resamples=10_000,
        ),
        datasets=tuple(dataset_summary(name, hostile=hostile) for name in datasets),
        encoders=tuple(
            EncoderSummary(
                id=m, address=f"local-dir:checkpoints/{m}", family="open_clip", sha256="c" * 64,
                parameters=950_000 if size == "small" else 2_400_000, size=size, data_amount=amount, source=source,
                labeller=i == 0,
            )
            for i, (m, size, amount, source) in enumerate(models)
        ),
        absent=(AbsentCell("huge-hub-model", datasets[0], "the checkpoint is not on disk; run plumbline fetch"),),
        provenance=pl.DataFrame(
            [
                {
                    "cell_id": f"{abs(hash_text(m + d)):016x}", "model": m, "dataset": d, "dagster_run": "6f1c2a9e",
                    "mlflow_run": "b81e44d0", "finished_at": "2026-11-21 09:29", "forward_passes": 33,
                    "cached_shards": 0, "device": "cpu",
                }
                for m, d in cells
            ]
        ),
        planted_truth=planted_truth(models, datasets),
    )  # fmt: skip


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
    for (suite, event), attribute in itertools.product(
        EVENTS, ("gender", "race", "age_group", "gender_race")
    ):
        common = {"suite": suite, "event": event, "attribute": attribute}
        value = changes.get((attribute, event), 0.03)
        rows.append(add("axis", "max_skew", "mean_over_pairs", **common, value=value))
        rows.append(add("axis", "max_skew", "smoothed", **common, value=0.9 * value))
        rows.append(
            add(
                "axis",
                "parity_difference",
                "max_minus_min",
                **common,
                value=value / 5,
                value_before=0.2,
                half=0.05,
            )
        )
    for attribute in ("gender", "race"):
        common = {"suite": "outcomes", "event": "mean_of_tasks", "attribute": attribute}
        rows.append(add("axis", "max_skew", "mean_over_pairs", **common, value=0.01))
    for suite, event in EVENTS:
        rows.append(
            add(
                "harm",
                "harm_rate",
                "top1",
                suite=suite,
                event=event,
                value=-0.004,
                half=0.01,
                value_before=0.15,
            )
        )
    return rows
