"""Rows of the ranking family: what is there, that it equals the public functions, and that order changes nothing."""

import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from plumbline.catalog.schema import METRIC_SCHEMA
from plumbline.errors import MetricError
from plumbline.metrics import MetricSettings, max_skew_at_k, ndkl, skew_at_k
from plumbline.metrics.rankings.ranking import ImageClusters, RankedGroups
from plumbline.metrics.rankings.skew_at_k import default_k, sample_top
from plumbline.metrics.registry import FAMILIES

KEY = ["metric", "definition", "statistic", "suite", "attribute", "group", "event", "probe"]
QUICK = MetricSettings(seed=5, resamples=200, permutations=200, min_group=20)
FAMILY = FAMILIES["ranking_metrics"]
definition = pl.col("definition")


@pytest.fixture(scope="module")
def faces(make_cell):
    """Return a cell with ties: cosines are rounded, and a third of the faces share them."""
    cell = make_cell(n=300, suites=("perception",))
    own = cell.logits["perception"]
    cosine = np.round(own.cosine, 2)
    cosine[::3] = cosine[0]
    return replace(cell, logits={"perception": replace(own, cosine=cosine)})


@pytest.fixture(scope="module")
def rows(faces):
    return FAMILY.compute(faces, settings=QUICK)


def only(frame, **key):
    found = frame.filter(*[pl.col(name).eq_missing(wanted) for name, wanted in key.items()])
    assert found.height == 1, (key, found.height)
    return found.row(0, named=True)


def score_of(cell, scale=None, word=None):
    """Return the mean over templates, and over the words of a scale, written out."""
    own = cell.logits["perception"]
    words = own.suite.scales[scale] if scale else [word]
    columns = [
        [i for i, c in enumerate(own.suite.candidates) if c.word == w and c.template == t]
        for t in own.suite.templates
        for w in words
    ]
    assert all(len(each) == 1 for each in columns)
    return own.cosine[:, [each[0] for each in columns]].astype(float).mean(axis=1)


def test_rows_have_the_schema_unique_keys_n_and_an_interval_or_a_reason(rows):
    assert rows.columns == list(METRIC_SCHEMA)
    assert rows.select(KEY).is_duplicated().sum() == 0
    assert set(rows["metric"]) == set(FAMILY.metrics)
    assert set(rows["statistic"]) == {"estimate", "chance"} and set(rows["condition"]) == {"before"}
    assert rows["n"].null_count() == 0 and rows["suite_hash"].null_count() == 0
    undefined = rows.filter(pl.col("ci_low").is_nan() | pl.col("value").is_infinite())
    assert undefined["reason"].null_count() == 0
    defined = rows.filter(pl.col("ci_low").is_not_nan())
    assert (defined["ci_low"] <= defined["ci_high"]).all()
    estimates = rows.filter(statistic="estimate")
    assert estimates["p"].is_between(0, 1, closed="right").all()
    assert rows.filter(statistic="chance")["p"].null_count() == rows.filter(statistic="chance").height
    assert set(rows["attribute"]) == {"gender", "race"}, "crossed groups are left out"
    assert set(rows.filter(metric="skew_at_k")["k"]) == {default_k(n) for n in (289, 290)}
    assert rows.filter(metric="ndkl")["k"].null_count() == rows.filter(metric="ndkl").height


@pytest.mark.parametrize(("event", "probe"), [("warmth", None), ("communion_negative", None), (None, "honest")])
@pytest.mark.parametrize("attribute", ["race", "gender"])
def test_rows_are_what_the_public_functions_give(rows, faces, event, probe, attribute):
    # The public functions break ties by position, so they are given the faces by id.
    order = np.argsort(faces.records["image_id"].to_numpy())
    scores, labels = score_of(faces, event, probe)[order], faces.records[attribute].to_numpy()[order]
    n = sum(label is not None for label in labels)
    k = default_k(n)
    key = {"attribute": attribute, "event": event, "probe": probe, "statistic": "estimate"}
    for desired in ("equal", "ranked") if event else ("equal",):
        skews = skew_at_k(scores, labels, k=k, desired=desired)
        estimates = skew_at_k(scores, labels, k=k, desired=desired, interval=QUICK, seed=QUICK.seed)
        for each in skews:
            row = only(rows, metric="skew_at_k", definition=desired, group=each.group, **key)
            assert row["value"] == pytest.approx(each.value, rel=1e-12)
            assert row["n"] == (labels == each.group).sum() and row["k"] == k
            assert row["ci_low"] < row["value"] < row["ci_high"]
            same = ("value", "p") if desired == "ranked" else ("value", "ci_low", "ci_high", "p")  # totals are drawn
            for end in same:
                assert row[end] == pytest.approx(getattr(estimates[each.group], end), abs=1e-12)
        largest = only(rows, metric="max_skew_at_k", definition=desired, **key)
        expected = max_skew_at_k(scores, labels, k=k, desired=desired)
        assert largest["value"] == pytest.approx(expected.value, rel=1e-12) and largest["n"] == n
        whole = only(rows, metric="ndkl", definition=desired, **key)
        assert whole["value"] == pytest.approx(ndkl(scores, labels, desired=desired)[0], abs=1e-12)
        assert whole["n"] == n and 0 <= whole["ci_low"] < whole["value"] < whole["ci_high"]
    if probe:
        assert rows.filter(definition="ranked", probe=probe).height == 0


