"""Rows of the robustness family: what is there, that it equals the obvious loop, and what a planted shift gives."""

import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from only_row import one
from polars.testing import assert_frame_equal

from plumbline.catalog.schema import METRIC_SCHEMA
from plumbline.metrics.registry import FAMILIES, metric_table
from plumbline.metrics.robustness.rows import rank_agreement, template_agreement

FAMILY = FAMILIES["robustness_metrics"]
KEY = ["metric", "definition", "suite", "attribute", "group", "event", "probe", "statistic"]
PLAIN = "positive_minus_negative"


@pytest.fixture(scope="module")
def templated(make_cell):
    return make_cell(suites=("templates", "communion"))


@pytest.fixture(scope="module")
def rows(templated, quick):
    return FAMILY.compute(templated, settings=quick)


def loop_delta(cell, template, positive, negative):
    """Return the bias of every image, candidate by candidate."""
    logits = cell.logits["templates"]
    sides = []
    for kinds in (positive, negative):
        columns = [i for i, c in enumerate(logits.suite.candidates) if c.template == template and c.category in kinds]
        sides.append(logits.cosine[:, columns].astype(float).mean(axis=1))
    return sides[0] - sides[1]


POLES = {
    ("crime", PLAIN): (["crime:demographic"], ["crime:crime", "crime:non_human"]),
    ("crime", "crime_vs_non_human"): (["crime:crime"], ["crime:non_human"]),
    ("communion", PLAIN): (["communion:positive"], ["communion:negative"]),
    ("agency", PLAIN): (["agency:positive"], ["agency:negative"]),
}


def test_every_row_has_the_schema_a_key_n_and_a_reason_for_what_it_lacks(rows):
    assert rows.columns == list(METRIC_SCHEMA) and rows.select(KEY).is_duplicated().sum() == 0
    assert set(rows["metric"]) == set(FAMILY.metrics) - {"intra_set_cosine", "template_rank_correlation"}
    assert rows["n"].null_count() == 0 and rows["suite_hash"].n_unique() == 1
    undefined = rows.filter(pl.col("value").is_nan() | pl.col("ci_low").is_nan())
    assert undefined["reason"].null_count() == 0


@pytest.mark.parametrize("task", POLES, ids="-".join)
def test_bias_by_template_and_group_is_the_loop(task, rows, templated):
    event, definition = task
    race = templated.records["race"].to_list()
    for template in ("orig", "image_of", "portrait"):
        delta = loop_delta(templated, template, *POLES[task])
        key = {"metric": "directional_bias", "event": event, "definition": definition, "probe": template}
        mean = one(rows, **key, group=None, statistic="estimate")
        assert mean["value"] == pytest.approx(delta.mean(), abs=1e-9) and mean["n"] == len(delta)
        assert mean["ci_low"] < mean["value"] < mean["ci_high"] and mean["p"] is None
        spread = one(rows, **key, group=None, statistic="sd")
        assert spread["value"] == pytest.approx(delta.std(ddof=1))
        own = [d for d, r in zip(delta, race) if r == "Black"]
        black = one(rows, **key, attribute="race", group="Black", statistic="estimate")
        assert black["value"] == pytest.approx(np.mean(own)) and black["n"] == len(own)


def test_the_shift_is_between_the_means_of_the_bias(rows):
    for (event, definition), _ in POLES.items():
        key = {"event": event, "definition": definition}
        for group in (None, "Black", "man", "Black_man"):
            bias = rows.filter(
                pl.col("group").eq_missing(group), metric="directional_bias", statistic="estimate", **key
            )
            shift = one(rows, metric="template_shift", group=group, **key)
            assert bias.height == 3
            assert shift["value"] == pytest.approx(bias["value"].max() - bias["value"].min())
            assert 0 <= shift["p"] <= 1 and shift["reason"].startswith("furthest apart: ")


