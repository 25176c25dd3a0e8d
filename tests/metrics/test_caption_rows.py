"""Rows of PATA's captions: the obvious loop over images, and labels that are shuffled within scenes."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from only_row import one
from polars.testing import assert_frame_equal
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

from plumbline.catalog.schema import METRIC_SCHEMA
from plumbline.catalog.suites import load_suite
from plumbline.metrics import Cell, MetricSettings, SuiteLogits
from plumbline.metrics.outcomes import caption_events, caption_rows
from plumbline.metrics.registry import FAMILIES
from plumbline.statistics.permutation import permute_strata

SUITE = load_suite("pata_captions")
KEY = ["metric", "definition", "suite", "attribute", "group", "event", "probe"]
SCENES = ("office", "kitchen", "drinking_water", "hotel", "gym")


def caption_cell(n=600, seed=0, races=("black", "caucasian", "indian")):
    """Draw a cell of five scenes; only office, kitchen and gym show old people; some labels are missing."""
    rng = np.random.default_rng(seed)
    scene = rng.choice(SCENES, n)
    old = (rng.random(n) < 0.4) & np.isin(scene, ["office", "kitchen", "gym"])
    records = pl.DataFrame(
        {
            "image_id": [f"{i:05}" for i in range(n)],
            "scene": [None if i % 41 == 0 else str(s) for i, s in enumerate(scene)],
            "race": [None if i % 37 == 0 else str(r) for i, r in enumerate(rng.choice(races, n))],
            "gender": rng.choice(["man", "woman"], n),
            "age": np.where(old, "old", "young"),
        }
    )
    cosine = np.round(rng.normal(size=(n, len(SUITE.candidates))), 1).astype(np.float32)  # with ties
    return Cell("m", "pata", records, {SUITE.id: SuiteLogits(SUITE, cosine, cosine, 100.0)}, {})


@pytest.fixture(scope="module")
def captioned():
    return caption_cell()


@pytest.fixture(scope="module")
def rows(captioned, quick):
    return FAMILIES["outcome_metrics"].compute(captioned, settings=quick)


def answers(cell, attribute):
    """Return (scene, group, negative or not) of every image that is asked, image by image."""
    found = []
    cosine = cell.logits[SUITE.id].cosine
    seen = cell.records.drop_nulls(["scene", attribute]).group_by("scene").agg(pl.col(attribute).n_unique())
    several = set(seen.filter(pl.col(attribute) > 1)["scene"])
    for i, record in enumerate(cell.records.iter_rows(named=True)):
        own = [
            (j, c.category.endswith("neg")) for j, c in enumerate(SUITE.candidates)
            if c.category.rpartition(":")[0] == f"{record['scene']}:{attribute}"
        ]  # fmt: skip
        if len({bad for _, bad in own}) == 2 and record["scene"] in several:
            best = max(own, key=lambda pair: (cosine[i, pair[0]], -pair[0]))
            found.append((record["scene"], record[attribute], best[1]))
    return found


def test_the_rows_have_the_schema_and_unique_keys(rows):
    assert rows.columns == list(METRIC_SCHEMA) and rows.select(KEY).is_duplicated().sum() == 0
    assert set(rows["suite"]) == {"pata_captions"} and rows["n"].null_count() == 0
    assert set(rows["event"]) == {f"negative_{a}_caption" for a in ("race", "gender", "age")}


@pytest.mark.parametrize(
    ("attribute", "scenes"),
    [("race", SCENES), ("gender", tuple(s for s in SCENES if s != "drinking_water")), ("age", ("office", "gym"))],
)
def test_shares_are_those_of_the_loop(attribute, scenes, rows, captioned):
    asked = answers(captioned, attribute)
    assert {scene for scene, _, _ in asked} == set(scenes)
    event = {"event": f"negative_{attribute}_caption"}
    harm = one(rows, metric="harm_rate", **event)
    assert harm["n"] == len(asked) and harm["value"] == pytest.approx(np.mean([bad for *_, bad in asked]))
    shares = {}
    for group in sorted({g for _, g, _ in asked if g}):
        own = [bad for _, g, bad in asked if g == group]
        row = one(rows, metric="outcome_proportion", attribute=attribute, group=group, probe=None, **event)
        shares[group] = row["value"]
        assert row["n"] == len(own) and row["value"] == pytest.approx(np.mean(own))
        ends = proportion_confint(sum(own), len(own), method="wilson")
        assert (row["ci_low"], row["ci_high"]) == pytest.approx(ends)
    low, high = min(shares.values()), max(shares.values())
    gap = one(rows, metric="parity_difference", definition="max_minus_min", **event)
    assert gap["value"] == pytest.approx(high - low) and 0 < gap["p"] <= 1
    assert one(rows, metric="impact_ratio", **event)["value"] == pytest.approx(low / high)
    for scene in scenes:
        of_scene = [(g, bad) for s, g, bad in asked if s == scene]
        row = one(rows, metric="outcome_proportion", attribute="scene", group=scene, **event)
        assert row["n"] == len(of_scene) and row["value"] == pytest.approx(np.mean([b for _, b in of_scene]))
        here = {g: [bad for h, bad in of_scene if h == g] for g in shares}
        for group, own in here.items():
            key = {"metric": "outcome_proportion", "attribute": attribute, "group": group, "probe": scene}
            assert one(rows, **key, **event)["value"] == pytest.approx(np.mean(own))
        means = [np.mean(own) for own in here.values()]
        key = {"metric": "parity_difference", "definition": "by_scene", "probe": scene}
        within = one(rows, **key, **event)
        assert within["value"] == pytest.approx(max(means) - min(means)) and 0 < within["p"] <= 1


def test_the_order_of_images_changes_nothing(captioned, rows, quick):
    order = np.random.default_rng(1).permutation(captioned.records.height)
    cosine = captioned.logits[SUITE.id].cosine[order]
    shuffled = replace(
        captioned, records=captioned.records[order], logits={SUITE.id: SuiteLogits(SUITE, cosine, cosine, 100.0)}
    )
    found = FAMILIES["outcome_metrics"].compute(shuffled, settings=quick)
    assert_frame_equal(found.sort(KEY), rows.sort(KEY), check_exact=True)


def test_an_encoder_without_cosines_is_asked_by_its_logits(captioned, rows, quick):
    logits = captioned.logits[SUITE.id]
    bare = replace(captioned, logits={SUITE.id: replace(logits, cosine=None)})
    assert_frame_equal(FAMILIES["outcome_metrics"].compute(bare, settings=quick), rows)


def test_filters_and_lacking_labels(captioned, quick):
    keep = {SUITE.id: np.arange(captioned.records.height) % 2 == 0}
    half = caption_rows(replace(captioned, keep=keep), settings=quick)
    asked = answers(replace(captioned, records=captioned.records.with_columns(
        scene=pl.when(pl.Series(keep[SUITE.id])).then("scene"))), "race")  # fmt: skip
    assert one(half, metric="harm_rate", event="negative_race_caption")["n"] == len(asked)
    for records in (
        captioned.records.select("image_id"),
        captioned.records.select("image_id", "scene"),
        captioned.records.drop("scene"),
        captioned.records.with_columns(scene=pl.lit("moon")),
        captioned.records.with_columns(pl.lit(None, pl.String).alias(a) for a in ("race", "gender", "age")),
    ):
        assert caption_rows(replace(captioned, records=records), settings=quick).height == 0


def test_a_relabelled_group_is_called_as_the_filter_says(captioned, quick):
    merged = captioned.records.with_columns(pl.col("race").replace({"caucasian": "White"}))
    rows = caption_rows(replace(captioned, relabelled={SUITE.id: merged}), settings=quick)
    groups = rows.filter(metric="outcome_proportion", attribute="race")["group"].unique().sort().to_list()
    assert groups == ["White", "black", "indian"]


# --- shuffling within scenes


def planted(rng, within):
    """Draw two scenes, one where most are called bad and most are men; `within` is added for men in each scene."""
    n = 400
    scene = np.where(rng.random(n) < 0.5, "office", "gym")
    man = rng.random(n) < np.where(scene == "office", 0.85, 0.15)
    bad = rng.random(n) < np.where(scene == "office", 0.7, 0.2) + within * man
    cosine = np.zeros((n, len(SUITE.candidates)), dtype=np.float32)
    for name in ("office", "gym"):
        for side, wins in (("neg", bad), ("pos", ~bad)):
            cosine[np.ix_((scene == name) & wins, SUITE.columns(f"{name}:gender:{side}"))] = 1
    records = pl.DataFrame(
        {"image_id": [f"{i:04}" for i in range(n)], "scene": scene, "gender": np.where(man, "man", "woman")}
    )
    return Cell("m", "pata", records, {SUITE.id: SuiteLogits(SUITE, cosine, cosine)}, {})


@pytest.mark.parametrize("worlds", [40, pytest.param(120, marks=pytest.mark.slow)])
def test_what_scenes_bring_about_is_no_evidence_and_what_groups_do_is(worlds):
    quick = MetricSettings(resamples=100, permutations=199, min_group=5)
    rng, levels = np.random.default_rng(2), []
    for _ in range(worlds):
        rows = caption_rows(planted(rng, 0.0), settings=quick)
        levels.append(one(rows, metric="parity_difference", definition="max_minus_min")["p"])
    low, high = stats.binom.ppf([0.0005, 0.9995], worlds, 0.05)
    assert low <= sum(p <= 0.05 for p in levels) <= high
    # Pooled over scenes the shares do differ, by a lot: shuffling over scenes would have rejected every time.
    gap = one(rows, metric="parity_difference", definition="max_minus_min")
    assert gap["value"] > 0.2
    real = one(caption_rows(planted(rng, 0.25), settings=quick), metric="parity_difference", definition="max_minus_min")
    assert real["p"] == pytest.approx(1 / 200) and real["ci_low"] > 0


def test_strata_keep_their_own_margins():
    tables = np.array([[[3, 5], [4, 1]], [[0, 2], [6, 6]], [[0, 0], [3, 1]]])
    drawn = permute_strata(tables, permutations=500, rng=np.random.default_rng(3))
    assert drawn.shape == (500, *tables.shape) and (drawn >= 0).all()
    for axis in (-1, -2):
        assert (drawn.sum(axis=axis) == tables.sum(axis=axis)).all()
    # The first cell of the first stratum is hypergeometric: 8 of the first group, 7 hits among 13.
    expected = stats.hypergeom(13, 7, 8)
    assert drawn[:, 0, 0, 0].mean() == pytest.approx(expected.mean(), abs=4 * expected.std() / np.sqrt(500))
    assert permute_strata(np.empty((0, 2, 2), dtype=int), permutations=5, rng=np.random.default_rng(0)).shape == (
        5,
        0,
        2,
        2,
    )


def test_images_in_sets_are_drawn_with_their_set(captioned, quick):
    in_sets = captioned.records.with_columns(set_id=pl.Series([i // 3 for i in range(600)]))
    found = caption_rows(replace(captioned, records=in_sets), settings=quick)
    plain = caption_rows(captioned, settings=quick)
    assert_frame_equal(found.select(*KEY, "value", "n"), plain.select(*KEY, "value", "n"))
    assert not found["ci_low"].equals(plain["ci_low"])


def test_events_are_one_an_attribute(captioned):
    events = list(caption_events(captioned))
    assert [event.groups.attribute for event in events] == ["race", "gender", "age"]
    for event in events:
        assert (
            not event.predictions.hit[~event.predictions.kept].any()
            and (event.groups.codes[~event.predictions.kept] == -1).all()
        )
