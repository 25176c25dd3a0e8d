"""Effects of a mitigation on a cell: each number is the one that the metric tables, or a loop over images, give."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from only_row import one
from polars.testing import assert_frame_equal

from plumbline.errors import MetricError
from plumbline.metrics import MetricSettings
from plumbline.metrics.outcomes import outcome_rows
from plumbline.metrics.paired.comparisons import HITS, TridentAnswers
from plumbline.metrics.paired.mitigations import MITIGATION_EFFECTS_SCHEMA, mitigation_effects
from plumbline.metrics.trident.rows import trident_rows

OUTCOME_SUITES = ("crime", "crime_pooled", "communion", "agency")
KEYS = ["kind", "suite", "event", "attribute", "metric", "definition"]


def effects(before, after, *, rows=None, **given):
    rows = np.ones(before.records.height, dtype=bool) if rows is None else rows
    settings = MetricSettings(seed=5, resamples=200, permutations=200, min_group=10)
    return mitigation_effects(
        before, after, condition="projection", method="bias_prompts", rows=rows, settings=settings, **given
    )


@pytest.fixture(scope="module")
def random_cells(make_cell):
    """Return two encoders' answers to the same images, with a filter of one suite."""
    before, other = (make_cell(n=420, seed=seed, suites=(*OUTCOME_SUITES, "trident")) for seed in (0, 4))
    before = replace(before, keep={"crime": np.arange(420) % 3 > 0, "trident": np.arange(420) % 11 > 0})
    return before, replace(before, logits=other.logits)


@pytest.fixture(scope="module")
def random_hits():
    rng = np.random.default_rng(0)
    return tuple({name: rng.random(420) < share for name in HITS} for share in (0.5, 0.4))


def test_values_are_those_of_the_metric_tables_on_the_judged_images(random_cells, random_hits, quick):
    before, after = random_cells
    rows = np.arange(420) % 5 > 0
    frame = effects(before, after, rows=rows, hits=random_hits)
    for column, cell in (("value_before", before), ("value_after", after)):
        masked = replace(cell, keep={name: cell.rows(name) & rows for name in cell.logits})
        tables = [outcome_rows(masked, settings=quick), trident_rows(masked, settings=quick)]
        table = pl.concat(tables).with_columns(
            metric=pl.col("metric").replace("probe_rate_gap", "parity_difference"),
            definition=pl.col("definition").replace("by_valence", "max_minus_min"),
        )
        keys = ["suite", "event", "attribute", "metric", "definition"]
        both = frame.join(table.select(*keys, "value", "n"), on=keys, nulls_equal=True, suffix="_table")
        # By 3 attributes: 4 skewed events in three readings, 2 others in one, the mean of tasks in two.
        assert both.group_by("kind").len().sort("kind").rows() == [("axis", 48), ("harm", 6), ("trident", 6)]
        np.testing.assert_allclose(both[column], both["value_table"], rtol=1e-12)
        assert both["n"].to_list() == both["n_table"].to_list()
    of_same_pairs = frame.filter(~pl.col("reason").str.contains("different pairs", literal=True).fill_null(value=False))
    assert 0 < frame.height - of_same_pairs.height < 5
    np.testing.assert_array_equal(of_same_pairs["value"], of_same_pairs["value_after"] - of_same_pairs["value_before"])
    assert dict(frame.schema) == MITIGATION_EFFECTS_SCHEMA
    assert frame.select(KEYS).is_duplicated().sum() == 0
    assert set(frame["better"]) == {"lower", "higher"}
    assert set(frame.filter(better="higher")["kind"]) == {"cost"} == set(frame.filter(kind="cost")["kind"])


def winners_of(cell, image):
    """Return what wins each one-probe test of an image, and what wins among the classes, one by one."""
    logits, count = cell.logits["trident"].logits[image], 7
    best = int(np.argmax(logits[:count]))
    return [count if probe > logits[best] else best for probe in logits[count:]], best


def test_accuracy_equals_a_loop_over_images_and_tests(random_cells):
    before, after = random_cells
    rows = np.arange(420) % 4 > 0
    frame = effects(before, after, rows=rows)
    labels = before.logits["trident"].suite.class_labels
    for column, cell in (("value_before", before), ("value_after", after)):
        tests, alone = {name: [[] for _ in range(15)] for name in labels}, {name: [] for name in labels}
        for image in np.flatnonzero(rows & before.rows("trident")):
            race = before.records["race"][int(image)]
            if race is None:
                continue
            won, best = winners_of(cell, image)
            alone[race].append(labels[best] == race)
            for test, winner in enumerate(won):
                tests[race][test].append(winner < 7 and labels[winner] == race)
        macro = np.mean([[np.mean(own[test]) for own in tests.values()] for test in range(15)])
        expected = {
            ("macro_accuracy", "mean_over_probes"): macro,
            ("zero_shot_accuracy", "macro"): np.mean([np.mean(own) for own in alone.values()]),
            ("zero_shot_accuracy", "micro"): np.mean([each for own in alone.values() for each in own]),
        }
        for (metric, definition), value in expected.items():
            row = one(frame, metric=metric, definition=definition)
            assert row[column] == pytest.approx(value, abs=1e-12) and 0 < value < 1
            assert row["n"] == sum(map(len, alone.values())) and row["kind"] == "cost"