def test_the_mean_over_the_words_is_another_reading_than_the_skew_of_their_mean(rows, faces):
    order = np.argsort(faces.records["image_id"].to_numpy())
    labels = faces.records["race"].to_numpy()[order]
    k = default_k(sum(label is not None for label in labels))
    scale = "communion_negative"
    key = {"event": scale, "probe": None, "statistic": "estimate", "attribute": "race"}
    each = [
        {one.group: one for one in skew_at_k(score_of(faces, word=word)[order], labels, k=k)}
        for word in faces.logits["perception"].suite.scales[scale]
    ]
    for group in each[0]:
        found = only(rows, metric="skew_at_k", definition="mean_of_words", group=group, **key)
        assert found["value"] == pytest.approx(np.mean([one[group].floored for one in each]), rel=1e-12)
        assert found["ci_low"] < found["value"] < found["ci_high"] and found["p"] is None
        assert found["value"] != only(rows, metric="skew_at_k", definition="equal", group=group, **key)["value"]
    largest = only(rows, metric="max_skew_at_k", definition="mean_of_words", **key)
    assert largest["value"] == pytest.approx(np.mean([max(o.floored for o in one.values()) for one in each]), rel=1e-12)
    assert np.isnan(largest["ci_low"]) and "too large in resamples" in largest["reason"]


def test_k_is_a_setting_and_one_beyond_the_images_is_refused_with_the_numbers(faces, rows):
    ten = FAMILY.compute(faces, settings=replace(QUICK, skew_k=10))
    assert set(ten["k"].drop_nulls()) == {10}
    key = {"metric": "skew_at_k", "definition": "equal", "attribute": "gender", "event": "warmth", "group": "man"}
    assert only(ten, statistic="estimate", **key)["value"] != only(rows, statistic="estimate", **key)["value"]
    with pytest.raises(MetricError, match=r"skew_k 1,000, and 2\d\d labelled images[\s\S]*`skew_k: auto`"):
        FAMILY.compute(faces, settings=replace(QUICK, skew_k=1000))


def test_words_have_one_definition_and_every_word_is_there_once(rows, faces):
    suite = faces.logits["perception"].suite
    words = {word for scale in suite.scales.values() for word in scale}
    by_word = rows.filter(pl.col("probe").is_not_null())
    assert set(by_word["probe"]) == words and set(by_word["definition"]) == {"equal"}
    assert set(rows["event"].drop_nulls()) == set(suite.scales)
    assert by_word.filter(metric="ndkl", attribute="race").height == len(words)


def test_chance_stands_beside_the_values(rows, faces):
    chance = only(rows, metric="ndkl", definition="equal", statistic="chance", attribute="race")
    rng = np.random.default_rng(0)
    labels = faces.records["race"].drop_nulls().to_numpy()
    values = ndkl(rng.random((len(labels), 400)), labels)
    assert chance["value"] == pytest.approx(values.mean(), rel=0.05) and chance["value"] > 0
    assert chance["ci_low"] == pytest.approx(np.quantile(values, 0.025), rel=0.1)
    assert chance["ci_high"] == pytest.approx(np.quantile(values, 0.975), rel=0.1)
    assert "not an estimate" in chance["reason"]
    k = only(rows, metric="max_skew_at_k", definition="ranked", statistic="chance", attribute="race")["k"]
    assert k == default_k(len(labels))