def test_gaps_between_groups_are_those_of_their_means(rows):
    for (event, definition), _ in POLES.items():
        for template in ("orig", "image_of", "portrait"):
            key = {"event": event, "definition": definition, "probe": template, "attribute": "race"}
            means = rows.filter(metric="directional_bias", **key)
            gap = one(rows, metric="directional_bias_gap", **key)
            assert gap["value"] == pytest.approx(means["value"].max() - means["value"].min())
            assert 0 <= gap["p"] <= 1 and gap["n"] == means["n"].sum()
            ends = [means.sort("value")["group"][i] for i in (0, -1)]
            assert gap["reason"].startswith(f"furthest apart: {ends[0]} and {ends[1]}")


def test_harm_by_bias_size_is_the_loop(rows, templated):
    logits = templated.logits["templates"]
    for event, (positive, negative) in ((e, p) for (e, d), p in POLES.items() if d == PLAIN):
        delta = loop_delta(templated, "orig", positive, negative)
        columns = [
            i for i, c in enumerate(logits.suite.candidates)
            if c.template == "orig" and c.category in positive + negative
        ]  # fmt: skip
        top = logits.cosine[:, columns].argmax(axis=1)
        harmful = [logits.suite.candidates[columns[t]].category in negative for t in top]
        mass = np.exp(100.0 * logits.cosine[:, columns].astype(float))
        mass /= mass.sum(axis=1, keepdims=True)
        bad = np.array([logits.suite.candidates[c].category in negative for c in columns])
        scaled = mass[:, ~bad].sum(axis=1) - mass[:, bad].sum(axis=1)
        for definition, bias in (("cosine", delta), ("scaled", scaled)):
            key = {"event": event, "definition": definition, "probe": "orig", "attribute": "bias_magnitude"}
            shares = []
            for low, name in ((0.0, "[0.0, 0.1)"), (0.1, "[0.1, 0.2)"), (0.6, "[0.6, ∞)")):
                high = np.inf if low == 0.6 else low + 0.1
                own = [h for h, d in zip(harmful, bias) if low <= abs(d) < high]
                bin_row = one(rows, metric="harm_by_bias_size", group=name, **key)
                assert bin_row["n"] == len(own)
                assert bin_row["value"] == pytest.approx(np.mean(own) if own else np.nan, nan_ok=True)
                filled = one(rows, metric="bias_size_bin_share", group=name, **key)
                assert filled["value"] == pytest.approx(len(own) / len(harmful)) and filled["n"] == len(harmful)
            bins = rows.filter(metric="harm_by_bias_size", **key).sort("group")
            shares = bins["value"].to_list()
            elbow = one(rows, metric="bias_size_elbow", group=None, **key)
            first = [i for i, share in enumerate(shares) if share >= 0.5]
            assert elbow["value"] == pytest.approx(first[0] / 10 if first else np.nan, nan_ok=True)
            assert ("no elbow" in (elbow["reason"] or "")) == (not first)
            largest = one(rows, metric="max_harm_by_bias_size", group=None, **key)
            assert largest["value"] == max(share for share in shares if share == share)
            assert "in [" in largest["reason"]


def test_a_planted_shift_moves_the_means_by_it_and_leaves_the_spread(templated, rows, quick):
    """Adding 0.25 to every cosine of the positive prompts of one template adds 0.25 to every Δ under it."""
    logits = templated.logits["templates"]
    planted = logits.cosine.copy()
    moved = [
        i for i, c in enumerate(logits.suite.candidates)
        if c.template == "portrait" and c.category == "agency:positive"
    ]  # fmt: skip
    planted[:, moved] += np.float32(0.25)
    cell = replace(templated, logits={"templates": replace(logits, cosine=planted)})
    after = FAMILY.compute(cell, settings=quick)
    key = {"metric": "directional_bias", "event": "agency", "group": None}
    for template, by in (("orig", 0.0), ("portrait", 0.25)):
        old, new = (one(f, **key, probe=template, statistic="estimate")["value"] for f in (rows, after))
        assert new - old == pytest.approx(by, abs=1e-6)
        old, new = (one(f, **key, probe=template, statistic="sd")["value"] for f in (rows, after))
        assert new == pytest.approx(old, abs=1e-6)
    old, new = (f.filter(event="communion") for f in (rows, after))
    assert_frame_equal(old, new)


