"""The published numbers: all of them, each with its place, in our words and units."""

from collections import Counter
from importlib.resources import files

import polars as pl
import pytest

from plumbline.catalog.files import checked_yaml
from plumbline.catalog.published import (
    KEYS,
    PUBLISHED_SCHEMA,
    WORDS_SCHEMA,
    PaperDescription,
    published_values,
    published_words,
    read_cells,
)
from plumbline.catalog.schema import METRIC_SCHEMA
from plumbline.catalog.studies import study_checkpoints
from plumbline.catalog.suites import load_suite

DMM, SOCIAL, LVLM, TRIPRO = "data_matters_most", "social_perception", "lvlm_counterfactuals", "tripro"
CELLS = {
    # rows x columns of numbers, counted in the papers
    (DMM, "1"): 12 * 10, (DMM, "2"): 14 * 4, (DMM, "3"): 28 * 10, (DMM, "4"): 14 * 4,
    (DMM, "5"): 6 * 5, (DMM, "6"): 6 * 6, (DMM, "7"): 6 * 6, (DMM, "text"): 9,
    (SOCIAL, "B.1"): 10 * 4, (SOCIAL, "B.2"): 5 * 2, (SOCIAL, "C.3"): 3 * 2,
    (LVLM, "1"): 18 * 10, (LVLM, "3"): 5 * 6, (LVLM, "4"): 5 * 5, (LVLM, "9"): 5 * 10, (LVLM, "10"): 15 * 12,
    (LVLM, "11"): 15 * 10, (LVLM, "12"): 15 * 10, (LVLM, "13"): 15 * 10, (LVLM, "14"): 2 * 5,
    (LVLM, "18"): 5 * 10, (LVLM, "19"): 15 * 10, (LVLM, "20"): 12 * 6, (LVLM, "27"): 8 * 10, (LVLM, "28"): 45 * 10,
    (LVLM, "29"): 50 * 5, (LVLM, "30"): 60 * 5, (LVLM, "physical-race ratings"): 150 * 5, (LVLM, "text"): 15,
    (TRIPRO, "text"): 1, (TRIPRO, "text, released code"): 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def values():
    return published_values()


@pytest.fixture(scope="module")
def words():
    return published_words()


def one(values, paper, table, **wanted):
    found = values.filter(paper=paper, table=table, **wanted)
    assert found.height == 1, found
    return found.row(0, named=True)


def test_every_table_is_there_with_every_cell(values):
    assert dict(values.schema) == {name: kind() for name, kind in PUBLISHED_SCHEMA.items()}
    assert Counter(values.select("paper", "table").iter_rows()) == CELLS


def test_every_number_says_where_it_stands_and_what_it_is(values):
    for column in ("paper", "table", "row", "column", "printed", "unit", "metric", "definition", "statistic", "status",
                   "source", "version"):  # fmt: skip
        assert values[column].null_count() == 0, column
    assert not values.select("paper", "table", "row", "column").is_duplicated().any()
    assert set(values["status"]) == {"as_printed", "recomputed", "suspect", "not_comparable", "absent"}


def test_a_number_that_is_not_there_or_not_to_be_compared_says_why(values):
    odd = values.filter(pl.col("status").is_in(["suspect", "not_comparable", "absent"]))
    assert odd["note"].null_count() == 0
    assert values.filter(pl.col("value").is_null())["status"].unique().to_list() == ["absent"]
    assert values.filter(status="absent")["value"].null_count() == values.filter(status="absent").height == 53


def test_every_note_is_on_a_cell_of_its_table():
    folder = files("plumbline.catalog") / "published"
    for file in folder.iterdir():
        if file.name.endswith(".yaml"):
            paper = checked_yaml(file, PaperDescription, "a description")
            for table in (*paper.tables.values(), *paper.words.values()):
                cells = list(read_cells(paper, table, folder / paper.id))
                assert all(any(note.is_about(cell) for cell in cells) for note in table.notes), table.title


def test_what_is_measured_is_said_in_the_words_of_the_metric_table(values):
    known = {*METRIC_SCHEMA}
    assert set(KEYS) - known == {"factor"}
    checkpoints = set(study_checkpoints())
    assert set(values["checkpoint"].drop_nulls()) <= checkpoints
    audited = values.filter(pl.col("table").is_in(["1", "3"]), paper=DMM)
    for suite, event, metric in audited.select("suite", "event", "metric").unique().iter_rows():
        tested = load_suite(suite)
        assert event in tested.events
        assert metric == "harm_rate" or event in tested.skewed_events


@pytest.mark.parametrize(
    ("paper", "table", "where", "printed", "value"),
    [
        (DMM, "1", {"checkpoint": "clip-l14-400m", "dataset": "fairface", "column": "μ max s_R^c"}, "5.28", 5.28),
        (DMM, "1", {"checkpoint": "clip-b32-400m", "dataset": "fairface", "column": "% NC"}, "62", 0.62),
        (DMM, "1", {"checkpoint": "openclip-l14-400m", "dataset": "pata", "column": "max s_G^c"}, "3.10", 3.10),
        (DMM, "1", {"checkpoint": "openclip-b32-400m", "dataset": "pata", "event": "non_human"}, "1", 0.01),
        (DMM, "3", {"checkpoint": "clip-b32-400m", "dataset": "fairface", "column": "% C"}, "28.18", 0.2818),
        (DMM, "3", {"checkpoint": "openclip-l14-2b", "dataset": "pata", "condition": "saner_race",
                    "column": "μ max s_R^c"}, "5.00", 5.0),
        (DMM, "5", {"checkpoint": "openclip-l14-400m", "event": "crime"}, "-5.14", -0.0514),
        (DMM, "5", {"checkpoint": "clip-b32-400m", "metric": "intra_set_cosine", "statistic": "sd"}, "9.4", 0.094),
        (DMM, "6", {"checkpoint": "openclip-l14-400m", "column": "CRIME / max p_harm"}, "1.00", 1.0),
        (DMM, "6", {"checkpoint": "clip-l14-400m", "column": "AGEN / elbow"}, "0.4-0.5", 0.4),
        (DMM, "6", {"checkpoint": "clip-l14-400m", "column": "COMM / elbow"}, "—", None),
        (DMM, "7", {"checkpoint": "openclip-l14-2b", "column": "CRIME / μ"}, "0.149", 0.149),
        (SOCIAL, "B.1", {"row": "lighting | β_l", "column": "coef"}, "-1.1e-08", -1.1e-8),
        (SOCIAL, "B.2", {"reference_group": "age", "column": "p-value"}, "0.25", 0.25),
        (SOCIAL, "C.3", {"attribute": "agency", "group": "negative"}, "0.80", 0.80),
        (LVLM, "1", {"checkpoint": "bakllava-7b", "attribute": "physical_race", "prompt": "personality",
                     "statistic": "p90"}, "0.51", 0.51),
        (LVLM, "1", {"checkpoint": "gpt-4o", "attribute": "physical_gender", "prompt": "backstory",
                     "statistic": "mean"}, "0.03", 0.03),
        (LVLM, "4", {"checkpoint": "llava-1.5-13b", "instruction": "M4"}, "-0.21", -0.21),
        (LVLM, "9", {"checkpoint": "bakllava-7b", "group": "black_man"}, "0.25", 0.25),
        (LVLM, "10", {"checkpoint": "bakllava-7b", "attribute": "physical_gender", "prompt": "trustworthiness",
                      "statistic": "p90"}, "0.50", 0.50),
        (LVLM, "12", {"checkpoint": "llava-gemma-2b", "attribute": "race_gender", "prompt": "describe",
                      "statistic": "p90"}, "0.13", 0.13),
        (LVLM, "14", {"group": "obese_woman"}, "5.9%", 0.059),
        (LVLM, "19", {"checkpoint": "bakllava-7b", "attribute": "physical_gender", "prompt": "personality",
                      "statistic": "p90"}, "-0.30", -0.30),
        (LVLM, "20", {"checkpoint": "llava-1.5-7b", "attribute": "race_gender", "prompt": "competency",
                      "statistic": "p90"}, "-0.13", -0.13),
        (LVLM, "27", {"occupation": "doctor", "group": "old_woman"}, "6", 6.0),
        (LVLM, "28", {"occupation": "crane operator", "group": "old_woman"}, "43", 43.0),
        (LVLM, "29", {"checkpoint": "bakllava-7b", "group": "obese_man", "prompt": "hiring"}, "2.43", 2.43),
        (LVLM, "30", {"checkpoint": "llava-1.5-13b", "group": "Indian_woman", "prompt": "salary"},
         "26085.81", 26085.81),
        (LVLM, "physical-race ratings", {"checkpoint": "llava-gemma-2b", "group": "young_White", "prompt": "salary"},
         "61881.19", 61881.19),
        (LVLM, "text", {"row": "kappa of three annotators on 50 texts that name a Black subject | C.2"},
         "0.8604", 0.8604),
        (LVLM, "text", {"metric": "judge_recall"}, "0.29", 0.29),
        (LVLM, "text", {"checkpoint": "llava-1.5-7b", "statistic": "p"}, "4e-11", 4e-11),
        (TRIPRO, "text", {"probe": "person", "dataset": "celeba"}, "37.81%", 0.3781),
    ],
)  # fmt: skip
def test_cells_read_off_the_papers(values, paper, table, where, printed, value):
    row = one(values, paper, table, **where)
    assert (row["printed"], row["value"]) == (printed, value)


def test_shares_and_probabilities_are_in_their_range(values):
    bounded = values.filter(pl.col("unit").is_in(["share", "probability", "kappa", "score"]))
    assert bounded["value"].drop_nulls().is_between(-1, 1).all()
    positive = bounded.filter(~pl.col("metric").is_in(["max_toxicity_change", "max_toxicity_minus_base_llm"]))
    assert positive["value"].drop_nulls().is_between(0, 1).all() and positive.height == 1093
    assert values.filter(unit="rating 1 to 10")["value"].is_between(1, 10).all()
    assert values.filter(metric="salary")["value"].drop_nulls().is_between(1_000, 10_000_000).all()
    assert (values.filter(pl.col("status") != "recomputed", metric="max_skew")["value"] >= 0).all()


def test_recomputed_differences_are_those_of_table_1(values):
    cells = {
        (row["checkpoint"], row["dataset"], row["attribute"], row["event"]): row["value"]
        for row in values.filter(paper=DMM, table="1", metric="max_skew").iter_rows(named=True)
    }
    events = ("crime", "negative_communion", "negative_agency")
    rows = values.filter(pl.col("table").is_in(["2", "4"]), paper=DMM)
    assert rows.height == 112 and set(rows["status"]) == {"recomputed"}
    for row in rows.iter_rows(named=True):
        chosen = events if row["event"] == "mean_of_tasks" else (row["event"],)
        ends = [
            sum(cells[row[end], row["dataset"], row["attribute"], event] for event in chosen) / len(chosen)
            for end in ("checkpoint", "reference_checkpoint")
        ]
        assert row["value"] == pytest.approx(ends[0] - ends[1], abs=1e-12)
        assert row["rounding"] == pytest.approx(0.01, abs=1e-12)


def test_the_pair_of_a_difference_differs_in_its_factor_only(values):
    recomputed = values.filter(status="recomputed")
    assert set(recomputed["factor"]) == {"size", "data_amount", "data_source"}
    for row in recomputed.iter_rows(named=True):
        first, second = (study_checkpoints()[row[end]] for end in ("checkpoint", "reference_checkpoint"))
        differing = [name for name in first.factors if first.factors[name] != second.factors[name]]
        assert differing == [row["factor"]]
        order = {"size": "B/32", "data_amount": "400M", "data_source": "LAION"}
        assert first.factors[row["factor"]] == order[row["factor"]]


def test_exactly_the_differences_that_the_paper_copied_wrong_say_so(values):
    rows = values.filter(status="recomputed").with_columns(pl.col("printed").cast(pl.Float64).alias("said"))
    wrong = (pl.col("said") - pl.col("value")).abs() > 0.0051
    noted = rows.filter(pl.col("note").is_not_null())
    # A wrong row can have a right cell by chance.
    assert rows.filter(wrong)["note"].null_count() == 0
    assert set(noted["row"]) == set(rows.filter(wrong)["row"])
    assert Counter(noted.unique(["table", "row"])["table"]) == {"2": 4, "4": 6}


def test_the_pairs_of_rates_that_recur_in_table_3_are_suspect_and_nothing_else_is(values):
    rates = values.filter(pl.col("column").is_in(["% NC", "% NA"]), paper=DMM, table="3")
    pairs = rates.pivot("column", index="row", values="printed")
    recurring = pairs.filter(pl.struct("% NC", "% NA").is_duplicated())
    assert recurring.select("% NC", "% NA").unique().height == 6
    suspect = values.filter(status="suspect")
    assert set(suspect["row"]) == set(recurring["row"])
    assert suspect.height == 2 * recurring.height == 24
    assert set(suspect["table"]) == {"3"} and set(suspect["column"]) == {"% NC", "% NA"}


def test_tables_of_the_lvlm_study_that_repeat_each_other_agree(values):
    keys = ["checkpoint", "prompt", "instruction", "attribute", "statistic"]
    tables = {
        name: dict(
            zip(
                values.filter(paper=LVLM, table=name).select(keys).iter_rows(),
                values.filter(paper=LVLM, table=name)["value"],
            )
        )
        for name in ("4", "18", "19")
    }
    for first, second, shared in (("4", "18", 25), ("18", "19", 10)):
        both = tables[first].keys() & tables[second].keys()
        assert len(both) == shared
        assert all(tables[first][key] == tables[second][key] for key in both)


def test_word_lists_are_complete_and_in_order(words):
    assert dict(words.schema) == {name: kind() for name, kind in WORDS_SCHEMA.items()}
    assert Counter(words["table"]) == {"2": 377, "21": 1266, "22": 1692, "23": 1381, "24": 125, "25": 199, "26": 272}
    first = words.filter(table="21", group="Black_man", checkpoint="bakllava-7b")
    assert first["word"].to_list() == ["dreadlocks", "disadvantaged", "inner-city", "rapper", "basketball"]
    assert first["position"].to_list() == [1, 2, 3, 4, 5]
    assert words.filter(table="25", group="obese_Latino").is_empty()


def test_lists_whose_model_the_text_at_hand_has_lost_name_none(words):
    lost = words.filter(pl.col("checkpoint").is_null())
    assert lost["note"].null_count() == 0 and lost["model"].null_count() == lost.height
    assert lost.unique(["table", "row"]).height == 11
    assert words.filter(pl.col("checkpoint").is_not_null())["note"].null_count() == words.height - lost.height


def test_the_excerpts_of_table_2_stand_in_the_full_lists(words):
    keys = ["group", "checkpoint", "word"]
    full = set(words.filter(pl.col("table") != "2").select(keys).iter_rows())
    assert set(words.filter(table="2").select(keys).iter_rows()) <= full
