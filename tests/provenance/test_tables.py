import math
from statistics import NormalDist

import polars as pl
import pytest

from plumbline.catalog.schema import metric_frame
from plumbline.provenance.diff import (
    DIFF_SCHEMA,
    REGRESSED,
    causes_of_change,
    changed_cells,
    directed_metrics,
    judged,
    suite_hashes,
    table_differences,
    with_q,
    worse,
)
from plumbline.reasons import joined, reason

COMMON = {"definition": "mean_over_pairs", "dataset": "faces", "condition": "before", "statistic": "estimate"}


def regressions(found, limits):
    return judged(found, limits).filter(verdict=REGRESSED)


LIMITS = {"max_skew": 0.25, "harm_rate": 0.02, "impact_ratio": 0.1}


def row(metric, value, low, high, *, model="clip", event="crime", n=100, **more):
    estimate = {"value": value, "ci_low": low, "ci_high": high, "n": n}
    return COMMON | {"metric": metric, "model": model, "event": event} | estimate | more


def differences(old, new, paired=()):
    frames = [metric_frame(rows) for rows in (old, new)]
    return with_q([table_differences(*frames, paired, models=("clip", "clip"))])


def pair(metric, old, new, *, p=0.001, event="crime", **more):
    """One row as `paired_differences` gives it."""
    told = COMMON | {"metric": metric, "event": event, "model_old": "clip", "model_new": "clip"} | more
    ends = {"value": new - old, "ci_low": new - old - 0.01, "ci_high": new - old + 0.01}
    return told | ends | {"value_old": old, "value_new": new, "p": p, "n": 90}


def test_numbers_of_both_sides_stand_side_by_side_with_an_interval_of_both():
    found = differences([row("max_skew", 1.0, 0.8, 1.3)], [row("max_skew", 2.0, 1.6, 2.5, n=80)]).row(0, named=True)
    assert (found["value_old"], found["value_new"], found["value"]) == (1.0, 2.0, 1.0)
    assert (found["n_old"], found["n_new"]) == (100, 80)
    # Zou & Donner: each end takes the nearer distances of the two intervals.
    assert found["ci_low"] == pytest.approx(1.0 - math.hypot(0.4, 0.3))
    assert found["ci_high"] == pytest.approx(1.0 + math.hypot(0.5, 0.2))
    assert found["compared"] == "as if independent" and "independent" in found["reason"]
    # A normal estimate with the nearer end at 0.5 has an error of 0.5 / 1.96.
    assert found["p"] == pytest.approx(2 * NormalDist().cdf(-1.0 / (0.5 / 1.959964)), rel=1e-4)


def test_a_paired_comparison_stands_for_the_rows_of_the_tables():
    tables = [row("max_skew", 1.0, 0.8, 1.3)], [row("max_skew", 2.0, 1.6, 2.5)]
    found = differences(*tables, [pair("max_skew", 1.0, 2.0, reason="worded before")])
    assert found.height == 1 and found["reason"].to_list() == ["worded before"]
    assert found["compared"].to_list() == ["paired"] and found["q"].to_list() == [0.001]
    assert found["ci_low"].item() == pytest.approx(0.99) and found["n_new"].item() == 90


def test_a_pair_of_another_event_replaces_nothing():
    tables = [row("max_skew", 1.0, 0.8, 1.3)], [row("max_skew", 2.0, 1.6, 2.5)]
    found = differences(*tables, [pair("max_skew", 1.0, 2.0, event="theft")])
    assert sorted(found["compared"]) == ["as if independent", "paired"]


def test_what_one_side_lacks_is_kept_and_said():
    found = differences([row("max_skew", 1.0, 0.8, 1.3)], [row("harm_rate", 0.1, 0.05, 0.2)])
    said = dict(found.select("metric", "reason").iter_rows())
    assert "not in the new one" in said["max_skew"] and "not in the old one" in said["harm_rate"]
    assert found["value"].is_null().all() and set(found["compared"]) == {"one side only"}
    assert dict(found.schema) == DIFF_SCHEMA


def asked_otherwise(*, suite="crime", models=("clip", "clip"), paired=()):
    """Return the one number of a suite whose prompts are others on the new side: twice as large, and clearly so."""
    sides = [
        metric_frame([row("max_skew", value, value, value, suite=suite, suite_hash=prompts)])
        for value, prompts in ((1.0, "aaa"), (2.0, "bbb"))
    ]
    return with_q([table_differences(*sides, paired, models=models)])


def test_a_number_of_other_prompts_has_no_difference_and_is_no_regression():
    paired = [pair("max_skew", 1.0, 2.0, suite="crime")]
    for found in (asked_otherwise(), asked_otherwise(paired=paired)):
        only = found.row(0, named=True)
        assert (only["value_old"], only["value_new"]) == (1.0, 2.0) and math.isnan(only["value"])
        assert only["compared"] == "other prompts" and "prompts are others" in only["reason"]
        assert only["worse"] is None and regressions(found, LIMITS).is_empty()