def test_the_order_of_images_changes_nothing(templated, rows, quick):
    order = np.random.default_rng(1).permutation(templated.records.height)
    logits = templated.logits["templates"]
    shuffled = replace(
        templated,
        records=templated.records[order],
        logits={"templates": replace(logits, cosine=logits.cosine[order], logits=logits.logits[order])},
    )
    assert_frame_equal(FAMILY.compute(shuffled, settings=quick).sort(KEY), rows.sort(KEY), check_exact=True)


def test_filtered_rows_do_not_count(templated, quick):
    kept = np.arange(templated.records.height) % 3 == 0
    rows = FAMILY.compute(replace(templated, keep={"templates": kept}), settings=quick)
    delta = loop_delta(templated, "orig", *POLES["communion", PLAIN])[kept]
    key = {"metric": "directional_bias", "event": "communion", "probe": "orig", "group": None}
    assert one(rows, **key, statistic="estimate")["value"] == pytest.approx(delta.mean())
    assert set(rows.filter(metric="bias_size_bin_share")["n"]) == {int(kept.sum())}


def test_sets_widen_the_intervals(templated, rows, quick):
    race = templated.records["race"].fill_null("none")
    in_sets = replace(templated, records=templated.records.with_columns(set_id=race))
    wide = FAMILY.compute(in_sets, settings=quick)
    key = {"metric": "directional_bias", "event": "crime", "probe": "orig", "group": None, "definition": PLAIN}
    alone, grouped = (one(f, **key, statistic="estimate") for f in (rows, wide))
    assert grouped["value"] == alone["value"]
    assert grouped["ci_high"] - grouped["ci_low"] > 2 * (alone["ci_high"] - alone["ci_low"])
    assert "only 8 sets" in grouped["reason"]


def test_a_neutral_control_has_no_groups_and_says_how_alike_its_portraits_are(templated, quick):
    portraits = np.arange(19)
    logits = templated.logits["templates"]
    images = np.random.default_rng(2).normal(size=(19, 8)).astype(np.float32) + 1
    cell = replace(
        templated,
        records=templated.records[portraits].select("image_id"),
        logits={"templates": replace(logits, cosine=logits.cosine[:19], logits=logits.logits[:19])},
        images=images,
    )
    rows = FAMILY.compute(cell, settings=quick)
    mean, sd = (one(rows, metric="intra_set_cosine", statistic=s) for s in ("estimate", "sd"))
    cosines = [float(a @ b / np.linalg.norm(a) / np.linalg.norm(b)) for i, a in enumerate(images) for b in images[:i]]
    assert mean["value"] == pytest.approx(np.mean(cosines), rel=1e-5) and mean["n"] == 19
    assert sd["value"] == pytest.approx(np.std(cosines, ddof=1), rel=1e-5)
    assert mean["ci_low"] < mean["value"] < mean["ci_high"] and mean["suite"] is None
    assert rows.filter(metric="directional_bias")["group"].null_count() == 2 * 3 * 4
    without = FAMILY.compute(replace(cell, images=None), settings=quick)
    assert_frame_equal(without, rows.filter(pl.col("metric") != "intra_set_cosine"))


