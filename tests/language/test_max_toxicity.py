"""MaxToxicity and its like: worked by hand, on planted worlds, and what is left out."""

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scored_worlds import answers_to, cell_of, images_of_sets, scored_world, scores_of, skewed

from plumbline.catalog.schema import SCORED_ATTRIBUTES
from plumbline.language import scored_answers as scored_blocks
from plumbline.language.cell import LanguageSettings
from plumbline.language.max_toxicity import MAX_METRICS, MAX_TOXICITY
from plumbline.language.scored_answers import every_question

KNOWN = json.loads((Path(__file__).parents[1] / "known_answers" / "max_toxicity.json").read_text())
SETTINGS = LanguageSettings(resamples=200, permutations=200, min_sets=5)


def number(text):
    return float(Fraction(text))


def computed(cell, settings=SETTINGS):
    return MAX_TOXICITY.compute(cell, settings=settings)


def one(rows, **where):
    """Return the one row with these values; None is null."""
    for column, value in where.items():
        rows = rows.filter(pl.col(column).is_null() if value is None else pl.col(column) == value)
    assert rows.height == 1, rows
    return rows.row(0, named=True)


def by_hand(case):
    """Return the cell of a case: scores by set, seed and group; null is an answer that could not be scored."""
    groups, scores = case["inputs"]["groups"], case["inputs"]["scores"]
    images = images_of_sets(len(scores), groups=[f"g{k}" for k in range(groups)], occupations=("barber",))
    answers = answers_to(images, seeds=range(len(scores[0]))).sort("set_id", "seed", "group")
    flat = [score for of_set in scores for of_seed in of_set for score in of_seed]
    values = np.array([np.nan if score is None else number(score) for score in flat])
    return cell_of(images, answers, scores_of(answers, values, scored=["toxicity"]))


@pytest.mark.parametrize("case", KNOWN, ids=lambda case: case["source"][:40])
def test_known_answers(case):
    expected, tol = case["expected"], case["tol"]
    rows = computed(by_hand(case), replace(SETTINGS, min_sets=1)).rows
    for statistic in ("mean", "p90"):
        row = one(rows, metric="max_toxicity", definition="paper", statistic=statistic)
        assert row["value"] == pytest.approx(number(expected[statistic]), abs=tol)
        assert row["n"] == expected["n"]
        if "left_out" in expected:
            assert row["reason"].startswith(expected["left_out"])
    means = rows.filter(metric="toxicity", statistic="mean").sort("group")["value"].to_list()
    assert means == pytest.approx([number(x) for x in expected["group_means"]], abs=tol)
    spread = one(rows, metric="occupation_spread")
    assert spread["occupation"] == "barber"
    assert spread["value"] ** 2 == pytest.approx(number(expected["spread_of_means_squared"]), abs=tol)
    worst = rows.filter(metric="max_score_share").sort("group")
    assert worst["n"].unique().to_list() == [expected["worst_off_n"]]
    if expected["worst_off"] is None:
        assert worst["value"].is_nan().all() and worst["reason"].str.contains("no set lies above").all()
    else:
        assert worst["value"].to_list() == pytest.approx([number(x) for x in expected["worst_off"]], abs=tol)
        assert worst["p"].to_list() == pytest.approx([number(x) for x in expected["worst_off_p"]], abs=tol)


def test_a_planted_shift_is_found_with_its_size_and_its_group():
    cell = scored_world(60, shifts={"Black_woman": 0.25, "Black_man": 0.1})
    rows = computed(cell).rows
    means = {row["group"]: row["value"] for row in rows.filter(metric="toxicity", statistic="mean").to_dicts()}
    assert means["Black_woman"] - means["Asian_man"] == pytest.approx(0.25, abs=0.02)
    assert means["Black_man"] - means["Asian_man"] == pytest.approx(0.1, abs=0.02)
    highest = one(rows, metric="max_toxicity", definition="paper", statistic="mean")
    assert highest["ci_low"] > 0.2
    worst = one(rows, metric="max_score_share", event="insult", group="Black_woman")
    assert worst["value"] > 0.9 and worst["p"] < 0.01
    spreads = rows.filter(pl.col("occupation").is_not_null(), metric="occupation_spread", event="toxicity")
    assert spreads["occupation"].to_list() == ["barber", "doctor", "pilot"]
    assert (spreads["p"] < 0.05).all() and (spreads["ci_low"] > 0).all()


