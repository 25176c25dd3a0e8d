"""What instructions change, paired over sets, and what they change beside."""

import numpy as np
import polars as pl
import pytest
from scored_worlds import answers_to, cell_of, images_of_sets, scored_world, scores_of, skewed

from plumbline.language.cell import LanguageSettings
from plumbline.language.instruction_effects import INSTRUCTION_EFFECTS

SETTINGS = LanguageSettings(resamples=400, permutations=400)


def computed(cell):
    return INSTRUCTION_EFFECTS.compute(cell, settings=SETTINGS).rows


def one(rows, **where):
    found = rows.filter(**where)
    assert found.height == 1, found
    return found.row(0, named=True)


def instructed_world(sets=50, *, factor=0.5, seed=0, instructions=("none", "M1", "M3")):
    """Return a cell in which M1 scales toxicity and M3 adds to flirtation of one group; set 0 lost an image."""
    draw, images = np.random.default_rng(seed), images_of_sets(sets)
    answers = answers_to(images, instructions=instructions).sort("image_id", "instruction", "seed")
    # The same scene, image and seed score alike under every instruction but for a little noise.
    base = skewed(answers.filter(instruction="none"), draw).reshape(-1, 1, 3)
    value = np.clip(np.repeat(base, len(instructions), axis=1).ravel() + draw.normal(0, 0.005, answers.height), 0, 1)
    toxicity = np.where(answers["instruction"] == "M1", factor * value, value)
    raised = (answers["instruction"] == "M3") & (answers["group"] == "Black_woman")
    flirtation = np.clip(value + np.where(raised, 0.2, 0.0), 0, 1)
    scores = [
        scores_of(answers, values, scored=[name])
        for name, values in (("toxicity", toxicity), ("insult", value), ("flirtation", flirtation))
    ]
    lost = (pl.col("image_id") == images["image_id"][0]) & (pl.col("instruction") == "M1")
    return cell_of(images, answers.filter(~lost), pl.concat(scores))


def test_a_planted_change_is_found_and_is_the_difference_of_paired_values():
    cell = instructed_world()
    rows = computed(cell)
    wide = (
        cell.scores.filter(attribute="toxicity")
        .join(cell.generations.filter(pl.col("set_id") != "0000"), on="row_key")
        .group_by("set_id", "seed", "instruction")
        .agg(spread=pl.col("score").max() - pl.col("score").min())
        .collect()
        .pivot("instruction", index=["set_id", "seed"], values="spread")
    )
    mean = one(rows, metric="max_toxicity_change", instruction="M1", statistic="mean")
    assert mean["value"] == pytest.approx((wide["M1"] - wide["none"]).mean(), abs=1e-12)
    assert mean["ci_high"] < 0 and mean["p"] < 0.01 and mean["n"] == 49
    assert mean["reason"] == "3 of 150 sets × seeds left out without a counterpart"
    unlost = one(rows, metric="max_toxicity_change", instruction="M3", statistic="mean")
    assert unlost["reason"] is None and unlost["n"] == 50
    for metric in ("refusal_rate_change", "response_length_change"):
        lost = one(rows, metric=metric, instruction="M1")
        assert lost["reason"].startswith("3 of 600 answers left out without a counterpart") and lost["n"] == 50
    p90 = one(rows, metric="max_toxicity_change", instruction="M1", statistic="p90")
    expected = np.quantile(wide["M1"], 0.9) - np.quantile(wide["none"], 0.9)
    assert p90["value"] == pytest.approx(expected, abs=1e-12) and p90["ci_high"] < 0 and p90["p"] < 0.01


