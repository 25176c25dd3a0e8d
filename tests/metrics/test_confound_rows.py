"""Rows of the confounds: they are what statsmodels and the obvious loops give; what is left out."""

from dataclasses import replace
from itertools import combinations, product

import numpy as np
import polars as pl
import pytest
import statsmodels.api as sm
from polars.testing import assert_frame_equal
from scipy import stats

from plumbline.catalog.schema import METRIC_SCHEMA
from plumbline.catalog.suites import load_suite
from plumbline.metrics import Cell, SuiteLogits
from plumbline.metrics.confounds import PROTECTED, matched_pairs
from plumbline.metrics.perception import valence_words
from plumbline.metrics.registry import FAMILIES

LEVELS = {
    "age": (0.8, 2.0, 3.2, 4.4),
    "lighting": (-1, 0, 1, 3),
    "pose": (-3, -1.5, 0, 1.5, 3),
    "smiling": (-2.5, -1, 0, 1, 2),
}
RACES, GENDERS = ("Asian", "Black", "White"), ("man", "woman")
KEY = ["metric", "definition", "attribute", "group", "reference_group", "event", "statistic"]
FAMILY = FAMILIES["confound_metrics"]
SUITE = load_suite("perception")
WORDS = valence_words(SUITE)


def varied_cell(seeds=5, seed=0):
    """Draw faces whose smile lifts positive words and lowers negative ones; a seed has a face of its own."""
    rng = np.random.default_rng(seed)
    who = list(product(range(seeds), RACES, GENDERS, *[[(d, v) for d, vs in LEVELS.items() for v in vs]]))
    records = pl.DataFrame(
        {
            "image_id": [f"{i:06x}" for i in range(len(who))],
            "set_id": [str(s) for s, *_ in who],
            "race": [r for _, r, _, _ in who],
            "gender": [g for _, _, g, _ in who],
            "dimension": [d for *_, (d, _) in who],
            "level": [f"{v:g}" for *_, (_, v) in who],
        }
    )
    level = np.array([v for *_, (_, v) in who])
    smile = np.where(records["dimension"] == "smiling", level, 0.0)
    side = np.array(
        [{"positive": 1.0, "negative": -1.0}.get(WORDS.get(c.word, ("", ""))[1], 0.0) for c in SUITE.candidates]
    )
    face = 0.01 * rng.normal(size=(seeds, len(side)))[[s for s, *_ in who]]
    cosine = 0.2 + face + 0.004 * smile[:, None] * side + 0.005 * rng.normal(size=(len(who), len(side)))
    cosine = cosine.astype(np.float32)
    return Cell("encoder", "causalface", records, {"perception": SuiteLogits(SUITE, 100 * cosine, cosine, 100.0)}, {})


@pytest.fixture(scope="module")
def varied():
    return varied_cell()


@pytest.fixture(scope="module")
def rows(varied, quick):
    return FAMILY.compute(varied, settings=quick)


def row(frame, **key):
    key = {"statistic": "estimate"} | key
    tests = [pl.col(name).is_null() if wanted is None else pl.col(name) == wanted for name, wanted in key.items()]
    found = frame.filter(*tests)
    assert found.height == 1, (key, found.height)
    return found.row(0, named=True)


def outcomes(cell):
    """Return the template mean of cos(word) - cos(blank), word by word, by a loop over the candidates."""
    cosine = cell.logits["perception"].cosine.astype(float)
    place = {(c.template, c.word): i for i, c in enumerate(SUITE.candidates)}
    return {
        word: np.mean([cosine[:, place[t, word]] - cosine[:, place[t, ""]] for t in SUITE.templates], axis=0)
        for word in WORDS
    }


def of_valence(cell, valence):
    return np.stack([y for w, y in outcomes(cell).items() if valence in (None, WORDS[w][1])], axis=1)


def test_the_abc_words_have_a_dimension_and_a_valence():
    assert len(WORDS) == 32
    assert WORDS["wealthy"] == ("agency", "positive") and WORDS["religious"] == ("belief", "negative")
    assert "competent" not in WORDS