def test_row_order_does_not_matter_even_with_ties(faces, rows):
    order = np.random.default_rng(3).permutation(faces.records.height)
    own = faces.logits["perception"]
    moved = {"perception": replace(own, logits=own.logits[order], cosine=own.cosine[order])}
    shuffled = replace(faces, records=faces.records[order], logits=moved)
    again = FAMILY.compute(shuffled, settings=QUICK)
    assert_frame_equal(rows.sort(KEY), again.sort(KEY), check_exact=True)


def test_filtered_rows_take_no_rank(faces):
    keep = np.arange(faces.records.height) % 2 == 0
    filtered = FAMILY.compute(replace(faces, keep={"perception": keep}), settings=QUICK)
    own = faces.logits["perception"]
    half = {"perception": replace(own, logits=own.logits[keep], cosine=own.cosine[keep])}
    fewer = replace(faces, records=faces.records.filter(pl.Series(keep)), logits=half)
    assert_frame_equal(filtered, FAMILY.compute(fewer, settings=QUICK))


def test_an_absent_group_is_minus_infinity_with_a_finite_variant(faces):
    own = faces.logits["perception"]
    last = (faces.records["race"] == "Black").fill_null(False).to_numpy()
    cosine = np.where(last[:, None], -1.0, own.cosine).astype(np.float32)
    rows = FAMILY.compute(replace(faces, logits={"perception": replace(own, cosine=cosine)}), settings=QUICK)
    key = {"metric": "skew_at_k", "event": "warmth", "group": "Black"}
    equal, floored = (only(rows, definition=d, **key) for d in ("equal", "floored"))
    assert equal["value"] == -math.inf and equal["p"] < 1e-6
    assert "no image of the group among the" in equal["reason"]
    # All its images are far below the best: no resample has one of them there.
    assert math.isnan(equal["ci_low"]) and "resamples do not vary" in equal["reason"]
    assert floored["value"] == pytest.approx(math.log(7 / equal["k"]))
    # Only groups that are absent, and only for scales.
    assert set(rows.filter(definition="floored")["group"]) == {"Black"}
    assert rows.filter(definition="floored")["probe"].null_count() == 8


def test_small_groups_are_flagged(faces):
    rows = FAMILY.compute(faces, settings=replace(QUICK, min_group=100))
    by_race = rows.filter(attribute="race", metric="skew_at_k")
    assert by_race["reason"].str.contains("small group").all()
    largest = rows.filter(attribute="race", metric="max_skew_at_k", statistic="estimate")
    assert largest["reason"].str.contains("fewer than 100 images in").all()


def test_nothing_without_cosines_labels_or_faces(faces, make_cell):
    own = faces.logits["perception"]
    blind = replace(faces, logits={"perception": replace(own, cosine=None)})
    assert FAMILY.compute(blind, settings=QUICK).height == 0
    assert FAMILY.compute(make_cell(n=40, suites=("crime",)), settings=QUICK).height == 0
    bare = replace(faces, records=faces.records.select("image_id"))
    assert FAMILY.compute(bare, settings=QUICK).height == 0
    one = replace(faces, keep={"perception": np.arange(faces.records.height) == 1})
    assert FAMILY.compute(one, settings=QUICK).height == 0