def test_an_instruction_that_raises_another_attribute_is_seen():
    rows = computed(instructed_world()).filter(statistic="mean")
    assert one(rows, metric="max_flirtation_change", instruction="M3")["ci_low"] > 0.1
    assert one(rows, metric="max_flirtation_change", instruction="M3")["p"] < 0.01
    for metric, instruction in (("max_insult_change", "M1"), ("max_toxicity_change", "M3")):
        row = one(rows, metric=metric, instruction=instruction)
        assert row["ci_low"] < 0 < row["ci_high"] and row["p"] > 0.05
    assert rows.filter(metric="max_identity_attack_change").is_empty(), "nothing scored it"


def test_pairing_narrows_the_interval():
    cell = instructed_world(factor=0.9)
    row = one(computed(cell), metric="max_toxicity_change", instruction="M1", statistic="mean")
    unpaired = scored_world(50)
    spreads = (
        unpaired.scores.filter(attribute="toxicity")
        .join(unpaired.generations, on="row_key")
        .group_by("set_id")
        .agg(spread=pl.col("score").max() - pl.col("score").min())
        .collect()["spread"]
    )
    apart = 2 * 1.96 * np.sqrt(2 * spreads.var() / 50)
    assert row["ci_high"] - row["ci_low"] < apart / 2


def test_an_instruction_that_does_nothing_is_seldom_called_one_that_does():
    rows = pl.concat(
        computed(instructed_world(30, seed=seed, factor=1.0, instructions=("none", "M1"))) for seed in range(15)
    ).filter(pl.col("metric").str.starts_with("max_"))
    assert rows.height == 15 * 6 and (rows["p"] <= 0.05).mean() < 0.12


def test_refusals_and_lengths_are_side_effects():
    images = images_of_sets(40)
    answers = answers_to(images, instructions=("none", "M2"))
    refuses = (pl.col("instruction") == "M2") & (pl.col("set_id") < "0010")
    answers = answers.with_columns(
        finish_reason=pl.when(refuses).then(pl.lit("refusal")).otherwise("finish_reason"),
        text=pl.when(refuses).then(pl.lit("")).otherwise("text"),
    )
    rows = computed(cell_of(images, answers, scores_of(answers, pl.lit(0.1))))
    refused = one(rows, metric="refusal_rate_change")
    assert refused["value"] == pytest.approx(0.25) and refused["p"] < 0.01
    assert (refused["instruction"], refused["scorer"], refused["n"]) == ("M2", None, 40)
    length = one(rows, metric="response_length_change")
    assert length["value"] == pytest.approx(-0.25 * 5) and length["ci_high"] < 0
    unchanged = one(rows, metric="max_toxicity_change", statistic="p90")
    assert (unchanged["value"], unchanged["p"]) == (0.0, 1.0) and unchanged["reason"]


def test_what_was_asked_only_under_an_instruction_has_no_rows():
    assert computed(scored_world(4, instructions=("M1", "M2"))).is_empty()
    assert computed(scored_world(4)).is_empty()


def test_what_was_asked_under_one_condition_only_is_no_lost_pair():
    """Of another dataset nothing was asked under the instruction: it has no counterpart to lose."""
    cell, other = instructed_world(), images_of_sets(5, dataset="other")
    answers = answers_to(other)
    more = cell_of(other, answers, scores_of(answers, pl.lit(0.5)))
    both = cell_of(
        pl.concat([cell.expected, more.expected]),
        pl.concat([each.generations.collect() for each in (cell, more)]),
        pl.concat([each.scores.collect() for each in (cell, more)]),
    )
    assert computed(both).equals(computed(cell))


def test_pairs_of_which_none_is_left_are_undefined():
    """Each condition has every set, of another seed."""
    images = images_of_sets(5)
    answers = answers_to(images, instructions=("none", "M1"))
    answers = answers.filter((pl.col("instruction") == "M1") == (pl.col("seed") == 0))
    rows = computed(cell_of(images, answers, scores_of(answers, pl.lit(0.5))))
    assert rows["value"].is_nan().all() and (rows["n"] == 0).all()
    assert rows["reason"].str.contains("15 of 15 sets × seeds|60 of 60 answers").all()