def test_without_a_difference_nothing_is_found_more_often_than_it_should():
    rows = pl.concat(computed(scored_world(40, seed=seed, scored=["toxicity"])).rows for seed in range(12))
    tested = rows.filter(pl.col("p").is_not_null())
    assert tested.height == 12 * (4 + 3)
    assert (tested["p"] <= 0.05).mean() < 0.12


@pytest.mark.parametrize("lost", ["image", "answer", "score"])
def test_sets_that_lack_something_are_left_out_and_counted(lost):
    images = images_of_sets(40)
    answers = answers_to(images)
    scores = scores_of(answers, skewed(answers, np.random.default_rng(0)))
    hit = answers.filter(pl.col("image_id") == images["image_id"][5])
    if lost == "image":
        images = images.filter(pl.col("image_id") != images["image_id"][5])
        answers = answers.join(hit, on="row_key", how="anti")
    elif lost == "answer":
        hit = hit.filter(seed=1)
        answers = answers.join(hit, on="row_key", how="anti")
    else:
        hit = hit.filter(seed=2)
        gone = pl.col("row_key").is_in(hit["row_key"].to_list())
        scores = scores.with_columns(score=pl.when(gone).then(np.nan).otherwise("score"))
    row = one(
        computed(cell_of(images, answers, scores)).rows, metric="max_insult", definition="paper", statistic="mean"
    )
    out = 3 if lost == "image" else 1
    assert row["n"] == (39 if lost == "image" else 40)
    assert row["reason"] == f"{out} of 120 sets × seeds left out as incomplete"


def test_a_set_without_any_whole_seed_is_no_number():
    images = images_of_sets(4)
    answers = answers_to(images).filter(pl.col("group") != "Asian_man")
    rows = computed(cell_of(images, answers, scores_of(answers, pl.lit(0.5)))).rows
    row = one(rows, metric="max_toxicity", definition="paper", statistic="p90")
    assert np.isnan(row["value"]) and row["n"] == 0
    assert row["reason"] == "12 of 12 sets × seeds left out as incomplete; undefined: no set is complete"


def test_without_refusals_leaves_out_refused_answers_and_their_sets():
    images = images_of_sets(40)
    answers = answers_to(images)
    refused = (pl.col("group") == "Black_man") & (pl.col("set_id") < "0010") & (pl.col("seed") == 0)
    answers = answers.with_columns(
        finish_reason=pl.when(refused & (pl.col("set_id") < "0005")).then(pl.lit("refusal")).otherwise("finish_reason"),
        text=pl.when(refused & (pl.col("set_id") >= "0005"))
        .then(pl.lit("I'm sorry, but I can't help with that."))
        .otherwise("text"),
    )  # fmt: skip
    scores = scores_of(answers, skewed(answers, np.random.default_rng(0)))
    rows = computed(cell_of(images, answers, scores)).rows
    paper = one(rows, metric="max_toxicity", definition="paper", statistic="mean")
    without = one(rows, metric="max_toxicity", definition="without_refusals", statistic="mean")
    assert paper["reason"] is None and without["reason"] == "10 of 120 sets × seeds left out as incomplete"
    assert paper["n"] == without["n"] == 40 and paper["value"] != without["value"]


def test_without_refusals_is_the_same_number_where_nothing_is_refused():
    rows = computed(scored_world(30)).rows
    same = [
        rows.filter(pl.col("metric").is_in(list(MAX_METRICS.values())), definition=name).drop("definition")
        for name in ("paper", "without_refusals")
    ]
    assert same[0].height == 8 and same[0].equals(same[1])


def test_the_worst_off_of_a_discrete_scorer_are_those_at_the_90th_percentile():
    """In 12 of 60 sets the score is 1 of one person, else nobody's: the 90th percentile is 1, and nothing above it."""
    images = images_of_sets(60)
    answers = answers_to(images, seeds=(0,))
    number, group = answers["set_id"].cast(pl.Int64), answers["group"]
    worst = ((number % 5 == 0) & (group == pl.Series(["Black_man" if n < 45 else "Asian_man" for n in number]))).cast(
        float
    )
    rows = computed(cell_of(images, answers, scores_of(answers, worst.to_numpy(), scored=["toxicity"]))).rows
    found = rows.filter(metric="max_score_share")
    assert dict(zip(found["group"], found["value"])) == {
        "Asian_man": 0.25, "Asian_woman": 0.0, "Black_man": 0.75, "Black_woman": 0.0,
    }  # fmt: skip
    assert (found["n"] == 12).all() and found["reason"].str.starts_with("no set lies above the 90th").all()
    assert one(found, group="Black_man")["p"] < 0.01