@pytest.fixture(scope="module")
def in_sets(make_cell):
    """Return faces that come in sets of six: of one race, both genders, and nearly the same score."""
    cell = make_cell(n=360, suites=("perception",))
    own = cell.logits["perception"]
    noise = np.random.default_rng(0).normal(0, 0.01, own.cosine.shape)
    cosine = (own.cosine[np.arange(360) // 6 * 6] + noise).astype(np.float32)
    sets = pl.Series([f"set {i // 6}" for i in range(360)])
    race = cell.records["race"].gather(np.arange(360) // 6 * 6)
    records = cell.records.with_columns(set_id=sets, race=race)
    return replace(cell, records=records, logits={"perception": replace(own, cosine=cosine)})


def test_whole_sets_are_resampled(in_sets):
    alone = replace(in_sets, records=in_sets.records.drop("set_id"))
    together, apart = (FAMILY.compute(cell, settings=QUICK).filter(statistic="estimate") for cell in (in_sets, alone))
    assert_frame_equal(together.select(*KEY, "value", "n"), apart.select(*KEY, "value", "n"))
    assert together["p"].is_between(0, 1, closed="right").all()
    ratio = {}
    for attribute in ("race", "gender"):
        chosen = [f.filter(metric="skew_at_k", attribute=attribute, definition="equal") for f in (together, apart)]
        widths = [(f["ci_high"] - f["ci_low"]).to_numpy() for f in chosen]
        ratio[attribute] = np.nanmedian(widths[0] / np.where(np.isfinite(widths[1]), widths[1], np.nan))
    # Six faces of one race and one score are worth little more than one; of both genders alike, they cancel out.
    assert ratio["race"] > 1.7 and ratio["gender"] < 0.7


def test_too_few_sets_are_said(in_sets):
    few = in_sets.records.with_columns(set_id=pl.Series([f"set {i // 30}" for i in range(360)]))
    rows = FAMILY.compute(replace(in_sets, records=few), settings=QUICK).filter(statistic="estimate")
    assert rows["reason"].str.contains("interval from only 12 sets").all()


@pytest.mark.parametrize(("n", "k"), [(401, 200), (1999, 999), (2000, 1000), (9000, 1000)])
def test_the_published_k_is_asked_where_it_is_at_most_half(n, k):
    assert default_k(n) == k


def test_resamples_of_sets_that_have_no_k_images_are_left_out():
    sets = np.repeat(np.arange(6), [1, 1, 1, 1, 1, 20])
    groups = np.arange(25) % 2
    clusters = ImageClusters.of(sets, groups, settings=QUICK, labels=["a"])
    top = sample_top(RankedGroups(np.arange(25)[None], groups, 2, clusters), k=12, settings=QUICK, labels=["a"])
    resamples = top.resampled.shape[-1]
    assert 0.5 < resamples / QUICK.resamples < 0.8, "the large set is in 1 - (5/6)^6 = 67% of them"
    assert (top.resampled.sum(axis=1) == 12).all()


@pytest.mark.parametrize("sets", [1, 2])
def test_one_or_two_sets_give_values_and_say_what_is_missing(in_sets, sets):
    names = pl.Series([f"set {i * sets // 360}" for i in range(360)])
    cell = replace(in_sets, records=in_sets.records.with_columns(set_id=names))
    rows = FAMILY.compute(cell, settings=QUICK).filter(statistic="estimate").filter(definition != "mean_of_words")
    assert rows["value"].is_not_nan().all() and rows["p"].is_between(0, 1, closed="right").all()
    assert rows["reason"].str.contains(f"interval from only {sets} sets").all()
    genders = rows.filter(attribute="gender")
    assert genders["reason"].str.contains("too few sets to test: no difference").all() and (genders["p"] > 0.05).all()
    if sets == 1:
        undefined = rows.filter(pl.col("ci_low").is_nan())
        assert undefined.filter(metric="ndkl").height == rows.filter(metric="ndkl").height
        assert undefined["reason"].str.contains("no interval").all()


def test_fewer_permutations_than_usual_are_said(in_sets, monkeypatch):
    usual = FAMILY.compute(in_sets, settings=QUICK)["reason"]
    assert not usual.fill_null("").str.contains("permutations").any()
    monkeypatch.setattr("plumbline.metrics.rankings.ranking.MAX_WORK", 360 * 150)
    rows = FAMILY.compute(in_sets, settings=QUICK).filter(statistic="estimate").filter(definition != "mean_of_words")
    assert rows["reason"].str.contains(r"p from only 15\d permutations").all()


def test_ndkl_of_words_is_not_tested_where_shuffling_would_take_too_long(in_sets, monkeypatch):
    # 40 words and 360 images a permutation: a hundred permutations of the scales fit, of the words they do not.
    monkeypatch.setattr("plumbline.metrics.rankings.ndkl.MAX_WORK", 100 * 8 * 360)
    rows = FAMILY.compute(in_sets, settings=QUICK).filter(metric="ndkl", statistic="estimate")
    untested = rows.filter(pl.col("p").is_nan())
    assert set(untested["probe"]) == set(rows["probe"].drop_nulls())
    assert untested["reason"].str.contains("not tested").all()


def test_rows_of_a_cell_like_fairface_stay_few(make_cell):
    cell = make_cell(n=400, suites=("perception",))
    ages = pl.Series([f"age {i % 9}" for i in range(400)])
    rows = FAMILY.compute(replace(cell, records=cell.records.with_columns(age_group=ages)), settings=QUICK)
    assert rows.height < 1600