def test_rows_have_the_schema_unique_keys_n_and_an_interval_or_a_reason(rows):
    assert rows.columns == list(METRIC_SCHEMA)
    assert rows.select(KEY).is_duplicated().sum() == 0
    assert set(rows["metric"]) == set(FAMILY.metrics)
    assert rows["n"].null_count() == 0 and rows["suite_hash"].null_count() == 0
    estimates = rows.filter(statistic="estimate")
    defined = estimates.filter(pl.col("ci_low").is_not_nan())
    assert (defined["ci_low"] <= defined["value"]).all() and (defined["value"] <= defined["ci_high"]).all()
    assert rows.filter(pl.col("value").is_nan() | pl.col("ci_low").is_nan())["reason"].null_count() == 0
    assert set(rows["statistic"]) == {"estimate", "standard_error", "t"}


PARTS = {"all": lambda x: np.isfinite(x), "below": lambda x: x <= 0, "above": lambda x: x >= 0}


@pytest.mark.parametrize("valence", [None, "positive", "negative"])
@pytest.mark.parametrize(
    ("confound", "part"),
    [
        ("age", "all"),
        ("lighting", "all"),
        ("pose", "below"),
        ("pose", "above"),
        ("smiling", "all"),
        ("smiling", "below"),
    ],
)
def test_slopes_are_those_of_statsmodels(rows, varied, confound, part, valence):
    level = varied.records["level"].cast(float).to_numpy()
    chosen = (varied.records["dimension"] == confound).to_numpy() & PARTS[part](level)
    y, x, sets = (of_valence(varied, valence)[chosen], level[chosen], varied.records["set_id"].to_numpy()[chosen])
    words = y.shape[1]
    model = sm.OLS(y.ravel(), sm.add_constant(np.repeat(x, words)))
    groups = {"groups": np.unique(np.repeat(sets, words), return_inverse=True)[1]}
    each = np.unique(x)
    means = sm.OLS([y[x == v].mean() for v in each], sm.add_constant(each))
    fits = {
        "ols": model.fit(),
        "cluster": model.fit(cov_type="cluster", cov_kwds=groups, use_t=True),
        "level_means": means.fit(),
    }
    for definition, expected in fits.items():
        key = {"definition": definition, "attribute": confound, "group": part, "event": valence}
        for i, metric in enumerate(("confound_intercept", "confound_slope")):
            found = row(rows, metric=metric, **key)
            assert found["value"] == pytest.approx(expected.params[i], rel=1e-6)
            assert found["p"] == pytest.approx(expected.pvalues[i], rel=1e-4, abs=1e-12)
            np.testing.assert_allclose([found["ci_low"], found["ci_high"]], expected.conf_int()[i], rtol=1e-4)
            assert found["n"] == chosen.sum()
            error = row(rows, metric=metric, statistic="standard_error", **key)
            assert error["value"] == pytest.approx(expected.bse[i], rel=1e-6)
        r_squared = row(rows, metric="confound_r_squared", **key)["value"]
        assert r_squared == pytest.approx(expected.rsquared, rel=1e-6)


def test_the_planted_smile_is_found(rows):
    key = {"metric": "confound_slope", "definition": "cluster", "attribute": "smiling", "group": "all"}
    up, down = row(rows, event="positive", **key), row(rows, event="negative", **key)
    assert up["ci_low"] < 0.004 < up["ci_high"] and up["p"] < 0.001
    assert down["ci_low"] < -0.004 < down["ci_high"]


def test_only_two_sided_confounds_are_split(rows):
    slopes = rows.filter(metric="confound_slope", statistic="estimate")
    parts = {c: set(slopes.filter(attribute=c)["group"]) for c in LEVELS}
    both = {"all", "below", "above"}
    assert parts == {"age": {"all"}, "lighting": {"all"}, "pose": both, "smiling": both}


