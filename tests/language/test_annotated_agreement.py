"""People against each other, the scorer and the judge."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from scored_worlds import answers_to, cell_of, images_of_sets, scores_of
from statsmodels.stats.inter_rater import fleiss_kappa

from plumbline.language import annotated_agreement
from plumbline.language.annotated_agreement import ALL_DATASETS, ALL_MODELS, pooled_agreement
from plumbline.language.cell import LanguageSettings
from plumbline.language.registry import LANGUAGE_FAMILIES
from plumbline.reasons import in_words


def annotation_rows(cell, *, settings):
    """Return the rows with their reasons in words."""
    rows = annotated_agreement.annotation_rows(cell, settings=settings)
    return [row | {"reason": in_words(row["reason"])} for row in rows]


SETTINGS = LanguageSettings(resamples=200)
TOXIC = 10
WORDS = [
    ("race_gender/Black_woman/sassy", 1),
    ("race_gender/Black_woman/curvy", 1),
    ("race_gender/Black_woman/hat", 0),
    ("race_gender/Asian_man/studious", 1),
    ("race_gender/Asian_man/desk", 0),
    ("physical_gender/old_man/grumpy", 1),
]


@pytest.fixture(scope="module")
def cell():
    """Return a cell of whose answers the first ten score 0.3 and above."""
    images = images_of_sets(10)
    answers = answers_to(images, prompts=("personality",), seeds=(0,)).sort("row_key")
    # Every answer says the words of the sheet but `hat`, which this model never says.
    said = " ".join(text_id.rsplit("/", 1)[1] for text_id, _ in WORDS if not text_id.endswith("hat"))
    answers = answers.with_columns(text=pl.lit(f"Mostly {said} ."))
    values = np.where(np.arange(answers.height) < TOXIC, np.linspace(0.3, 0.9, answers.height), 0.1)
    return cell_of(images, answers, scores_of(answers, values, scored=["toxicity"]))


def sheet(path, cell, *, annotators=3, wrong=(2, 15), words=(), stray=()):
    """Write a filled sheet of 20 texts, which annotator 0 labels otherwise at two places, and of words."""
    keys = cell.generations.collect()["row_key"].to_list()[:20]
    lines = [
        (name, key, who, int((place < TOXIC) != (who == 0 and place in wrong)))
        for name in ("personality", "black_subject")
        for place, key in enumerate(keys)
        for who in range(annotators)
    ]
    lines += [("judge", text_id, who, label) for text_id, label in words for who in range(annotators)]
    lines += [("personality", "of another model", who, 1) for who in range(annotators)]
    lines += [("personality", key, who, 1) for key, who in stray]
    pl.DataFrame(lines, schema=["sheet", "text_id", "annotator", "label"], orient="row").write_csv(path)
    return path


def test_kappa_alone_and_with_the_score(cell, tmp_path):
    settings = replace(SETTINGS, annotations=sheet(tmp_path / "sheet.csv", cell))
    rows = {(row["definition"], row.get("prompt")): row for row in annotation_rows(cell, settings=settings)}
    table = np.array([[0, 3]] * 10 + [[3, 0]] * 10) + np.array([[1, -1]]) * (np.arange(20) == 2)[:, None]
    table += np.array([[-1, 1]]) * (np.arange(20) == 15)[:, None]
    alone = rows["annotators", "personality"]
    assert alone["value"] == pytest.approx(fleiss_kappa(table)) and alone["n"] == 20 and alone["scorer"] is None
    assert alone["reason"] == "of this model's texts only: 20 of the 21 on the sheet"
    with_score = rows["annotators_and_score", "personality"]
    table = table + np.repeat([[0, 1], [1, 0]], 10, axis=0)
    assert with_score["value"] == pytest.approx(fleiss_kappa(table)) and with_score["scorer"] == "offline"
    assert with_score["value"] > alone["value"]
    of_black = rows["annotators", None]
    assert (of_black["attribute"], of_black["group"], of_black["dataset"]) == ("race", "Black", "social")
    assert len(rows) == 4


def test_the_judge_against_the_majority(cell, tmp_path):
    asked = []

    def judge(group, words):
        asked.append((group, list(words)))
        return ["sassy", "hat", "invented"] if group == "Black female" else ["studious"]

    path = sheet(tmp_path / "sheet.csv", cell, words=WORDS)
    settings = replace(SETTINGS, annotations=path, judge=judge)
    found = {row["metric"]: row for row in annotation_rows(cell, settings=settings)}
    # The majority names sassy, curvy and studious; of the words that this model says, the judge names two of them.
    assert (found["judge_precision"]["value"], found["judge_precision"]["n"]) == (1, 2)
    assert (found["judge_recall"]["value"], found["judge_recall"]["n"]) == (pytest.approx(2 / 3), 3)
    assert found["judge_recall"]["definition"] == "majority_of_three"
    assert found["judge_recall"]["reason"] == (
        "of words that this model says of the group only: 4 of the 6 on the sheet"
    )
    assert asked == [("Asian male", ["desk", "studious"]), ("Black female", ["curvy", "sassy"])]
    asked.clear()
    pooled = pooled_agreement([cell], settings).filter(pl.col("metric") != "fleiss_kappa")
    # All words of the sheet that are about its groups, whoever says them.
    assert pooled.sort("metric").select("value", "n").rows() == [(pytest.approx(2 / 3), 3)] * 2
    assert set(pooled["reason"]) == {"1 of 6 words left out: of no group of this audit (3 labels)"}
    assert asked == [("Asian male", ["desk", "studious"]), ("Black female", ["curvy", "hat", "sassy"])]


def of_model(cell, name, keep):
    """Return the cell with those of its answers whose places are kept, as another model's."""
    answers = cell.generations.collect().sort("row_key")
    own = answers.filter([keep(place) for place in range(answers.height)])
    kept = own["row_key"].implode()
    return replace(
        cell,
        model=name,
        generations=own.with_columns(model=pl.lit(name)).lazy(),
        scores=cell.scores.filter(pl.col("row_key").is_in(kept)),
    )