def test_wordings_of_two_checkpoints_and_prompts_of_answers_are_compared():
    assert asked_otherwise(models=("clip", "owl"))["compared"].item() == "as if independent"
    assert asked_otherwise(suite="generation")["compared"].item() == "as if independent"


def test_undefined_numbers_keep_their_reasons():
    nothing = row("max_skew", float("nan"), float("nan"), float("nan"), reason=reason("too_few_groups"))
    found = differences([nothing], [row("max_skew", 2.0, 1.6, 2.5)]).row(0, named=True)
    assert math.isnan(found["value"]) and "old: fewer than two groups have images" in found["reason"]
    assert "independent" not in found["reason"]


@pytest.mark.parametrize(
    ("metric", "old", "new", "worse"),
    [("max_skew", 1.0, 1.5, 0.5), ("max_skew", 1.5, 1.0, -0.5), ("impact_ratio", 0.9, 0.6, 0.3),
     ("harm_rate", 0.1, 0.3, 0.2),
     ("zero_shot_accuracy", 0.9, 0.7, 0.2), ("outcome_proportion", 0.1, 0.3, None)],
)  # fmt: skip
def test_worse_is_away_from_what_is_fair(metric, old, new, worse):
    found = differences([row(metric, old, old, old)], [row(metric, new, new, new)])["worse"].item()
    assert found is None if worse is None else found == pytest.approx(worse)


def test_a_clear_rise_beyond_the_limit_is_a_regression():
    found = differences([], [], [pair("max_skew", 1.0, 1.5), pair("harm_rate", 0.1, 0.2, definition="top1")])
    assert regressions(found, LIMITS)["metric"].to_list() == ["harm_rate", "max_skew"]  # by how often beyond


@pytest.mark.parametrize(
    "calm",
    [pair("max_skew", 1.0, 1.2), pair("max_skew", 1.5, 1.0), pair("max_skew", 1.0, 1.5, p=0.2),
     pair("max_skew", 1.0, 1.5, definition="smoothed"), pair("max_skew", 1.0, 1.5, condition="saner"),
     pair("parity_difference", 0.1, 0.9)],
    ids=["within the limit", "better", "by chance", "no headline", "a mitigation", "no limit"],
)  # fmt: skip
def test_what_is_small_unclear_or_not_asked_for_is_none(calm):
    assert regressions(differences([], [], [calm]), LIMITS).is_empty()


def test_without_pairs_the_intervals_decide_and_are_corrected():
    apart = differences([row("max_skew", 1.0, 0.9, 1.1)], [row("max_skew", 2.0, 1.9, 2.1)])
    overlapping = differences([row("max_skew", 1.0, 0.1, 3.1)], [row("max_skew", 2.0, 0.9, 3.1)])
    assert regressions(apart, LIMITS).height == 1 and regressions(overlapping, LIMITS).is_empty()


def test_one_interval_without_0_among_twenty_is_no_regression():
    def sides(events):
        old, new = (
            [row("max_skew", 1.0, 0.8, 1.2, event=each) for each in events],
            [row("max_skew", 1.31 if each == "crime" else 1.0, 1.1, 1.52, event=each) for each in events],
        )
        return differences(old, new)

    alone, among = sides(["crime"]), sides(["crime", *map(str, range(19))])
    assert (alone["ci_low"] > 0).all() and regressions(alone, LIMITS).height == 1
    assert (among["ci_low"] > 0).sum() == 1 and regressions(among, LIMITS).is_empty()


def test_q_is_over_all_cells():
    cells = [
        table_differences(*[metric_frame([])] * 2, [pair("max_skew", 1.0, 1.5, p=p, dataset=name)], models=("a", "b"))
        for name, p in (("faces", 0.01), ("people", 0.04))
    ]
    assert with_q(cells)["q"].to_list() == pytest.approx([0.02, 0.04])
    assert with_q([]).is_empty()


def test_limits_may_be_set_for_what_has_a_direction():
    assert {"max_skew", "harm_rate", "max_toxicity", "impact_ratio"} <= set(directed_metrics())
    assert {"sc_weat_effect", "skew_at_k"} <= set(directed_metrics())
    assert "outcome_proportion" not in directed_metrics()


@pytest.mark.parametrize(("old", "new", "away"), [(0.3, -1.1, 0.8), (-1.1, 0.3, -0.8), (0.4, -0.4, 0.0)])
def test_an_association_is_worse_the_further_it_is_from_0_to_either_side(old, new, away):
    sides = pl.DataFrame({"metric": ["sc_weat_effect"], "old": [old], "new": [new]})
    assert sides.select(worse(pl.col("old"), pl.col("new"))).item() == pytest.approx(away)
    assert pl.DataFrame(schema=DIFF_SCHEMA).is_empty()