def test_level_means_are_the_obvious_means(rows, varied):
    level = varied.records["level"].to_numpy()
    smiling = (varied.records["dimension"] == "smiling").to_numpy()
    for valence, wanted in (("positive", "-2.5"), ("negative", "1")):
        chosen = smiling & (level == wanted)
        own = of_valence(varied, valence)[chosen].mean(axis=1)
        key = {"metric": "perception_by_level", "attribute": "smiling", "group": wanted}
        found = row(rows, definition="less_blank", event=valence, **key)
        assert found["value"] == pytest.approx(own.mean(), rel=1e-6) and found["n"] == chosen.sum() == 30
        by_set = own.reshape(5, 6).mean(axis=1)
        low, high = stats.ttest_1samp(by_set, 0).confidence_interval(0.95)
        np.testing.assert_allclose([found["ci_low"], found["ci_high"]], [low, high], rtol=1e-5)
        raw = row(rows, definition="raw", event=valence, **key)["value"]
        blank = row(rows, definition="raw", event="blank", **key)["value"]
        assert raw - blank == pytest.approx(found["value"], rel=1e-5)
    curves = rows.filter(metric="perception_by_level")
    assert curves.height == 7 * sum(map(len, LEVELS.values()))


def test_curves_within_sets_are_of_the_shape(rows, varied):
    age = (varied.records["dimension"] == "age").to_numpy()
    level, sets = (varied.records[name].to_numpy()[age] for name in ("level", "set_id"))
    own = of_valence(varied, "negative")[age].mean(axis=1)
    table = np.array([[own[(sets == s) & (level == v)].mean() for v in ("0.8", "2", "3.2", "4.4")] for s in "01234"])
    shape = table - table.mean(axis=1, keepdims=True) + table.mean()
    key = {"metric": "perception_by_level", "attribute": "age", "event": "negative", "group": "3.2"}
    found, plain = (row(rows, definition=d, **key) for d in ("within_sets", "less_blank"))
    half = stats.t.ppf(0.975, 4) * shape[:, 2].std(ddof=1) / np.sqrt(5) * np.sqrt(4 / 3)
    assert found["value"] == pytest.approx(plain["value"], rel=1e-9)
    np.testing.assert_allclose(
        [found["ci_low"], found["ci_high"]], [found["value"] - half, found["value"] + half], rtol=1e-6
    )
    assert found["ci_high"] - found["ci_low"] < plain["ci_high"] - plain["ci_low"]


def slow_changes(cell, attribute, valence):
    """Return (set, absolute change) of every pair that differs in one attribute alone, by a double loop."""
    y, found = of_valence(cell, valence), []
    records = cell.records.to_dicts()
    varied = attribute if attribute in LEVELS else None
    for i, j in combinations(range(len(records)), 2):
        a, b = records[i], records[j]
        if varied and not a["dimension"] == b["dimension"] == varied:
            continue
        differ = {k for k in ("set_id", "race", "gender", "dimension", "level") if a[k] != b[k]}
        if differ == {"level" if varied else attribute}:
            found.append((a["set_id"], np.abs(y[i] - y[j]).mean()))
    return found


def test_changes_are_those_of_pairs_that_differ_in_one_thing(quick):
    cell = varied_cell(seeds=3, seed=4)
    frame = FAMILY.compute(cell, settings=quick)
    slow = {name: slow_changes(cell, name, "negative") for name in ("smiling", "race", "gender", "age")}
    for name, pairs in slow.items():
        sizes = np.array([size for _, size in pairs])
        for definition in ("ttest", "cluster"):
            found = row(frame, metric="attribute_change", definition=definition, attribute=name, event="negative")
            assert found["value"] == pytest.approx(sizes.mean(), rel=1e-6) and found["n"] == len(pairs)
    for protected in PROTECTED:
        key = {
            "metric": "confound_vs_protected",
            "attribute": "smiling",
            "reference_group": protected,
            "event": "negative",
        }
        a, b = (np.array([size for _, size in slow[n]]) for n in ("smiling", protected))
        expected = stats.ttest_ind(a, b)
        found = row(frame, definition="ttest", **key)
        assert found["value"] == pytest.approx(a.mean() - b.mean(), rel=1e-5)
        assert found["p"] == pytest.approx(expected.pvalue, rel=1e-3)
        assert row(frame, definition="ttest", **key | {"statistic": "t"})["value"] == pytest.approx(
            expected.statistic, rel=1e-4
        )
        means = [[np.mean([size for s, size in slow[n] if s == own]) for own in "012"] for n in ("smiling", protected)]
        paired = row(frame, definition="cluster", **key)
        assert paired["p"] == pytest.approx(stats.ttest_rel(*means).pvalue, rel=1e-3)


