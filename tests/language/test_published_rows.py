"""What the study printed goes by the names and columns that the language metrics give the same thing."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from scored_worlds import answers_to, cell_of, images_of_sets, scores_of, skewed

from plumbline.catalog.prompts import prompt_ids
from plumbline.catalog.published import published_values
from plumbline.language.cell import LanguageSettings
from plumbline.language.registry import LANGUAGE_FAMILIES, LANGUAGE_METRICS
from plumbline.report.comparison import compare_with_published

SETTINGS = LanguageSettings(resamples=20, permutations=20)
LVLM = "lvlm_counterfactuals"


@pytest.fixture(scope="module")
def printed():
    return published_values().filter(paper=LVLM)


def test_every_printed_number_is_of_a_metric_that_is_there(printed):
    assert set(printed["metric"]) <= set(LANGUAGE_METRICS)
    for metric, lowest, highest in (
        printed.group_by("metric").agg(pl.col("value").min(), highest=pl.col("value").max()).drop_nulls().iter_rows()
    ):
        bounds = LANGUAGE_METRICS[metric].bounds
        assert bounds[0] <= lowest <= highest <= bounds[1], metric


def social(attribute, groups):
    return images_of_sets(6, groups=groups, dataset="social", attribute=attribute)


def test_the_tables_of_scores_are_measured(printed):
    """All cells of LLaVA-7B in the tables of MaxToxicity and its like, instructions, base language models and PATA."""
    races = ("Asian", "White", "black", "hispanic", "indian")
    pata = images_of_sets(
        4, groups=[f"{race}_{gender}" for race in races for gender in ("man", "woman")], dataset="pata"
    ).with_columns(set_id=pl.lit(None, pl.String), set_groups=pl.lit(None, pl.Int64))
    images = pl.concat(
        [
            pata,
            social("physical_gender", ("obese_man", "old_woman")),
            social("physical_race", ("obese_Black", "old_White")),
            social("race_gender", ("Black_man", "White_man")),
        ]
    )
    main, further = prompt_ids("main"), ("competency", "trustworthiness", "work_ethic")
    asked = answers_to(images, prompts=(*main, *prompt_ids("additional")), seeds=(0,))
    of_sets = images.filter(dataset="social")
    told = [
        answers_to(of_sets, prompts=(*main, *further), instructions=("M1",), seeds=(0,)),
        answers_to(of_sets, prompts=("characteristics",), instructions=("M2", "M3", "M4", "M5"), seeds=(0,)),
    ]
    answers = pl.concat([asked, *told])
    scores = scores_of(answers, skewed(answers, np.random.default_rng(0)), scorer="perspective")
    cell = cell_of(images, answers, scores)
    base_llm = asked.filter(prompt="characteristics").with_columns(row_key=pl.format("base {}", "row_key"))
    values = skewed(base_llm, np.random.default_rng(1))
    cell = replace(cell, base_llm=cell_of(images, base_llm, scores_of(base_llm, values, scorer="perspective")))
    plain = replace(cell, generations=cell.generations.filter(pl.col("instruction") == "none"))
    computed = {"max_toxicity": plain, "instruction_effects": cell, "base_llm_comparison": cell}
    rows = pl.concat(LANGUAGE_FAMILIES[name].compute(each, settings=SETTINGS).rows for name, each in computed.items())
    readers = {"social": "socialcounterfactuals", "pata": "pata"}
    found = compare_with_published(rows, encoders={"model": "llava-hf/llava-1.5-7b-hf"}, datasets=readers)
    expected = printed.filter(pl.col("table").is_in(["1", "3", "4", "9", "10", "11", "12", "13", "18", "19", "20"]))
    expected = expected.filter(checkpoint="llava-1.5-7b")
    for table, cells in expected.group_by("table"):
        measured = found.filter(table=table[0])
        assert set(measured["column"]) == set(cells["column"]), table
        assert measured.height == cells.height, table
    text = found.filter(table="text")
    assert set(text["metric"]) == {"base_llm_correlation"} and text.height == 2
    assert found["measured"].null_count() == 0


def test_competence_words_stand_beside_what_was_printed_and_are_not_judged(printed):
    """Tables 27 and 28 do not say their scale: the mean count is shown, and no verdict."""
    groups = sorted(printed.filter(table="27")["group"].unique())
    occupations = sorted(printed.filter(table="27")["occupation"].unique())
    assert (len(groups), len(occupations)) == (10, 8)
    images = images_of_sets(16, groups=groups, occupations=occupations, dataset="social", attribute="physical_gender")
    answers = answers_to(images, seeds=(0,)).with_columns(text=pl.lit("Competent , smart and tall ."))
    scores = scores_of(answers, pl.lit(0.1)).clear()
    settings = replace(SETTINGS, min_sets=2)
    rows = LANGUAGE_FAMILIES["competence"].compute(cell_of(images, answers, scores), settings=settings).rows
    found = compare_with_published(
        rows, encoders={"model": "gpt-4o-2024-05-13"}, datasets={"social": "socialcounterfactuals"}
    ).filter(table="27")
    assert found.height == 80 and set(found["status"]) == {"not_comparable"}
    assert set(found["measured"]) == {2.0} and set(found["definition"]) == {"count"}
    assert found["within"].is_null().all() and found["difference"].is_null().all()
    assert found["note"].str.contains("under the definition `paper`").all()
    shares = rows.filter(pl.col("occupation").is_not_null(), metric="competence_words", definition="paper")
    assert shares.height == 80 and shares["value"].to_list() == pytest.approx([2 / 3] * 80)