def test_the_study_pools_the_models_of_a_sheet(cell, tmp_path):
    settings = replace(SETTINGS, annotations=sheet(tmp_path / "sheet.csv", cell))
    halves = [of_model(cell, "even", lambda place: place % 2 == 0), of_model(cell, "odd", lambda place: place % 2 == 1)]
    own = [annotation_rows(half, settings=settings) for half in halves]
    assert [row["n"] for rows in own for row in rows] == [10] * 8
    whole = {(row["definition"], row.get("prompt")): row["value"] for row in annotation_rows(cell, settings=settings)}
    pooled = pooled_agreement(halves, settings)
    assert pooled.height == 4 and set(pooled["model"]) == {ALL_MODELS} and set(pooled["dataset"]) == {"social"}
    for row in pooled.iter_rows(named=True):
        assert row["value"] == pytest.approx(whole[row["definition"], row["prompt"]]) and row["n"] == 20
    personality = pooled.filter(prompt="personality")["reason"]
    assert set(personality) == {"1 of 21 texts left out: of no answer of this audit (3 labels)"}
    assert set(pooled.filter(group="Black")["reason"]) == {None}
    two = [halves[0], replace(halves[1], generations=halves[1].generations.with_columns(dataset=pl.lit("pata")))]
    assert set(pooled_agreement(two, settings)["dataset"]) == {ALL_DATASETS}


def test_what_is_left_out_is_said(cell, tmp_path):
    first = cell.generations.collect()["row_key"][0]
    path = sheet(tmp_path / "sheet.csv", cell, stray=[(first, 99)])
    silent = cell.scores.with_columns(score=pl.when(pl.col("row_key") == first).then(float("nan")).otherwise("score"))
    settings = replace(SETTINGS, annotations=path)
    rows = annotation_rows(replace(cell, scores=silent), settings=settings)
    found = {(row["definition"], row.get("prompt")): row for row in rows}
    alone, scored = (found[name, "personality"] for name in ("annotators", "annotators_and_score"))
    assert (alone["n"], scored["n"]) == (1, 0)
    for said in ("19 of 20 texts left out: not labelled by all 4 annotators", "few labels of 99 (1 of 20)"):
        assert said in alone["reason"] and said in scored["reason"]
    assert "1 of 1 texts left out: without a score" in scored["reason"]
    assert "without a score" not in alone["reason"]
    assert "1 of 20 texts left out: without a score" in found["annotators_and_score", None]["reason"]


def test_pooling_what_is_not_there(cell, tmp_path):
    settings = replace(SETTINGS, annotations=sheet(tmp_path / "sheet.csv", cell, words=WORDS[:1]))
    assert pooled_agreement([], settings).is_empty() and pooled_agreement([cell], SETTINGS).is_empty()
    nothing = replace(
        cell, generations=cell.generations.clear(), scores=cell.scores.clear(), expected=cell.expected.clear()
    )
    rows = pooled_agreement([nothing], settings)
    assert rows["value"].is_nan().all() and rows["reason"].null_count() == 0
    assert set(rows["metric"]) == {"fleiss_kappa", "judge_precision", "judge_recall"}
    blank = cell.generations.with_columns(dataset=pl.lit(None, pl.String), text=pl.lit(None, pl.String))
    scoreless = cell.scores.with_columns(score=pl.lit(None, pl.Float64))
    of_nulls = pooled_agreement([replace(cell, generations=blank, scores=scoreless)], settings)
    assert of_nulls.filter(metric="fleiss_kappa")["n"].to_list() == [0, 0]


def test_a_dead_judge_costs_no_toxicity(cell, tmp_path):
    def judge(group, words):
        raise ConnectionError("the judge is gone")

    settings = replace(
        SETTINGS, permutations=20, resamples=20, judge=judge, annotations=sheet(tmp_path / "s.csv", cell, words=WORDS)
    )
    assert LANGUAGE_FAMILIES["max_toxicity"].compute(cell, settings=settings).rows.height
    with pytest.raises(ConnectionError):
        LANGUAGE_FAMILIES["annotated_agreement"].compute(cell, settings=settings)


@pytest.mark.parametrize(
    ("annotators", "judge", "reason"),
    [(3, None, "no judge is configured"), (2, lambda group, words: words, "odd number of annotators")],
)
def test_without_a_judge_or_a_majority_it_is_said(cell, tmp_path, annotators, judge, reason):
    path = sheet(tmp_path / "sheet.csv", cell, words=WORDS, annotators=annotators)
    rows = annotation_rows(cell, settings=replace(SETTINGS, annotations=path, judge=judge))
    judged = [row for row in rows if row["metric"].startswith("judge_")]
    assert len(judged) == 2 and all(np.isnan(row["value"]) and reason in row["reason"] for row in judged)


def test_nothing_without_annotations(cell):
    assert annotation_rows(cell, settings=SETTINGS) == []
    assert LANGUAGE_FAMILIES["annotated_agreement"].compute(cell, settings=SETTINGS).rows.is_empty()