def test_every_prompt_instruction_and_scorer_has_its_rows_and_nothing_else_moves_them():
    asked = {"prompts": ("characteristics", "pretend"), "instructions": ("none", "M1")}
    cell = scored_world(25, scorers=("a", "b"), **asked)
    rows = computed(cell).rows.filter(metric="max_toxicity", definition="paper", statistic="mean")
    assert set(rows.select("prompt", "instruction", "scorer").iter_rows()) == {
        (p, i, s) for p in asked["prompts"] for i in (None, "M1") for s in ("a", "b")
    }
    alone = replace(cell, generations=cell.generations.filter(pl.col("prompt") == "pretend"))
    kept = computed(alone).rows.filter(metric="max_toxicity", definition="paper", statistic="mean")
    assert kept.equals(rows.filter(prompt="pretend"))


def test_many_seeds_of_one_image_are_no_more_images():
    """The interval of 15 equal answers an image is that of one answer an image."""
    images = images_of_sets(60, dataset="real").with_columns(
        set_id=pl.lit(None, pl.String), set_groups=pl.lit(None, pl.Int64), occupation=pl.lit(None, pl.String)
    )
    value = np.random.default_rng(0).beta(0.5, 4, images.height)
    found = []
    for seeds in (range(1), range(15)):
        answers = answers_to(images, seeds=seeds)
        scores = answers.select("image_id").join(
            images.select("image_id", value=pl.Series(value)), on="image_id", maintain_order="left"
        )["value"]
        rows = computed(cell_of(images, answers, scores_of(answers, scores.to_numpy()))).rows
        assert not rows["metric"].str.starts_with("max_").any() and rows.filter(metric="max_score_share").is_empty()
        found.append(rows.filter(metric="toxicity").sort("group", "statistic"))
    for column in ("ci_low", "ci_high", "n"):
        mean = [rows.filter(statistic="mean")[column].to_list() for rows in found]
        assert mean[0] == pytest.approx(mean[1])
    assert found[0]["n"].unique().to_list() == [60]
    p90 = found[0].filter(statistic="p90", group="Asian_man")
    of_group = value[(images["group"] == "Asian_man").to_numpy()]
    assert p90["value"].item() == pytest.approx(np.quantile(of_group, 0.9), abs=1e-12)


def test_scorers_that_disagree_are_seen():
    images = images_of_sets(40)
    answers = answers_to(images)
    draw = np.random.default_rng(0)
    value = skewed(answers, draw)
    scores = pl.concat(
        [
            scores_of(answers, value, scorer="a"),
            scores_of(answers, np.sqrt(value), scorer="b"),
            scores_of(answers, draw.random(len(value)), scorer="c", scored=["toxicity"]),
            scores_of(answers, pl.lit(0.0), scorer="d", scored=["toxicity"]),
        ]
    )
    rows = computed(cell_of(images, answers, scores)).rows.filter(metric="scorer_agreement")
    assert rows.height == 2 * (6 + 3)
    same = one(rows, definition="spearman", scorer="a", reference_group="b", event="insult")
    assert same["value"] == pytest.approx(1)
    line = one(rows, definition="pearson", scorer="a", reference_group="b", event="toxicity")
    assert 0.8 < line["ci_low"] < line["value"] < line["ci_high"] < 1
    none = one(rows, definition="spearman", scorer="b", reference_group="c", event="toxicity")
    assert none["ci_low"] < 0 < none["ci_high"] and none["statistic"] == "r"
    constant = one(rows, definition="spearman", scorer="c", reference_group="d", event="toxicity")
    assert np.isnan(constant["value"]) and "does not vary" in constant["reason"]


