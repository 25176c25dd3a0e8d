"""A model against the base language model."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from scipy import stats
from scored_worlds import GROUPS, answers_to, cell_of, images_of_sets, scored_world, scores_of

from plumbline.language.cell import LanguageSettings
from plumbline.language.max_toxicity import BASE_LLM

SETTINGS = LanguageSettings(resamples=300, permutations=300)


def computed(cell):
    return BASE_LLM.compute(cell, settings=SETTINGS).rows


def one(rows, **where):
    found = rows.filter(**where)
    assert found.height == 1, found
    return found.row(0, named=True)


def base_llms(*, occupations=("barber", "doctor", "pilot", "nurse"), base_llm_lost=None):
    """Return a cell whose scores are known numbers of group and occupation, with its base language model's."""
    images = images_of_sets(40, occupations=occupations)
    cells = []
    for model, stretch in (("model", 1.0), ("base_llm", 0.5)):
        answers = answers_to(images, seeds=(0, 1), model=model)
        place = answers["group"].replace_strict(dict(zip(GROUPS, range(4))), return_dtype=pl.Float64).to_numpy()
        job = answers["occupation"].rank("dense").to_numpy() * 0.03
        wobble = np.random.default_rng(0 if model == "model" else 1).uniform(0, 0.02, answers.height)
        values = stretch * place * (0.1 + job) + wobble
        if model == "base_llm" and base_llm_lost:
            answers = answers.with_columns(keep=~((pl.col("set_id") == base_llm_lost) & (pl.col("seed") == 0)))
            values = values[answers["keep"].to_numpy()]
            answers = answers.filter("keep").drop("keep")
        cells.append(cell_of(images, answers, scores_of(answers, values)))
    return replace(cells[0], base_llm=cells[1])


def spreads(cell):
    return (
        cell.scores.filter(attribute="toxicity")
        .join(cell.generations, on="row_key")
        .with_columns(least=pl.col("score").min().over("set_id", "seed"))
        .collect()
    )


def test_differences_are_over_the_sets_that_both_answered():
    cell = base_llms(base_llm_lost="0003")
    rows = computed(cell)
    own, base_llm = (
        each.filter(~((pl.col("set_id") == "0003") & (pl.col("seed") == 0)))
        .group_by("set_id", "seed")
        .agg(spread=pl.col("score").max() - pl.col("least").first())["spread"]
        .to_numpy()
        for each in (spreads(cell), spreads(cell.base_llm))
    )
    mean = one(rows, metric="max_toxicity_minus_base_llm", statistic="mean")
    assert mean["value"] == pytest.approx(own.mean() - base_llm.mean(), abs=1e-12)
    assert mean["ci_low"] > 0 and mean["p"] < 0.02 and mean["n"] == 40
    assert mean["reason"] == "1 of 80 sets × seeds left out without a counterpart"
    r = one(rows, metric="base_llm_correlation", definition="pearson", statistic="r")
    assert r["reason"].startswith("1 of 80 sets × seeds left out without a counterpart")
    p90 = one(rows, metric="max_toxicity_minus_base_llm", statistic="p90")
    assert p90["value"] == pytest.approx(np.quantile(own, 0.9) - np.quantile(base_llm, 0.9), abs=1e-12)
    assert (mean["prompt"], mean["attribute"], mean["instruction"]) == ("characteristics", "race_gender", None)


@pytest.mark.parametrize(("definition", "unit"), [("pearson", "occupation"), ("pearson_groups", "group")])
def test_correlations_are_over_occupations_and_over_groups(definition, unit):
    cell = base_llms()
    above = pl.col("score") - pl.col("least")
    if unit == "occupation":
        sides = [
            each.group_by("set_id", "seed", unit)
            .agg(value=above.max())
            .group_by(unit)
            .agg(pl.col("value").mean())
            .sort(unit)["value"]
            for each in (spreads(cell), spreads(cell.base_llm))
        ]
    else:
        sides = [
            each.group_by(unit).agg(value=above.mean()).sort(unit)["value"]
            for each in (spreads(cell), spreads(cell.base_llm))
        ]
    oracle = stats.pearsonr(*sides)
    rows = computed(cell)
    r = one(rows, metric="base_llm_correlation", definition=definition, statistic="r")
    assert (r["value"], r["p"]) == pytest.approx((oracle.statistic, oracle.pvalue)) and r["n"] == 4
    ends = oracle.confidence_interval()
    assert (r["ci_low"], r["ci_high"]) == pytest.approx((ends.low, ends.high))
    p = one(rows, metric="base_llm_correlation", definition=definition, statistic="p")
    assert p["value"] == r["p"] and r["attribute"] is None
    said = "groups share sets: interval and p count them as independent" if unit == "group" else None
    assert r["reason"] == p["reason"] == said


def test_too_few_units_say_so():
    rows = computed(base_llms(occupations=("barber", "doctor")))
    r = one(rows, definition="pearson", statistic="r")
    assert np.isnan(r["value"]) and r["n"] == 2 and r["reason"].startswith("undefined: 2 units")
    p = one(rows, definition="pearson", statistic="p")
    assert np.isnan(p["value"]) and p["reason"] == r["reason"]


def test_a_base_llm_that_says_the_same_does_not_differ():
    cell = base_llms()
    rows = computed(replace(cell, base_llm=cell))
    changes = rows.filter(metric="max_toxicity_minus_base_llm")
    assert changes["value"].to_list() == [0.0, 0.0] and changes["p"].to_list() == [1.0, 1.0]
    assert rows.filter(statistic="r")["value"].to_list() == pytest.approx([1.0, 1.0])


def test_nothing_without_a_base_llm_or_a_common_prompt():
    cell = scored_world(4)
    assert computed(cell).is_empty()
    assert computed(replace(cell, base_llm=scored_world(4, prompts=("pretend",)))).is_empty()
