"""Rows of the association family: that they equal the plain functions, and respect groups, sets and filters."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from only_row import one
from polars.testing import assert_frame_equal

from plumbline.catalog.schema import METRIC_SCHEMA
from plumbline.metrics import markedness, sc_weat, valence_correlation
from plumbline.metrics.associations import association_rows
from plumbline.metrics.registry import FAMILIES

KEY = ["metric", "definition", "suite", "attribute", "group", "reference_group", "event", "probe"]
SUITES = ("perception", "markedness")


@pytest.fixture(scope="module")
def faces(make_cell):
    """Return a cell of 420 images, seven races and two genders, some unlabelled."""
    return make_cell(suites=SUITES)


@pytest.fixture(scope="module")
def rows(faces, quick):
    return association_rows(faces, settings=quick)


def by_word(cell):
    """Return the words and the cosines averaged over templates, the obvious way."""
    logits = cell.logits["perception"]
    words = list(dict.fromkeys(w for scale in logits.suite.scales.values() for w in scale))
    columns = [[i for i, c in enumerate(logits.suite.candidates) if c.word == word] for word in words]
    assert all(len(own) == 4 for own in columns)
    return words, np.column_stack([logits.cosine[:, own].astype(float).mean(axis=1) for own in columns])


def test_rows_have_the_schema_unique_keys_n_and_an_interval_or_a_reason(rows):
    assert rows.columns == list(METRIC_SCHEMA)
    assert rows.select(KEY).is_duplicated().sum() == 0
    assert set(rows["metric"]) == set(FAMILIES["association_metrics"].metrics)
    assert rows["n"].null_count() == 0 and rows["suite_hash"].null_count() == 0
    undefined = rows.filter(pl.col("ci_low").is_nan() | pl.col("value").is_nan())
    assert undefined["reason"].null_count() == 0
    defined = rows.filter(pl.col("ci_low").is_not_nan())
    assert (defined["ci_low"] <= defined["value"]).all() and (defined["value"] <= defined["ci_high"]).all()
    tested = rows.filter(pl.col("metric").str.contains("weat|gap"))
    assert tested["p"].null_count() == 0 and tested["p"].is_between(0, 1).all()


def test_two_groups_are_compared_in_the_order_of_their_names(rows, faces):
    gender = np.array(faces.records["gender"].to_list(), dtype=object)
    known = gender != None  # noqa: E711 - elementwise
    words, cosine = by_word(faces)
    found = sc_weat(cosine[known], gender[known] == "man", permutations=20_000, seed=np.random.default_rng(1))
    common = {"attribute": "gender", "group": "man", "reference_group": "woman", "definition": "studentised"}
    for i, word in enumerate(words):
        row = one(rows, metric="sc_weat_effect", probe=word, **common)
        assert row["value"] == pytest.approx(found.effect_size[i], rel=1e-9) and row["n"] == known.sum()
        assert row["event"] is None
        # 200 permutations against 20,000.
        assert row["p"] == pytest.approx(found.p_value[i], abs=4.5 * 0.5 / 200**0.5)
    genders = rows.filter(attribute="gender")
    assert set(genders.filter(metric="sc_weat_effect")["group"]) == {"man"}


def test_a_scale_is_the_mean_over_its_words_and_has_its_variants(rows, faces):
    race = np.array([r or "" for r in faces.records["race"]])
    known = race != ""
    words, cosine = by_word(faces)
    scale = faces.logits["perception"].suite.scales["competence"]
    chosen = cosine[known][:, [words.index(word) for word in scale]]
    options = {"permutations": 20_000, "seed": np.random.default_rng(2)}
    mine = {
        "studentised": sc_weat(chosen, race[known] == "Black", **options),
        "ddof_0": sc_weat(chosen, race[known] == "Black", ddof=0, **options),
        "raw_means": sc_weat(chosen, race[known] == "Black", test="raw_means", **options),
        "strict": sc_weat(chosen, race[known] == "Black", test="raw_means", strict=True, **options),
        "two_sided": sc_weat(chosen, race[known] == "Black", alternative="two-sided", **options),
    }
    key = {"attribute": "race", "group": "Black", "event": "competence"}
    for definition, found in mine.items():
        row = one(rows, metric="sc_weat_effect", definition=definition, **key)
        assert row["value"] == pytest.approx(found.category.effect_size, rel=1e-9)
        assert row["p"] == pytest.approx(found.category.p_value, abs=0.16)
        assert row["reference_group"] == "others" and row["probe"] is None and row["n"] == known.sum()
        assert row["ci_low"] < row["value"] < row["ci_high"]
    statistic = one(rows, metric="sc_weat_statistic", definition="studentised", **key)
    assert statistic["value"] == pytest.approx(mine["studentised"].category.statistic, rel=1e-9)
    p = {d: one(rows, metric="sc_weat_effect", definition=d, **key)["p"] for d in mine}
    assert p["studentised"] == p["ddof_0"] != p["raw_means"]
    of_mean = sc_weat(chosen.mean(axis=1)[:, None], race[known] == "Black", **options)
    assert statistic["p"] == pytest.approx(of_mean.p_value[0], abs=0.16)
    # 200 random partitions without ties: the data themselves are what `strict` leaves out.
    assert p["strict"] == pytest.approx((p["raw_means"] * 201 - 1) / 200)
    less = (201 + 1 - p["studentised"] * 201) / 201
    assert p["two_sided"] == pytest.approx(min(1, 2 * min(p["studentised"], less)))


def test_weat_compares_the_images_on_the_words_of_two_poles(rows, faces):
    race = np.array([r or "" for r in faces.records["race"]])
    words, cosine = by_word(faces)
    scales = faces.logits["perception"].suite.scales
    good, bad = ([words.index(w) for w in scales[f"agency_{pole}"]] for pole in ("positive", "negative"))
    s = cosine[:, good].mean(axis=1) - cosine[:, bad].mean(axis=1)
    mine, others = s[race == "Indian"], s[(race != "Indian") & (race != "")]
    effect = (mine.mean() - others.mean()) / np.concatenate([mine, others]).std(ddof=1)
    key = {"metric": "weat_effect", "attribute": "race", "group": "Indian", "event": "agency"}
    row = one(rows, definition="studentised", **key)
    assert row["value"] == pytest.approx(effect, rel=1e-9) and row["ci_low"] < effect < row["ci_high"]
    assert one(rows, definition="two_sided", **key)["p"] <= 2 * row["p"] + 1e-12
    assert set(rows.filter(metric="weat_effect")["event"]) == {"agency", "belief", "communion"}


def test_correlations_are_by_group_and_by_gender_and_race(rows, faces):
    words, cosine = by_word(faces)
    scales = faces.logits["perception"].suite.scales
    poles = [
        cosine[:, [words.index(w) for w in scales[f"belief_{pole}"]]].mean(axis=1) for pole in ("positive", "negative")
    ]
    key = {"metric": "valence_correlation", "event": "belief"}
    both = np.array([r == "Black" and g == "woman" for r, g in zip(faces.records["race"], faces.records["gender"])])
    cases = {
        ("gender_race", "Black_woman"): both,
        ("race", "Black"): (faces.records["race"] == "Black").fill_null(False).to_numpy(),
        (None, None): np.ones(len(both), bool),
    }
    for (attribute, group), mask in cases.items():
        found = valence_correlation(poles[0][mask], poles[1][mask])
        row = one(rows, attribute=attribute, group=group, **key)
        assert row["n"] == mask.sum() and row["p"] is None
        assert [row["value"], row["ci_low"], row["ci_high"]] == pytest.approx(
            [found.value, found.ci_low, found.ci_high], rel=1e-9
        )
    groups = rows.filter(metric="valence_correlation", event="belief", attribute="gender_race")
    assert groups.height == 14


def test_markedness_rows_equal_the_loop(rows, faces):
    logits = faces.logits["markedness"]
    column = {(c.template, c.category, c.word): i for i, c in enumerate(logits.suite.candidates)}
    black = [i for i, race in enumerate(faces.records["race"]) if race == "Black"]
    percents = []
    for template in logits.suite.templates:
        neutral = logits.cosine[black, column[template, "blank", ""]]
        marked = logits.cosine[black, column[template, "race", "Black"]]
        percents.append(100 * np.mean([a > b for a, b in zip(neutral, marked)]))
        row = one(rows, metric="markedness", definition=template, attribute="race", group="Black")
        plain = markedness(neutral, marked)
        assert row["value"] == pytest.approx(percents[-1]) == pytest.approx(plain.value)
        assert (row["ci_low"], row["ci_high"]) == pytest.approx((plain.ci_low, plain.ci_high))
        assert row["n"] == len(black)
    key = {"metric": "markedness", "definition": "mean_over_templates", "attribute": "race"}
    assert one(rows, group="Black", **key)["value"] == pytest.approx(np.mean(percents))
    means = rows.filter(**key)["value"]
    gap = one(rows, metric="markedness_gap", attribute="race")
    assert gap["value"] == pytest.approx(means.max() - means.min()) and 0 < gap["p"] <= 1
    assert gap["ci_low"] <= gap["value"] <= gap["ci_high"]


def test_labels_that_no_prompt_names_have_no_markedness(faces, quick):
    records = faces.records.with_columns(
        pl.when(pl.col("race") == "Indian").then(pl.lit("Martian")).otherwise("race").alias("race")
    )
    found = association_rows(replace(faces, records=records), settings=quick)
    races = set(found.filter(metric="markedness", attribute="race")["group"])
    assert "Martian" not in races and len(races) == 6
    assert "Martian" in set(found.filter(metric="sc_weat_effect", attribute="race")["group"])
    before = association_rows(faces, settings=quick)
    key = {"metric": "markedness", "definition": "photo", "attribute": "race", "group": "White"}
    assert one(found, **key)["value"] == one(before, **key)["value"]


def test_few_images_are_compared_with_all_partitions(make_cell, quick):
    few = make_cell(n=16, suites=("perception",))
    gender = np.array([g or "" for g in few.records["gender"]])
    _, cosine = by_word(few)
    known = gender != ""
    found = sc_weat(cosine[known], gender[known] == "man", seed=np.random.default_rng(0))
    assert found.exact
    order = few.records["image_id"].arg_sort().to_numpy()
    assert (order == np.arange(16)).all()
    mine = association_rows(few, settings=quick).filter(
        pl.col("probe").is_not_null(), metric="sc_weat_effect", attribute="gender"
    )
    np.testing.assert_array_equal(mine["p"].to_numpy(), found.p_value)
    assert mine["reason"].str.contains("fewer than 10 images in man, woman").all()


def test_the_order_of_images_changes_nothing(faces, rows, quick):
    order = np.random.default_rng(3).permutation(faces.records.height)
    shuffled = replace(
        faces,
        records=faces.records[order],
        logits={
            name: replace(logits, logits=logits.logits[order], cosine=logits.cosine[order])
            for name, logits in reversed(list(faces.logits.items()))
        },
    )
    other = association_rows(shuffled, settings=quick)
    assert_frame_equal(rows.sort(KEY), other.sort(KEY), check_exact=True)


def test_filters_count_and_unlabelled_images_do_not(faces, quick):
    keep = np.arange(faces.records.height) % 3 != 0
    filtered = replace(faces, keep=dict.fromkeys(SUITES, keep))
    alone = replace(
        faces,
        records=faces.records.filter(keep),
        logits={
            name: replace(logits, logits=logits.logits[keep], cosine=logits.cosine[keep])
            for name, logits in faces.logits.items()
        },
    )
    assert_frame_equal(association_rows(filtered, settings=quick), association_rows(alone, settings=quick))
    gender = association_rows(alone, settings=quick).filter(metric="sc_weat_effect", attribute="gender")
    assert set(gender["n"]) == {alone.records["gender"].is_not_null().sum()}


def test_merged_labels_are_those_of_the_filter(faces, quick):
    merged = faces.records.with_columns(pl.col("race").str.replace(".*Asian", "Asian"))
    found = association_rows(replace(faces, relabelled=dict.fromkeys(SUITES, merged)), settings=quick)
    assert "Asian" in set(found.filter(metric="sc_weat_effect", attribute="race")["group"])
    assert one(found, metric="markedness", definition="photo", group="Asian")["n"] > 0


def test_only_what_is_there_is_computed(faces, make_cell, quick):
    blind = replace(faces, logits={name: replace(logits, cosine=None) for name, logits in faces.logits.items()})
    assert association_rows(blind, settings=quick).height == 0
    assert association_rows(make_cell(n=60, suites=("communion",)), settings=quick).height == 0
    bare = replace(faces, records=faces.records.select("image_id"))
    found = association_rows(bare, settings=quick)
    assert set(found["metric"]) == {"valence_correlation"} and found.height == 3
    single = replace(faces, records=faces.records.with_columns(gender=pl.lit("man")).drop("race"))
    found = association_rows(single, settings=quick)
    assert set(found["metric"]) == {"valence_correlation", "markedness"}


def test_a_group_of_one_image_and_constant_cosines(faces, quick):
    gender = ["woman", *["man"] * (faces.records.height - 1)]
    lonely = replace(faces, records=faces.records.select("image_id").with_columns(gender=pl.Series(gender)))
    found = association_rows(lonely, settings=quick).filter(metric="sc_weat_effect")
    assert found["value"].is_finite().all() and found["ci_low"].is_nan().all()
    assert found["reason"].str.contains("no interval: one image or set in a group").all()
    logits = faces.logits["perception"]
    flat = replace(faces, logits={"perception": replace(logits, cosine=np.full_like(logits.cosine, 0.25))})
    found = association_rows(flat, settings=quick)
    effects = found.filter(pl.col("metric").str.contains("effect"))
    assert effects["value"].is_nan().all() and effects["ci_low"].is_nan().all()
    assert effects["reason"].str.contains("the cosines do not vary").all()
    assert (effects.filter(definition="studentised")["p"] == 1).all()
    statistic = found.filter(metric="sc_weat_statistic")
    assert (statistic["value"].abs() < 1e-15).all()