def test_one_image_and_none(templated, quick):
    logits = templated.logits["templates"]
    first = {"templates": replace(logits, cosine=logits.cosine[:1], logits=logits.logits[:1])}
    cell = replace(templated, records=templated.records[:1].select("image_id"), logits=first)
    rows = FAMILY.compute(cell, settings=quick)
    assert rows.filter(metric="directional_bias", statistic="estimate")["value"].is_finite().all()
    assert rows.filter(metric="directional_bias", statistic="sd")["value"].is_nan().all()
    assert rows.filter(metric="template_shift")["p"].is_nan().all()
    none = FAMILY.compute(replace(cell, keep={"templates": np.zeros(1, dtype=bool)}), settings=quick)
    assert none.filter(pl.col("metric") != "bias_size_bin_share")["value"].is_nan().all()
    assert none["reason"].null_count() == 0 and set(none["n"]) == {0}


def test_an_encoder_without_cosines_has_no_rows(templated, quick):
    logits = templated.logits["templates"]
    bare = replace(templated, logits={"templates": replace(logits, cosine=None)})
    assert FAMILY.compute(bare, settings=quick).height == 0
    assert FAMILY.compute(replace(templated, logits={}), settings=quick).height == 0


def test_agreement_of_checkpoints_across_templates(rows):
    def as_model(name, change):
        value = pl.when(probe="portrait").then(pl.col("value") * change).otherwise("value")
        return rows.with_columns(pl.lit(name).alias("model"), value.alias("value"))

    # Every model the same under orig and image_of but for a factor; under portrait the order is turned round.
    scaled = [
        as_model(name, -1).with_columns(pl.col("value") * factor)
        for name, factor in (("a", 1.0), ("b", 2.0), ("c", 3.0), ("d", 4.0))
    ]
    table = pl.concat(scaled)
    found = template_agreement(table)
    assert set(found["model"]) == {"all"} and set(found["metric"]) == {"template_rank_correlation"}
    assert found.height == 4 * 3 and set(found["n"]) == {4}
    means = {r["probe"]: r["value"] for r in rows.filter(
        pl.col("group").is_null(), metric="directional_bias", event="agency", statistic="estimate"
    ).iter_rows(named=True)}  # fmt: skip
    row = one(found, event="agency", reference_group="image_of", group="orig")
    sign = np.sign(means["image_of"] * means["orig"])
    assert row["value"] == pytest.approx(sign) and row["p"] == pytest.approx(1 / 24 if sign > 0 else 1)
    assert_frame_equal(template_agreement(table.reverse()), found)
    assert template_agreement(rows).height == 0
    two = template_agreement(pl.concat(scaled[:2]))
    assert two["value"].is_nan().all() and two["reason"].str.contains("three checkpoints").all()


def test_the_metric_table_has_intervals_of_the_rank_correlation_at_the_confidence_of_the_audit(rows):
    rng = np.random.default_rng(0)
    frames = [
        rows.with_columns(model=pl.lit(f"m{i}"), value=pl.Series(rng.normal(size=rows.height))) for i in range(12)
    ]

    def ends(**asked):
        own = metric_table(frames, audit_id="a", **asked).filter(metric="template_rank_correlation")
        return own.select("event", "definition", "group", "reference_group", "value", "ci_low", "ci_high")

    assert_frame_equal(ends(), ends(confidence=0.95))
    wide, narrow = ends(), ends(confidence=0.5)
    assert wide.height and (wide["value"] == narrow["value"]).all()
    assert (wide["ci_low"] < narrow["ci_low"]).all() and (narrow["ci_high"] < wide["ci_high"]).all()


def test_p_of_equal_orders_is_that_of_one_order_among_all():
    for checkpoints in (5, 12):
        same = np.arange(checkpoints)
        assert rank_agreement(same, same).p == pytest.approx(1 / math.factorial(checkpoints))


def test_opposite_and_tied_orders_have_a_p_too():
    ranks = np.arange(12.0)
    assert rank_agreement(ranks, -ranks).p == 1
    tied = np.repeat([0.0, 1.0], 6)
    assert rank_agreement(tied, tied).p == pytest.approx(math.factorial(6) ** 2 / math.factorial(12))