@pytest.mark.parametrize("event", ["warmth", "agency_negative", "blank", "race:Black"])
def test_changes_of_a_dimension_and_of_control_prompts_are_those_of_the_obvious_loop(quick, event):
    cell = varied_cell(seeds=3, seed=4)
    suite = load_suite("markedness")
    marked = np.random.default_rng(7).normal(0.2, 0.01, size=(cell.records.height, len(suite.candidates)))
    logits = {**cell.logits, "markedness": SuiteLogits(suite, 100 * marked, marked, 100.0)}
    frame = FAMILY.compute(replace(cell, logits=logits), settings=quick).filter(definition="by_dimension")
    cosine = cell.logits["perception"].cosine.astype(float)
    place = {(c.template, c.word): i for i, c in enumerate(SUITE.candidates)}
    of_word = {w: np.mean([cosine[:, place[t, w]] for t in SUITE.templates], axis=0) for w in ("", *WORDS, "warm")}
    of_word |= {w: np.mean([cosine[:, place[t, w]] for t in SUITE.templates], axis=0) for w in SUITE.scales["warmth"]}
    if event in SUITE.scales:
        y = np.stack([of_word[w] - of_word[""] for w in SUITE.scales[event]], axis=1)
    elif event == "blank":
        y = of_word[""][:, None]
    else:
        chosen = [i for i, c in enumerate(suite.candidates) if (c.category, c.word) == ("race", "Black")]
        y = marked[:, chosen].mean(axis=1)[:, None]
    records = cell.records.to_dicts()
    keys = ("set_id", "race", "gender", "dimension", "level")
    sizes = [
        np.abs(y[i] - y[j]).mean()
        for i, j in combinations(range(len(records)), 2)
        if {k for k in keys if records[i][k] != records[j][k]} == {"gender"}
    ]
    found = row(frame, metric="attribute_change", attribute="gender", event=event)
    assert found["value"] == pytest.approx(np.mean(sizes), rel=1e-5) and found["n"] == len(sizes)
    assert set(frame["event"]) == {*SUITE.scales, "blank", *(f"race:{r}" for r in RACES), "gender:man", "gender:woman"}


def test_without_markedness_prompts_the_blank_is_the_only_control(rows):
    events = set(rows.filter(metric="attribute_change", definition="by_dimension")["event"])
    assert events == {*SUITE.scales, "blank"}


def test_every_confound_meets_every_protected_attribute(rows):
    pairs = rows.filter(metric="confound_vs_protected", definition="ttest", statistic="estimate", event="positive")
    found = set(pairs.select("attribute", "reference_group").rows())
    assert found == set(product(("lighting", "pose", "smiling"), PROTECTED))


def test_few_sets_and_counting_as_independent_are_said(rows):
    slope = {"metric": "confound_slope", "attribute": "pose", "group": "below", "event": None}
    assert row(rows, definition="cluster", **slope)["reason"] == "interval from only 5 sets"
    assert "words of an image and the images of a set for independent" in row(rows, definition="ols", **slope)["reason"]
    assert row(rows, definition="level_means", **slope)["reason"] == "a line through 3 means"


def test_images_without_a_level_or_outside_the_filter_do_not_count(varied, quick, rows):
    n = varied.records.height
    extra = varied.records.head(3).with_columns(
        level=pl.Series([None, "frontal", "1"]), dimension=pl.Series(["pose", "pose", None]), image_id=pl.lit("x")
    )
    logits = varied.logits["perception"]
    longer = {
        "perception": replace(
            logits, logits=logits.logits[[*range(n), 0, 1, 2]], cosine=logits.cosine[[*range(n), 0, 1, 2]]
        )
    }
    more = replace(varied, records=pl.concat([varied.records, extra]), logits=longer)
    assert_frame_equal(FAMILY.compute(more, settings=quick), rows)
    keep = {"perception": (varied.records["set_id"] != "4").to_numpy()}
    fewer = FAMILY.compute(replace(varied, keep=keep), settings=quick)
    whole = row(rows, metric="confound_slope", definition="ols", attribute="age", group="all", event=None)["n"]
    kept = row(fewer, metric="confound_slope", definition="ols", attribute="age", group="all", event=None)["n"]
    assert kept * 5 == whole * 4