def cells(**changes):
    """Return the metric rows of two cells and of one text space."""
    rows = {
        "dataset": ["faces", "faces", "portraits", "text"], "model": ["a", "a", "b", "a"],
        "cell_id": ["c1", "c1", "c2", "t1"], "audit_id": ["x"] * 4, "q": [0.5] * 4, "reason_codes": [None] * 4,
        "suite": ["crime", "communion", None, "perception"], "suite_hash": ["h1", "h2", None, "h3"],
        "value": [1.0, 2.0, 3.0, 4.0], "checkpoint_sha256": ["w", "w", "v", "w"],
        "dataset_digest": ["d", "d", "e", None], "labeller_sha256": [None] * 4,
    }  # fmt: skip
    return pl.DataFrame(rows | changes, schema_overrides={"reason_codes": pl.String, "labeller_sha256": pl.String})


def changed(old, new):
    return [(cell.dataset, cell.model, cell.old.height, cell.new.height) for cell in changed_cells(old, new)]


def test_a_cell_changed_if_its_id_did_or_one_side_lacks_it():
    assert changed(cells(), cells(value=[9.0] * 4)) == []
    assert changed(cells(), cells(cell_id=["c1", "c1", "new", "t1"])) == [("portraits", "b", 1, 1)]
    assert changed(cells(), cells().filter(dataset="text")) == [("faces", "a", 2, 0), ("portraits", "b", 1, 0)]
    assert changed(cells().filter(dataset="text"), cells())[1] == ("portraits", "b", 0, 1)


def test_a_text_space_changed_only_with_its_numbers():
    renamed = {"cell_id": ["c1", "c1", "c2", "new"], "audit_id": ["y"] * 4, "q": [0.1] * 4}
    assert changed(cells(), cells(**renamed)) == []
    assert changed(cells(), cells(**renamed, value=[1.0, 2.0, 3.0, 4.5])) == [("text", "a", 1, 1)]


def test_causes_are_what_the_rows_name_as_another_one():
    old = cells().filter(dataset="faces")
    new = cells(checkpoint_sha256=["w2"] * 4, labeller_sha256=["l"] * 4).filter(dataset="faces")
    assert causes_of_change(old, old) == []
    assert causes_of_change(old, new) == ["the checkpoint", "the labeller"]
    assert causes_of_change(old, cells(dataset_digest=["d2"] * 4).filter(dataset="faces")) == ["the dataset"]
    assert causes_of_change(old.clear(), new) == ["new in the audit"]
    assert causes_of_change(old, new.clear()) == ["no longer in the audit"]


def test_hashes_of_suites_are_those_that_rows_name():
    more = pl.concat([cells(), cells(suite_hash=["h9", None, None, "h3"])])
    assert suite_hashes(more) == {"crime": {"h1", "h9"}, "communion": {"h2"}, "perception": {"h3"}}


_SEEN = row("zero_shot_accuracy", 0.8, 0.7, 0.9, event=None, definition="among_classes")
_BLIND = row("zero_shot_accuracy", 0.15, 0.1, 0.2, event=None, definition="among_classes") | {
    "reason": joined(reason("at_chance", chance=1 / 7))
}


@pytest.mark.parametrize(("before", "after"), [(_SEEN, _BLIND), (_BLIND, _SEEN)])
def test_of_a_side_at_chance_accuracy_alone_is_compared(before, after):
    tables = [row("max_skew", 2.0, 1.6, 2.5), before], [row("max_skew", 0.0, -0.1, 0.1), after]
    # Of the mean over tasks, no table has a row.
    pairs = [pair("max_skew", 2.0, 0.0), pair("harm_rate", 0.4, 0.1, event="mean_of_tasks", suite="outcomes")]
    pairs.append(pair("zero_shot_accuracy", 0.8, 0.5, event=None, definition="macro"))
    found = differences(*tables, pairs)
    harm, macro = (
        found.filter(pl.col(name) == of).row(0, named=True)
        for name, of in (("metric", "harm_rate"), ("definition", "macro"))
    )
    assert harm["compared"] == "at chance" and math.isnan(harm["value"]) and harm["worse"] is None
    assert harm["value_old"] == 0.4 and macro["compared"] == "paired"
    assert judged(found, {"harm_rate": 0.02}).filter(metric="harm_rate")["verdict"].to_list() == [None]
    of = {each["metric"]: each for each in found.filter(pl.col("definition") != "macro").iter_rows(named=True)}
    skew = of["max_skew"]
    assert (skew["value_old"], skew["value_new"], skew["compared"]) == (2.0, 0.0, "at chance")
    assert math.isnan(skew["value"]) and skew["worse"] is None and skew["p"] is None
    assert "too weak to interpret" in skew["reason"]
    assert of["zero_shot_accuracy"]["compared"] == "as if independent"
    without = found.filter(pl.col("definition") != "macro")
    verdicts = dict(judged(without, {"zero_shot_accuracy": 0.05}).select("metric", "verdict").iter_rows())
    assert verdicts["max_skew"] is None
    assert verdicts["zero_shot_accuracy"] == (REGRESSED if before is _SEEN else "better")


def test_sides_that_see_are_compared():
    found = differences([row("max_skew", 1.0, 0.8, 1.3), _SEEN], [row("max_skew", 2.0, 1.6, 2.5), _SEEN])
    assert set(found["compared"]) == {"as if independent"}