def test_the_table_of_occupations_has_both_ends():
    images = images_of_sets(60, occupations=[f"job {k:02d}" for k in range(12)])
    answers = answers_to(images, seeds=(0,))
    step = answers["occupation"].str.tail(2).cast(pl.Int64).to_numpy()
    value = np.where(answers["group"] == "Black_man", 0.05 * step, 0.0) + 0.01
    result = computed(cell_of(images, answers, scores_of(answers, value, scored=["toxicity"])))
    table = result.tables["occupation_scores"]
    assert dict(table.schema) == {k: v() for k, v in MAX_TOXICITY.tables["occupation_scores"].items()}
    ends = table.unique(["end", "place"]).sort("end", "place")
    assert ends["occupation"].to_list() == [
        "job 11", "job 10", "job 09", "job 08", "job 00", "job 01", "job 02", "job 03",
    ]  # fmt: skip
    eight = computed(
        cell_of(images, answers, scores_of(answers, value, scored=["toxicity"])),
        replace(SETTINGS, highest_occupations=8, lowest_occupations=0),
    ).tables["occupation_scores"]
    assert eight["end"].unique().to_list() == ["largest"]
    assert eight.sort("place")["occupation"].unique(maintain_order=True).to_list() == [
        f"job {k:02d}" for k in range(11, 3, -1)
    ]
    shown = table.filter(occupation="job 10", group="Black_man").row(0, named=True)
    assert [shown[q] for q in ("min", "q05", "q25", "median", "q75", "q95", "max")] == pytest.approx([0.51] * 7)
    assert (shown["n"], shown["spread"]) == (5, pytest.approx(0.5 * np.sqrt(3) / 4))
    few = computed(
        cell_of(images, answers, scores_of(answers, value, scored=["toxicity"])), replace(SETTINGS, min_sets=6)
    )
    row = one(few.rows, metric="occupation_spread")
    assert np.isnan(row["value"]) and row["reason"] == "undefined: no occupation has 6 sets"
    assert few.tables["occupation_scores"].is_empty()


def test_tables_over_several_files_give_the_same_rows(tmp_path):
    cell = scored_world(25, prompts=("characteristics", "pretend"), scorers=("a", "b"))
    for name in ("generations", "scores"):
        frame = getattr(cell, name).collect().sample(fraction=1, shuffle=True, seed=0)
        for k in range(3):
            frame[k::3].write_parquet(tmp_path / f"{name}-{k}.parquet")
    stored = replace(
        cell,
        generations=pl.scan_parquet(tmp_path / "generations-*.parquet"),
        scores=pl.scan_parquet(tmp_path / "scores-*.parquet"),
    )
    assert computed(stored).rows.equals(computed(cell).rows)


@pytest.mark.parametrize("block_answers", [*(pytest.param(size, marks=pytest.mark.slow) for size in (1, 60)), 400])
def test_blocks_of_any_size_give_the_same_rows(monkeypatch, block_answers):
    """400 is less than a question: its sets are in several blocks; at 1 nearly every set is alone."""
    asked = {"prompts": ("characteristics", "pretend"), "instructions": ("none", "M1")}
    cell = scored_world(40, scorers=("a", "b"), **asked)
    answers = cell.generations.collect()
    hit = pl.col("image_id") == answers["image_id"][7]
    lost = pl.col("row_key") == answers["row_key"][100]
    cell = replace(
        cell,
        generations=cell.generations.with_columns(
            finish_reason=pl.when(hit).then(pl.lit("refusal")).otherwise("finish_reason")
        ),
        scores=cell.scores.with_columns(score=pl.when(lost).then(np.nan).otherwise("score")),
    )
    whole = computed(cell)
    with every_question(cell) as questions:
        assert [len(each.blocks) for each in questions] == [1] * 4
    monkeypatch.setattr(scored_blocks, "BLOCK_ANSWERS", block_answers)
    with every_question(cell) as questions:
        assert all(len(each.blocks) > 1 for each in questions)
        for each in questions:
            units = [set(block.collect()["unit"]) for block in each.blocks]
            assert sum(map(len, units)) == len(set.union(*units)) == 40
    found = computed(cell)
    assert found.rows.equals(whole.rows)
    assert found.tables["occupation_scores"].equals(whole.tables["occupation_scores"])


def test_occupations_and_worst_off_are_of_every_scorer():
    """One scorer alone gives the same rows as beside another, whichever is the first."""
    cell = scored_world(40, scorers=("a", "b"))
    both = computed(replace(cell, scorers={"b": False, "a": True}))
    for name in ("a", "b"):
        alone = computed(replace(cell, scores=cell.scores.filter(pl.col("scorer") == name)))
        for metric in ("occupation_spread", "max_score_share"):
            own = both.rows.filter(metric=metric, scorer=name)
            assert own.height > 0 and own.equals(alone.rows.filter(metric=metric))
        table = alone.tables["occupation_scores"]
        assert table.height > 0 and both.tables["occupation_scores"].filter(scorer=name).equals(table)


def test_nothing_without_scores():
    cell = scored_world(4)
    empty = replace(cell, scores=cell.scores.clear())
    result = computed(empty)
    assert result.rows.is_empty() and result.tables["occupation_scores"].is_empty()


def test_names_are_those_of_the_scorers_attributes():
    rows = computed(scored_world(5)).rows
    assert {f"max_{name}" for name in SCORED_ATTRIBUTES} <= set(rows["metric"]) <= set(MAX_TOXICITY.metrics)
    assert set(rows["statistic"]) == {"mean", "p90", "estimate"}
