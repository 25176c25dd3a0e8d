"""The chapter on MaxToxicity: its marks, who is worst off, several scorers, and annotators."""

import polars as pl
import pytest
from chapters_by_anchor import CHAPTER
from read_back import listing, tips
from synthetic_language import (
    FACES,
    GROUPS,
    MODELS,
    OFFLINE,
    PROMPTS,
    REAL,
    language_inputs,
    language_table,
)  # fmt: skip

from plumbline.report import thumbnails
from plumbline.report.figures.language import max_figure
from plumbline.report.method import undefined_listing
from plumbline.report.rows import where


def test_max_toxicity_is_drawn_and_listed_with_its_intervals(parts, table):
    part = next(p for p in parts["generation"] if "how differently" in p.title)
    (picture,) = part.pictures
    said = tips(picture.svg)
    assert len(said) == len(MODELS) * len(PROMPTS) * 2
    row = where(
        table, metric="max_toxicity", model="llava", prompt="describe", definition="paper", statistic="p90"
    ).row(0, named=True)
    assert any(f"llava, describe: 90th percentile {row['value']:.2f}" in tip and "n = 200" in tip for tip in said)
    assert [p.title.split(" ")[0] for p in part.details] == ["MaxInsult", "MaxIdentityAttack", "MaxFlirtation"]
    rows = listing([part], "MaxToxicity in numbers").rows
    assert len(rows) == len(MODELS) * len(PROMPTS) and all(cells[8] == "200" for cells in rows)
    assert f"{row['value']:.2f} [" in rows[0][5]


def test_who_is_worst_off_stands_beside_what_chance_gives(parts):
    part = next(p for p in parts["generation"] if p.title == "faces: race × gender")
    picture = part.pictures[0]
    assert "what chance gives each of 12 groups, 8.3%" in picture.description
    assert len(tips(picture.svg)) == 12 * len(MODELS)
    first = listing([part], "Who is at the maximum").rows[0]
    assert first[3] == "Black woman" and first[4] == "40% [34–46%]" and first[5] == "< 0.001"
    assert part.pictures[1].title.startswith("By occupation: llava")


def test_real_images_without_sets_show_scores_by_group(parts):
    part = next(p for p in parts["generation"] if p.title == "scenes: race × gender")
    (picture,) = part.pictures
    assert picture.title.startswith("Toxicity of what is said of each group, scenes")
    assert len(tips(picture.svg)) == 2 * 12 * len(MODELS)


def test_nobody_worst_off_is_said_with_its_reason(table, inputs):
    gone = table.with_columns(
        value=pl.when(pl.col("metric") == "max_score_share").then(float("nan")).otherwise("value"),
        reason=pl.when(pl.col("metric") == "max_score_share").then(pl.lit("undefined: no set lies above")),
    )
    part = next(p for p in CHAPTER["generation"].parts(gone, inputs) if p.title == "faces: race × gender")
    assert part.notes[0] == (
        "llava: who gets the most toxic text cannot be said for describe, characteristics and personality: no set lies "
        "above."
    )
    assert not any("Who gets" in picture.title for picture in part.pictures)


def test_several_scorers_stand_beside_each_other(inputs):
    both = language_table(("llava",), scorers=(REAL, OFFLINE))
    made = CHAPTER["generation"].parts(both, language_inputs(("llava",), (REAL, OFFLINE)))
    assert sum("under every scorer" in part.title for part in made) == 1
    part = next(part for part in made if "under every scorer" in part.title)
    assert len(tips(part.pictures[0].svg)) == 2 * 2
    assert {row[3] for row in listing([part], "MaxToxicity under").rows} == {REAL, OFFLINE}
    (title, choice) = part.tables[0]
    assert title.startswith("What the choice of a scorer changes")
    assert choice.rows[0][0] == OFFLINE and "of" in choice.rows[0][1] and choice.rows[0][2] == "–"
    assert listing([part], "scorers agree").rows[0][4:7] == (
        "roberta and offline",
        "0.60 [0.55–0.65]",
        "0.60 [0.55–0.65]",
    )
    single = CHAPTER["generation"].parts(language_table(("llava",), scorers=(REAL,)), inputs)
    assert not any("under every scorer" in part.title for part in single)


def test_annotators_are_told_where_there_are_any(inputs):
    row = {"model": "llava", "dataset": FACES, "suite": "generation", "condition": "before", "statistic": "estimate",
           "metric": "fleiss_kappa", "definition": "annotators", "prompt": "personality", "value": 0.62, "ci_low": 0.5,
           "ci_high": 0.7, "n": 50}  # fmt: skip
    from plumbline.catalog.schema import metric_frame

    others = [{"model": "aardvark", "value": 0.5}, {"model": "all models", "dataset": "zoo", "value": 0.7}]
    made = CHAPTER["generation"].parts(metric_frame([row | other for other in ({}, *others)]), inputs)
    rows = made[-1].tables[0][1].rows
    # Over all models first, as the study gives it; then each model in the order of the report.
    assert [cells[0] for cells in rows] == ["all models", "llava", "aardvark"]
    assert rows[1][2:7] == (
        "personality", "annotators with each other", "Fleiss' kappa", "0.62 [0.50–0.70]", "50",
    )  # fmt: skip


@pytest.mark.parametrize("models", [1, 6])
def test_figures_hold_one_model_and_six(models):
    names = tuple(f"model-{i}" for i in range(models))
    rows = where(language_table(names, ("physical_race",)), metric="max_toxicity", definition="paper", instruction=None)
    picture = max_figure(rows, names, dataset=FACES, metric="max_toxicity")
    assert len(tips(picture.svg)) == 2 * models * len(PROMPTS)
    assert len(GROUPS["physical_race"]) == 30


def test_a_small_picture_and_the_undefined_values_of_one_model(table):
    made = thumbnails(table, dataset=FACES, model="llava", names=("max_toxicity",))
    assert made["max_toxicity"].startswith(b"\x89PNG") and thumbnails(table, dataset="x", names=("max_toxicity",)) == {}
    undefined = undefined_listing(table)
    assert any("Black_woman · salary" in row[4] for row in undefined.rows)
