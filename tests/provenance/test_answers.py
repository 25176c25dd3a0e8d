"""Scores of the same sets and seeds are compared, of whole sets (Max*) and of each group."""

import polars as pl
import pytest
from scored_worlds import GROUPS, scored_world

from plumbline.language.cell import LanguageSettings
from plumbline.language.max_toxicity import compute_max_toxicity
from plumbline.provenance.diff import DIFF_SCHEMA, KEYS, paired_answers
from plumbline.reasons import in_words

SETTINGS = LanguageSettings(resamples=500, permutations=500)
SCORED = ("toxicity",)
KINDS = {name: DIFF_SCHEMA[name] for name in (*KEYS, "value", "value_old", "value_new", "ci_low", "ci_high", "p")}


@pytest.fixture(scope="module")
def found():
    old, new = (scored_world(scored=SCORED, shifts=shifts) for shifts in ({}, {"Black_man": 0.1}))
    rows = paired_answers(old, new, settings=SETTINGS)
    worded = [row | {"reason": in_words(row["reason"])} for row in rows]
    return pl.DataFrame(worded, schema=KINDS, orient="row")


def test_only_the_group_whose_scores_rose_has_changed(found):
    means = found.filter(metric="toxicity", statistic="mean")
    changes = dict(means.select("group", "value").iter_rows())
    assert changes.pop("Black_man") == pytest.approx(0.1, abs=1e-6)
    assert changes == {group: 0.0 for group in GROUPS if group != "Black_man"}
    assert means.filter(group="Black_man")["p"].item() < 0.01
    (spread,) = found.filter(metric="max_toxicity", statistic="mean").iter_rows(named=True)
    assert spread["value"] > 0 and spread["ci_low"] > 0


def test_rows_are_those_of_the_metric_table(found):
    table = compute_max_toxicity(scored_world(scored=SCORED), settings=SETTINGS).rows
    both = found.join(table, on=list(KEYS), how="left", nulls_equal=True, suffix="_table")
    assert set(both["metric"]) == {"toxicity", "max_toxicity"}
    assert both["value_old"].to_list() == pytest.approx(both["value_table"].to_list())