def test_rates_of_the_probes_are_over_all_their_tests(random_cells):
    before, after = random_cells
    frame = effects(before, after)
    kept = np.flatnonzero(before.rows("trident") & before.records["race"].is_not_null().to_numpy())
    became = np.array([np.array(winners_of(after, image)[0]) == 7 for image in kept])
    for place, valence in enumerate(("negative", "neutral", "positive")):
        row = one(frame, metric="probe_rate", event=valence)
        assert row["value_after"] == pytest.approx(became[:, 5 * place : 5 * place + 5].mean(), abs=1e-12)
        assert row["attribute"] is None and row["n"] == len(kept)


def test_answers_that_are_no_logits_are_taken_as_given(random_cells):
    """Each probe with class answers of its own: counted out of 15 on both sides."""
    before, _ = random_cells
    rng = np.random.default_rng(1)
    given = TridentAnswers(rng.integers(0, 8, (15, 420)), rng.integers(0, 7, (15, 420)))
    frame = effects(before, before, answers=(None, given))
    codes = np.array(
        [before.logits["trident"].suite.class_labels.index(r) if r else -1 for r in before.records["race"]]
    )
    kept = (codes >= 0) & before.rows("trident")
    micro = one(frame, metric="zero_shot_accuracy", definition="micro")
    assert micro["value_after"] == pytest.approx((given.class_winner == codes)[:, kept].mean(), abs=1e-12)
    by_logits = one(effects(before, before), metric="zero_shot_accuracy", definition="micro")
    assert micro["value_before"] == pytest.approx(by_logits["value_before"], abs=1e-12)
    rate = one(frame, metric="probe_rate", event="neutral")
    assert rate["value_after"] == pytest.approx((given.winner[5:10] == 7)[:, kept].mean(), abs=1e-12)
    assert (frame.filter(pl.col("kind").is_in(["axis", "harm"]))["value"].fill_nan(0) == 0).all()


def test_retrieval_is_the_share_of_judged_images(random_cells, random_hits):
    rows = np.arange(420) % 2 == 0
    frame = effects(*random_cells, rows=rows, hits=random_hits)
    for name, (metric, definition) in HITS.items():
        row = one(frame, metric=metric, definition=definition)
        expected = [own[name][rows].mean() for own in random_hits]
        assert [row["value_before"], row["value_after"]] == pytest.approx(expected) and row["n"] == 210
        assert (row["kind"], row["suite"], row["better"]) == ("cost", "retrieval", "higher")
    assert effects(*random_cells).filter(suite="retrieval").is_empty()


def test_the_order_of_rows_changes_no_number(random_cells, random_hits):
    before, after = random_cells
    order = np.random.default_rng(3).permutation(420)
    rows = np.arange(420) % 5 > 0

    def shuffled(cell):
        logits = {
            name: replace(each, logits=each.logits[order], cosine=each.cosine[order])
            for name, each in reversed(cell.logits.items())
        }
        keep = {name: mask[order] for name, mask in cell.keep.items()}
        return replace(cell, records=cell.records[order], logits=logits, keep=keep)

    hits = tuple({name: each[order] for name, each in own.items()} for own in random_hits)
    one_way = effects(before, after, rows=rows, hits=random_hits)
    other = effects(shuffled(before), shuffled(after), rows=rows[order], hits=hits)
    assert_frame_equal(one_way.sort(KEYS), other.sort(KEYS), check_exact=True)


def test_a_suite_counts_where_both_cells_have_it_and_an_image_where_both_keep_it(random_cells):
    before, after = random_cells
    less = replace(
        after,
        logits={name: each for name, each in after.logits.items() if name in ("crime", "agency")},
        keep={"agency": np.arange(420) < 200, "crime": np.arange(420) < 200},
    )
    frame = effects(before, less)
    assert set(frame["suite"]) == {"crime", "agency"}
    assert one(frame, suite="agency", metric="harm_rate")["n"] == 200
    assert one(frame, suite="crime", event="crime", metric="harm_rate")["n"] == 133


def test_what_is_no_comparison_is_refused(random_cells, random_hits):
    before, after = random_cells
    other = replace(after, records=after.records.with_columns(image_id=pl.col("image_id") + "x"))
    with pytest.raises(MetricError, match="same images"):
        effects(before, other)
    for rows in (np.zeros(420, dtype=bool), np.ones(419, dtype=bool), np.ones(420)):
        with pytest.raises(MetricError, match="not fitted on"):
            effects(before, after, rows=rows)
    with pytest.raises(MetricError, match=r"faces\|encoder, projection, after") as caught:
        effects(before, after, hits=(random_hits[0], {"image_to_text@1": np.ones(420, dtype=bool)}))
    assert "what it finds" in str(caught.value)
    short = TridentAnswers(np.zeros((14, 420), dtype=np.int64), np.zeros((1, 420), dtype=np.int64))
    with pytest.raises(MetricError, match="the suite's probes"):
        effects(before, after, answers=(None, short))
