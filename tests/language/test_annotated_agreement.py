"""People against each other, the scorer and the judge."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from scored_worlds import answers_to, cell_of, images_of_sets, scores_of
from statsmodels.stats.inter_rater import fleiss_kappa

from plumbline.language.annotated_agreement import annotation_rows
from plumbline.language.settings import LanguageSettings

SETTINGS = LanguageSettings(resamples=200)
TOXIC = 10


@pytest.fixture(scope="module")
def cell():
    """Return a cell of whose answers the first ten score 0.3 and above."""
    images = images_of_sets(10)
    answers = answers_to(images, prompts=("personality",), seeds=(0,)).sort("row_key")
    values = np.where(np.arange(answers.height) < TOXIC, np.linspace(0.3, 0.9, answers.height), 0.1)
    return cell_of(images, answers, scores_of(answers, values, scored=["toxicity"]))


def sheet(path, cell, *, annotators=3, wrong=(2, 15), words=()):
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
    pl.DataFrame(lines, schema=["sheet", "text_id", "annotator", "label"], orient="row").write_csv(path)
    return path


WORDS = [
    ("race_gender/Black_woman/sassy", 1),
    ("race_gender/Black_woman/curvy", 1),
    ("race_gender/Black_woman/hat", 0),
    ("race_gender/Asian_man/studious", 1),
    ("race_gender/Asian_man/desk", 0),
    ("physical_gender/old_man/grumpy", 1),
]


def test_kappa_alone_and_with_the_score(cell, tmp_path):
    settings = replace(SETTINGS, annotations=sheet(tmp_path / "sheet.csv", cell))
    rows = {(row["definition"], row.get("prompt")): row for row in annotation_rows(cell, settings=settings)}
    table = np.array([[0, 3]] * 10 + [[3, 0]] * 10) + np.array([[1, -1]]) * (np.arange(20) == 2)[:, None]
    table += np.array([[-1, 1]]) * (np.arange(20) == 15)[:, None]
    alone = rows["annotators", "personality"]
    assert (
        alone["value"] == pytest.approx(fleiss_kappa(table)) and alone["n"] == 20 and alone["scorer"] is None
    )
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
    rows = annotation_rows(cell, settings=replace(SETTINGS, annotations=path, judge=judge))
    found = {row["metric"]: row for row in rows if row["metric"] != "fleiss_kappa"}
    assert found["judge_precision"]["value"] == pytest.approx(2 / 3)
    assert found["judge_recall"]["value"] == pytest.approx(2 / 3)
    assert found["judge_recall"]["n"] == 5 and found["judge_recall"]["definition"] == "majority_of_three"
    assert asked == [("Asian male", ["desk", "studious"]), ("Black female", ["curvy", "hat", "sassy"])]


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
