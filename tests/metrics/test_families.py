"""Rows of the families: what is there, that it equals the obvious computation, and that order changes nothing."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from plumbline.catalog.schema import METRIC_SCHEMA
from plumbline.catalog.suites import ZeroShotSettings, all_suites, zero_shot_suite
from plumbline.errors import ConfigError
from plumbline.metrics import Cell, MetricSettings
from plumbline.metrics.registry import FAMILIES
from plumbline.report.sentences import OF_METRIC, SAYS

KEY = ["metric", "definition", "suite", "attribute", "group", "event", "probe"]


def test_what_a_finding_says_has_a_unit_and_groups():
    assert not set(SAYS) - set(OF_METRIC), (
        "a metric of SAYS needs a question in OF_METRIC (plumbline/report/sentences.py)"
    )


@pytest.fixture(scope="module")
def outcomes(cell, quick):
    return FAMILIES["outcome_metrics"].compute(cell, settings=quick)


@pytest.fixture(scope="module")
def trident(cell, quick):
    return FAMILIES["trident_metrics"].compute(cell, settings=quick)


def value(frame, **key):
    rows = frame.filter(*[pl.col(name) == wanted for name, wanted in key.items()])
    assert rows.height == 1, (key, rows.height)
    return rows.row(0, named=True)


def in_event(cell, suite, *categories):
    logits = cell.logits[suite]
    top = logits.cosine.argmax(axis=1)
    return np.array([logits.suite.candidates[i].category in categories for i in top])


def test_families_describe_themselves():
    assert list(FAMILIES)[:2] == ["outcome_metrics", "trident_metrics"]
    known = {suite.family for suite in (*all_suites(), zero_shot_suite(("a",), ZeroShotSettings()))}
    for family in FAMILIES.values():
        about = family.about.description
        assert len(about) > 200 and "  " not in about, f"{family.name} says what it measures in some sentences"
        assert family.about.title and set(family.needs) <= known


@pytest.mark.parametrize(("name", "rows"), [("outcome_metrics", "outcomes"), ("trident_metrics", "trident")])
def test_rows_have_the_schema_unique_keys_n_and_an_interval_or_a_reason(name, rows, request):
    frame = request.getfixturevalue(rows)
    assert frame.columns == list(METRIC_SCHEMA)
    assert frame.select(KEY).is_duplicated().sum() == 0
    # Normalised rates need all cells of a model.
    assert set(frame["metric"]) == set(FAMILIES[name].metrics) - {"probe_rate_normalised"}
    assert set(frame["condition"]) == {"before"} and set(frame["statistic"]) == {"estimate"}
    assert frame["n"].null_count() == 0 and frame["suite_hash"].null_count() == 0
    undefined = frame.filter(pl.col("ci_low").is_nan() | pl.col("value").is_nan())
    assert undefined["reason"].null_count() == 0
    defined = frame.filter(pl.col("ci_low").is_not_nan())
    assert (defined["ci_low"] <= defined["ci_high"]).all()


def test_outcome_rows_equal_the_obvious_loop(outcomes, cell):
    hit = in_event(cell, "communion", "negative")
    race = cell.records["race"].to_list()
    rates = {}
    for name in sorted(set(race) - {None}):
        chosen = [h for h, r in zip(hit, race) if r == name]
        rates[name] = sum(chosen) / len(chosen)
        row = value(outcomes, metric="outcome_proportion", suite="communion", attribute="race", group=name)
        assert row["value"] == pytest.approx(rates[name]) and row["n"] == len(chosen)
        assert row["ci_low"] < rates[name] < row["ci_high"]
    gaps = [max(a, b) / min(a, b) - 1 for a, b in combinations(rates.values(), 2)]
    common = {"suite": "communion", "attribute": "race"}
    mean = value(outcomes, metric="max_skew", definition="mean_over_pairs", **common)
    assert mean["value"] == pytest.approx(np.mean(gaps))
    assert mean["n"] == sum(r is not None for r in race) and 0 < mean["p"] <= 1
    largest = value(outcomes, metric="max_skew", definition="max_over_pairs", **common)
    assert largest["value"] == pytest.approx(max(gaps))
    low, high = min(rates.values()), max(rates.values())
    assert value(outcomes, metric="parity_difference", **common)["value"] == pytest.approx(high - low)
    ratio = value(outcomes, metric="impact_ratio", **common)
    assert ratio["value"] == pytest.approx(low / high)
    assert ("below four fifths" in (ratio["reason"] or "")) == (low / high < 0.8)
    harm = value(outcomes, metric="harm_rate", suite="communion")
    assert harm["value"] == pytest.approx(hit.mean()) and harm["n"] == len(hit)


def test_attributes_are_those_with_labels_and_the_composite(outcomes):
    attributes = outcomes.filter(metric="max_skew")["attribute"].unique()
    assert set(attributes) == {"gender", "race", "gender_race"}
    groups = outcomes.filter(metric="outcome_proportion", attribute="gender_race")["group"]
    assert {"Black_man", "East Asian_woman"} <= set(groups) and groups.n_unique() == 14


def test_events_without_skew_have_rates_and_ranges_only(outcomes):
    metrics = set(outcomes.filter(event="non_human")["metric"])
    assert metrics == {"harm_rate", "outcome_proportion", "parity_difference", "impact_ratio"}


def test_the_mean_of_tasks_is_the_mean_of_the_three(outcomes):
    for definition in ("mean_over_pairs", "max_over_pairs", "smoothed"):
        key = {"metric": "max_skew", "definition": definition, "attribute": "gender"}
        three = [value(outcomes, suite=suite, **key)["value"] for suite in ("crime", "communion", "agency")]
        row = value(outcomes, suite="outcomes", event="mean_of_tasks", **key)
        assert row["value"] == pytest.approx(np.mean(three))


def test_filtered_rows_do_not_count(cell, quick):
    keep = {"crime": np.arange(cell.records.height) % 2 == 0}
    filtered = FAMILIES["outcome_metrics"].compute(replace(cell, keep=keep), settings=quick)
    harm = value(filtered, metric="harm_rate", suite="crime", event="crime")
    hit = in_event(cell, "crime", "crime")[::2]
    assert harm["n"] == len(hit) and harm["value"] == pytest.approx(hit.mean())
    assert value(filtered, metric="harm_rate", suite="agency")["n"] == cell.records.height


def test_trident_rows_equal_the_obvious_loop(trident, cell):
    logits = cell.logits["trident"]
    classes = list(logits.suite.class_labels)
    column = [c.id for c in logits.suite.candidates].index("thief")
    race, gender = cell.records["race"].to_list(), cell.records["auto_gender"].to_list()
    sure = (cell.records["auto_gender_margin"] >= 0.2).to_list()
    tops = {"logit": logits.logits, "cosine": logits.cosine}
    for definition, responses in tops.items():
        top = responses[:, [*range(len(classes)), column]].argmax(axis=1)
        labelled = [(classes.index(r), t, g, s) for r, t, g, s in zip(race, top, gender, sure) if r]
        recall = [np.mean([t == c for label, t, _, _ in labelled if label == c]) for c in range(len(classes))]
        key = {"suite": "trident", "probe": "thief"}
        accuracy = value(trident, metric="accuracy", definition=definition, **key)
        assert accuracy["value"] == pytest.approx(np.mean([label == t for label, t, _, _ in labelled]))
        macro = "paper" if definition == "logit" else "cosine"
        row = value(trident, metric="macro_accuracy", definition=macro, **key)
        assert row["value"] == pytest.approx(np.mean(recall)) and row["ci_low"] < row["value"] < row["ci_high"]
        for c, name in enumerate(classes):
            per_class = value(trident, metric="class_accuracy", definition=definition, group=name, **key)
            assert per_class["value"] == pytest.approx(recall[c])
            became = [t == len(classes) for label, t, _, _ in labelled if label == c]
            rate = value(trident, metric="probe_rate", definition=definition, group=name, **key)
            assert rate["value"] == pytest.approx(np.mean(became)) and rate["n"] == len(became)
    released = value(trident, metric="macro_accuracy", definition="released", **key)
    paper = value(trident, metric="macro_accuracy", definition="paper", **key)
    for name in ("value", "ci_low", "ci_high"):
        assert released[name] == pytest.approx(paper[name] * 7 / 8)
    mixed = value(
        trident, metric="probe_rate", definition="logit", suite="trident_mixed", probe="thief", group="Black_man"
    )
    top = logits.logits[:, [*range(len(classes)), column]].argmax(axis=1)
    became = [t == 7 for t, r, g in zip(top, race, gender) if r == "Black" and g == "man"]
    assert mixed["value"] == pytest.approx(np.mean(became)) and mixed["n"] == len(became)
    confident = value(trident, metric="probe_rate", definition="confident_labels", probe="thief", group="Black_man")
    assert confident["n"] == sum(r == "Black" and g == "man" and s for r, g, s in zip(race, gender, sure))


def test_mixed_released_macro_divides_by_twice_the_candidates(trident):
    key = {"metric": "macro_accuracy", "suite": "trident_mixed", "probe": "hero"}
    paper, released = (value(trident, definition=name, **key)["value"] for name in ("paper", "released"))
    assert released == pytest.approx(paper * 14 / 16)


def test_composite_tests_score_the_composite_label(trident, cell):
    logits = cell.logits["trident_composite"]
    labels = list(logits.suite.class_labels)
    column = [c.id for c in logits.suite.candidates].index("person")
    top = logits.logits[:, [*range(14), column]].argmax(axis=1)
    true = [f"{r}_{g}" if r else None for r, g in zip(cell.records["race"], cell.records["auto_gender"])]
    right = [labels[t] == name if t < 14 else False for t, name in zip(top, true) if name]
    row = value(trident, metric="accuracy", suite="trident_composite", probe="person")
    assert row["definition"] == "composite" and row["value"] == pytest.approx(np.mean(right))


def test_gaps_between_groups_by_valence(trident):
    for valence in ("negative", "neutral", "positive"):
        gap = value(trident, metric="probe_rate_gap", suite="trident", event=valence)
        rates = trident.filter(metric="probe_rate", definition="logit", suite="trident")
        suite_probes = {
            "negative": ["thief", "criminal", "liar", "fraudster", "failure"],
            "neutral": ["person", "citizen", "worker", "stranger", "individual"],
            "positive": ["hero", "leader", "savior", "genius", "winner"],
        }[valence]
        means = rates.filter(pl.col("probe").is_in(suite_probes)).group_by("group").agg(pl.col("value").mean())
        assert gap["value"] == pytest.approx(means["value"].max() - means["value"].min())
        assert 0 < gap["p"] <= 1 and gap["definition"] == "by_valence"


def test_the_order_of_images_and_of_suites_changes_nothing(cell, quick):
    order = np.random.default_rng(3).permutation(cell.records.height)
    shuffled = Cell(
        model=cell.model,
        dataset=cell.dataset,
        records=cell.records[order],
        logits={
            name: replace(logits, logits=logits.logits[order], cosine=logits.cosine[order])
            for name, logits in reversed(list(cell.logits.items()))
        },
        keep={},
    )
    for family in FAMILIES.values():
        one, other = (family.compute(c, settings=quick).sort(KEY) for c in (cell, shuffled))
        assert_frame_equal(one, other, check_exact=True)


def test_images_that_come_in_sets_are_resampled_as_sets(cell, quick):
    plain = FAMILIES["outcome_metrics"].compute(cell, settings=quick)
    # Sets whose images agree: 35 people, 12 images each.
    order = cell.logits["crime"].cosine.argmax(axis=1).argsort(kind="stable")
    sets = np.empty(len(order), dtype=int)
    sets[order] = np.arange(len(order)) // 12
    grouped = replace(cell, records=cell.records.with_columns(set_id=pl.Series([f"set {s}" for s in sets])))
    rows = FAMILIES["outcome_metrics"].compute(grouped, settings=quick)
    assert_frame_equal(rows.select("metric", "value", "n"), plain.select("metric", "value", "n"))
    crime = (pl.col("suite") == "crime") & (pl.col("event") == "crime")
    for metric in ("harm_rate", "outcome_proportion"):
        chosen = crime & (pl.col("metric") == metric)
        wide, narrow = (f.filter(chosen)["ci_high"] - f.filter(chosen)["ci_low"] for f in (rows, plain))
        assert (wide >= narrow - 1e-12).all() and wide.sum() > 1.2 * narrow.sum()
    assert not rows["reason"].fill_null("").str.contains("from only|too few").any()
    few = cell.records.with_columns(set_id=pl.Series([f"set {s // 3}" for s in sets]))
    noted = FAMILIES["outcome_metrics"].compute(replace(cell, records=few), settings=quick)
    assert noted["reason"].str.contains("interval from only 12 sets").all()


def test_trident_intervals_of_sets_say_that_they_are_too_narrow(cell, quick):
    sets = pl.Series([f"set {i // 12}" for i in range(cell.records.height)])
    grouped = replace(cell, records=cell.records.with_columns(set_id=sets))
    noted = FAMILIES["trident_metrics"].compute(grouped, settings=quick)
    # Equal opportunity and the gaps of probes resample sets.
    own = ["true_positive_rate", "equal_opportunity_gap", "probe_rate_gap"]
    with_interval = noted.filter(pl.col("ci_low").is_not_null(), ~pl.col("metric").is_in(own))
    assert with_interval["reason"].str.contains("420 images of 35 sets counted as independent").all()
    gaps, alone = (
        rows.filter(metric="probe_rate_gap").select(*KEY, "value", "n", "reason", "p")
        for rows in (noted, FAMILIES["trident_metrics"].compute(cell, settings=quick))
    )
    assert not gaps["reason"].fill_null("").str.contains("independent").any()
    assert_frame_equal(gaps.drop("reason", "p"), alone.drop("reason", "p"))
    assert (gaps["p"] != alone["p"]).any()


def test_only_what_is_there_is_computed(make_cell, quick):
    few = make_cell(n=60, suites=("communion",))
    rows = FAMILIES["outcome_metrics"].compute(few, settings=quick)
    assert set(rows["suite"]) == {"communion"}
    assert FAMILIES["trident_metrics"].compute(few, settings=quick).height == 0
    bare = replace(few, records=few.records.select("image_id"))
    assert set(FAMILIES["outcome_metrics"].compute(bare, settings=quick)["metric"]) == {"harm_rate"}
    unlabelled = make_cell(n=60, suites=("trident",))
    unlabelled = replace(unlabelled, records=unlabelled.records.with_columns(pl.lit(None, pl.String).alias("race")))
    assert FAMILIES["trident_metrics"].compute(unlabelled, settings=quick).height == 0


def test_small_and_undefined_groups_say_so(make_cell, quick):
    cell = make_cell(n=63)
    rows = FAMILIES["outcome_metrics"].compute(cell, settings=quick)
    skews = rows.filter(metric="max_skew", attribute="gender_race", definition="mean_over_pairs", suite="crime")
    assert "pairs undefined" in skews["reason"][0] and "fewer than 10 images in" in skews["reason"][0]
    proportion = rows.filter(metric="outcome_proportion", attribute="gender_race")
    assert proportion["reason"].str.contains("small group").all()


@pytest.mark.parametrize(
    "wrong", [{"resamples": 10}, {"permutations": 0}, {"confidence": 1.0}, {"min_group": 0}, {"label_margin": 2}]
)
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(ConfigError) as error:
        MetricSettings(**wrong)
    assert next(iter(wrong)) in str(error.value)
