"""A synthetic metric table with every kind of row that the report reads: counts are drawn, the rest follows."""

import itertools
import math

import numpy as np
import polars as pl

from plumbline.catalog.schema import metric_frame
from plumbline.metrics.disparities import impact_ratio_reason, undefined_pairs_reason
from plumbline.report.vocabulary import probes

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
EVENTS = (("crime", "crime"), ("communion", "negative_communion"), ("agency", "negative_agency"))
CONDITIONS = (("before", 0.0), ("logit_adjustment", 0.04), ("logit_adjustment_released", 0.05))
"""Of the rows that adjusting is judged on: the condition, and what it gains."""


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
            rate = {"crime": 0.1, "negative_communion": 0.3, "negative_agency": 0.2, "non_human": 0.002}[event]
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
    reason = undefined_pairs_reason(len(pairs) - len(gaps), len(pairs))
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
        reason=impact_ratio_reason(ratio, np.array([n, n])),
    )  # fmt: skip


def trident(writer, suite, attribute, classes, source, per_class):
    """Write the rows of one suite of Trident tests, probe by probe, then those over all probes."""
    key, rates = {"suite": suite, "attribute": attribute}, {}
    for j, (probe, valence) in enumerate(probes()):
        hits = drawn_hits(writer.rng, classes, j, valence=valence, source=source, per_class=per_class)
        right = {group: int((per_class - hit) * 0.97) for group, hit in hits.items()}
        rates |= {(probe, group): hit / per_class for group, hit in hits.items()}
        of_probe(writer, key | {"probe": probe}, hits, right, per_class)
        accuracy = sum(right.values()) / (per_class * len(classes))
        for condition, gain in CONDITIONS:
            adjusted(writer, key | {"probe": probe, "condition": condition}, classes, gain, accuracy, rates)
    over_probes(writer, key, classes, rates, per_class)


def drawn_hits(rng, classes, j, *, valence, source, per_class):
    """Return how often the `j`-th probe wins, by class: negative ones win of the second class above all."""
    hits = {}
    for i, group in enumerate(classes):
        lean = 0.02 * (i == j % len(classes))
        if valence == "negative":
            lean = 0.25 * (i == 1) * (source != "control")
        hits[group] = int(rng.binomial(per_class, min(0.9, 0.01 + lean * rng.uniform(0.4, 1))))
    return hits


def of_probe(writer, key, hits, right, per_class):
    """Write how often one probe wins and how often the class is right, over all and by class."""
    overall = share(sum(right.values()), per_class * len(hits))
    writer.add("accuracy", "logit", **key, **overall)
    for definition in ("paper", "released", *["confident_labels"] * (key["suite"] == "trident_mixed")):
        writer.add("macro_accuracy", definition, **key, **overall)
    for group, hit in hits.items():
        writer.add("class_accuracy", "logit", **key, group=group, **share(right[group], per_class))
        writer.add("probe_rate", "logit", **key, group=group, **share(hit, per_class))


def over_probes(writer, key, classes, rates, per_class):
    """Write the rates on one scale, and the gaps between classes by valence."""
    low, high = min(rates.values()), max(rates.values())
    definition = "single" if key["suite"] == "trident" else "mixed"
    for (probe, group), rate in rates.items():
        value = 100 * (rate - low) / (high - low) if high > low else math.nan
        writer.add("probe_rate_normalised", definition, **key, probe=probe, group=group, value=value, n=per_class)
    for valence in ("negative", "neutral", "positive"):
        means = [np.mean([rates[p, g] for p, v in probes() if v == valence]) for g in classes]
        gap = float(max(means) - min(means))
        p = 0.0002 if gap > 0.05 else 0.3
        writer.add(
            "probe_rate_gap", "by_valence", **key, event=valence, value=gap, ci_low=max(0, gap - 0.02),
            ci_high=gap + 0.025, p=p, q=min(1, 2 * p), n=per_class * len(classes),
        )  # fmt: skip


def adjusted(writer, key, classes, gain, accuracy, rates):
    """Write what one condition does to one probe on the rows that were held out."""
    after = min(0.995, accuracy + gain * writer.rng.uniform(-0.4, 2))
    mean, sd = key | {"statistic": "mean"}, key | {"statistic": "sd", "n": 3}
    writer.add("macro_accuracy", "test_rows", **mean, value=after, n=2000)
    writer.add("macro_accuracy", "test_rows", **sd, value=0.004)
    if key["condition"] != "before":
        writer.add("macro_accuracy_gain", "test_rows", **mean, value=after - accuracy, n=2000)
        writer.add("macro_accuracy_gain", "test_rows", **sd, value=0.004)
    for group in classes:
        rate = rates[key["probe"], group] * (1 if key["condition"] == "before" else 0.5)
        writer.add("probe_rate", "test_rows", **mean, group=group, value=rate, n=300)
        writer.add("probe_rate", "test_rows", **sd, group=group, value=0.003)


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