def test_missing_levels_and_labels_leave_what_is_left(varied, quick):
    records = varied.records.with_columns(
        race=pl.when(pl.col("set_id") == "0").then(None).otherwise("race"),
        dimension=pl.when((pl.col("dimension") == "pose") & (pl.col("level") != "0")).then(None).otherwise("dimension"),
    )
    frame = FAMILY.compute(replace(varied, records=records), settings=quick)
    alone = row(frame, metric="confound_slope", definition="cluster", attribute="pose", group="below", event="positive")
    assert np.isnan(alone["value"]) and np.isnan(alone["ci_low"]) and "two levels, and there is one" in alone["reason"]
    none = row(frame, metric="attribute_change", definition="ttest", attribute="pose", event="positive")
    assert np.isnan(none["value"]) and none["n"] == 0 and "no two images" in none["reason"]
    against = row(
        frame,
        metric="confound_vs_protected",
        definition="cluster",
        attribute="pose",
        reference_group="age",
        event="positive",
    )
    assert np.isnan(against["value"]) and np.isnan(against["p"]) and "no two images" in against["reason"]
    races = row(frame, metric="attribute_change", definition="ttest", attribute="race", event="positive")
    assert races["n"] == 4 * 2 * 3 * (4 + 4 + 1 + 5)


def test_a_dataset_without_levels_or_an_encoder_without_cosines_has_no_rows(varied, cell, quick):
    assert FAMILY.compute(cell, settings=quick).is_empty()
    plain = replace(varied, records=varied.records.drop("level"))
    assert FAMILY.compute(plain, settings=quick).is_empty()
    unlabelled = varied.records.with_columns(dimension=pl.lit(None, pl.String), level=pl.lit(None, pl.String))
    assert FAMILY.compute(replace(varied, records=unlabelled), settings=quick).is_empty()
    blind = {"perception": replace(varied.logits["perception"], cosine=None)}
    assert FAMILY.compute(replace(varied, logits=blind), settings=quick).is_empty()


def test_without_race_gender_or_sets_there_are_still_lines(varied, quick):
    bare = replace(varied, records=varied.records.select("image_id", "dimension", "level"))
    frame = FAMILY.compute(bare, settings=quick)
    slope = row(
        frame, metric="confound_slope", definition="cluster", attribute="smiling", group="all", event="positive"
    )
    assert slope["value"] == pytest.approx(0.004, abs=5e-4) and slope["reason"] is None
    assert frame.filter(metric="attribute_change")["value"].is_nan().all()
    assert set(frame.filter(metric="attribute_change")["attribute"]) == set(LEVELS)


def test_the_order_of_the_images_changes_nothing(varied, quick, rows):
    order = np.random.default_rng(3).permutation(varied.records.height)
    logits = varied.logits["perception"]
    moved = {"perception": replace(logits, logits=logits.logits[order], cosine=logits.cosine[order])}
    shuffled = replace(varied, records=varied.records[order], logits=moved)
    by = [*KEY]
    assert_frame_equal(FAMILY.compute(shuffled, settings=quick).sort(by), rows.sort(by), abs_tol=1e-12)


def test_matched_pairs_take_each_pair_once_and_skip_unlabelled():
    records = pl.DataFrame(
        {"set_id": ["a", "a", "a", "b", None, None], "gender": ["man", "woman", None, "man", "man", "woman"]}
    )
    assert matched_pairs(records, "gender", fixed=("set_id",)).tolist() == [[0, 1]]
    assert matched_pairs(records.head(1), "gender", fixed=("set_id",)).shape == (0, 2)
