"""Every registered language metric keeps what it declares, in one world that has something of everything."""

from dataclasses import dataclass, replace

import numpy as np
import polars as pl
import pytest
from scored_worlds import GROUPS, answers_to, cell_of, images_of_sets, scores_of, skewed

from plumbline.catalog.prompts import prompt_ids
from plumbline.catalog.schema import REQUIRED, metric_frame, polars_schema
from plumbline.language.cell import LanguageSettings
from plumbline.language.registry import LANGUAGE_FAMILIES, LANGUAGE_METRICS

FAMILIES = pytest.mark.parametrize("family", LANGUAGE_FAMILIES.values(), ids=list(LANGUAGE_FAMILIES))
METRICS = pytest.mark.parametrize("traits", LANGUAGE_METRICS.values(), ids=list(LANGUAGE_METRICS))
PROMPTS = ("characteristics", "personality", "hiring", "salary")
SAID = {"Black_woman": "sassy", "Asian_man": "studious", "Asian_woman": "quiet", "Black_man": "clumsy"}
KEY = ["metric", "definition", "dataset", "attribute", "group", "reference_group", "event", "occupation",
       "instruction", "prompt", "scorer", "statistic"]  # fmt: skip


@dataclass(frozen=True)
class World:
    """Answers and scores of a model and of the base language model, on the same images."""

    images: pl.DataFrame
    answers: tuple[pl.DataFrame, pl.DataFrame]
    scores: tuple[pl.DataFrame, pl.DataFrame]

    def cell(self):
        own, base_llm = (cell_of(self.images, *each) for each in zip(self.answers, self.scores))
        return replace(own, base_llm=base_llm)


def text_of(prompt, group, place, alike):
    """Write an answer: more able, better paid, longer, or refused, by group and by place."""
    step = 0 if alike else GROUPS.index(group)
    if prompt == "hiring":
        return "I cannot say ." if (place + step) % 11 == 0 else f"I would say {3 + (place + step) % 6} out of 10 ."
    if prompt == "salary":
        return f"${40 + 5 * step + place % 7},000"
    if (place + step) % 13 == 0 and not alike:
        return "I'm sorry, but I can't help with that."
    words = ["capable"] * (place % 3) + ["warm"] * (step % 2) + ["and", "tall"] * step
    return f"A {SAID[GROUPS[step]]} person , {' '.join(words)} . A {SAID[GROUPS[step]]} one ."


def world(*, alike=False, seed=0):
    draw, images = np.random.default_rng(seed), images_of_sets(24)
    tables = []
    for model in ("model", "base_llm"):
        asked = answers_to(images, prompts=PROMPTS, instructions=("none", "M1"), seeds=(0, 1), model=model)
        asked = asked.filter((pl.col("prompt") == "characteristics") | (pl.col("instruction") == "none"))
        places = (asked["set_id"].cast(pl.Int64) + asked["seed"]).to_list()
        asked = asked.with_columns(
            text=pl.Series([text_of(p, g, k, alike) for p, g, k in zip(asked["prompt"], asked["group"], places)])
        )
        if alike:
            of_set = asked.select(pl.struct("set_id", "prompt", "instruction", "seed")).to_series().rank("dense")
            value = draw.beta(0.6, 6, asked.height)[of_set.to_numpy().astype(int) - 1]
        else:
            value = skewed(asked, draw, shifts={"Black_woman": 0.1, "Asian_man": 0.03})
        written = asked.with_columns(value=pl.Series(value)).filter(pl.col("prompt").is_in(prompt_ids("main")))
        scored = [scores_of(written, pl.col("value") ** power, scorer=name) for name, power in (("a", 1), ("b", 0.5))]
        tables.append((asked, pl.concat(scored)))
    return World(images, *zip(*tables))


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("contracts")
    header = "word,Warmth_dict_hi,Warmth_dict_lo,Competence_dict_hi,Competence_dict_lo\n"
    words = "warm,1,0,0,0\nquiet,0,1,0,0\ncapable,0,0,1,0\nclumsy,0,0,0,1\n"
    (folder / "dictionaries.csv").write_text(header + words)
    keys = answers_to(images_of_sets(24), prompts=("personality",), seeds=(0, 1))["row_key"].to_list()
    labels = [f"personality,{key},{who},{(place % 5 + who) % 2}" for place, key in enumerate(keys) for who in range(3)]
    labels += [f"judge,race_gender/{group}/{word},{who},1" for group, word in SAID.items() for who in range(3)]
    (folder / "labels.csv").write_text("\n".join(["sheet,text_id,annotator,label", *labels]))
    return LanguageSettings(
        resamples=60,
        permutations=60,
        min_count=3,
        min_sets=5,
        dictionaries=folder / "dictionaries.csv",
        annotations=folder / "labels.csv",
        judge=lambda group, words: words[:1],
    )


def results(cell, settings):
    return {name: family.compute(cell, settings=settings) for name, family in LANGUAGE_FAMILIES.items()}


@pytest.fixture(scope="module")
def found(settings):
    return results(world().cell(), settings)


def rows_of(found, metric):
    return pl.concat(result.rows for result in found.values()).filter(metric=metric)


@FAMILIES
def test_every_row_is_declared_and_complete(family, found):
    rows = found[family.name].rows
    assert dict(rows.schema) == {name: kind() for name, kind in polars_schema().items()}
    assert set(rows["metric"]) == {traits.name for traits in family.about.metrics}, (
        "what is declared comes, nothing else"
    )
    assert metric_frame(rows.drop("reason", "reason_codes").to_dicts()).height == rows.height
    assert all(rows[name].null_count() == 0 for name in (*REQUIRED, "suite", "value", "n"))
    assert set(rows["suite"]) == {"generation"} and set(rows["condition"]) == {"before"}
    assert set(rows["model"]) == {"model"} and "none" not in rows["instruction"].to_list()
    assert set(rows["statistic"]) <= {"mean", "p90", "estimate", "r", "p", "count"}
    assert not rows.select(KEY).is_duplicated().any()


@FAMILIES
def test_tables_have_their_schema(family, found):
    tables = found[family.name].tables
    assert set(tables) == set(family.tables)
    for name, schema in family.tables.items():
        assert dict(tables[name].schema) == {column: kind() for column, kind in schema.items()}
        assert tables[name].height


@FAMILIES
def test_what_is_undefined_says_why_and_intervals_are_in_order(family, found):
    rows = found[family.name].rows
    undefined = rows.filter(pl.col("value").is_nan() | pl.col("ci_low").is_nan())
    assert undefined["reason"].null_count() == 0
    known = rows.filter(pl.col("ci_low").is_not_null() & pl.col("ci_low").is_not_nan())
    assert (known["ci_low"] <= known["ci_high"]).all()
    p = rows["p"].drop_nulls().drop_nans()
    assert ((p > 0) & (p <= 1)).all()


@METRICS
def test_values_lie_within_the_declared_bounds(traits, found):
    rows = rows_of(found, traits.name).filter(pl.col("value").is_not_nan(), pl.col("statistic") != "p")
    assert rows.height, "nothing of it is defined in a world that has something of everything"
    assert rows["value"].is_between(*traits.bounds).all()
    assert traits.headline is None or traits.headline in set(rows["definition"])


@pytest.fixture(scope="module")
def alike(settings):
    return results(world(alike=True).cell(), settings)


@pytest.mark.parametrize(
    "traits",
    [traits for traits in LANGUAGE_METRICS.values() if traits.when_identical is not None],
    ids=lambda traits: traits.name,
)
def test_groups_that_are_spoken_of_alike(traits, alike):
    values = rows_of(alike, traits.name).filter(pl.col("statistic") != "p")["value"].to_numpy()
    assert len(values)
    if np.isnan(traits.when_identical):
        assert np.isnan(values).all()
    else:
        np.testing.assert_allclose(values[~np.isnan(values)], traits.when_identical, atol=1e-12)


def same_numbers(first, second, columns):
    """Compare rows that are the same thing, in whatever order they come."""
    both = [rows.select(*KEY, *columns).sort(KEY) for rows in (first, second)]
    assert both[0].select(KEY).equals(both[1].select(KEY))
    for column in columns:
        np.testing.assert_allclose(*(each[column].to_numpy() for each in both), rtol=1e-9, atol=1e-12)


def test_row_order_does_not_matter(found, settings):
    there = world()
    shuffled = [
        tuple(frame.sample(fraction=1, shuffle=True, seed=3) for frame in frames)
        for frames in ((there.images,), there.answers, there.scores)
    ]
    again = results(World(shuffled[0][0], *shuffled[1:]).cell(), settings)
    for name, result in found.items():
        same_numbers(result.rows, again[name].rows, ["value", "ci_low", "ci_high", "n"])


def test_renaming_groups_moves_the_rows_of_groups_and_nothing_else(found, settings):
    there, names = world(), dict(zip(GROUPS, ("old_man", "Black_man", "tattooed_woman", "Asian_man")))
    renamed = pl.col("group").replace_strict(names)
    moved = World(
        there.images.with_columns(renamed), tuple(frame.with_columns(renamed) for frame in there.answers), there.scores
    )
    # The words of the sheet are of the old groups.
    again = results(moved.cell(), settings)
    back = pl.col("group").replace({new: old for old, new in names.items()})
    for name, result in found.items():
        kept = [rows.filter(~pl.col("metric").str.starts_with("judge_")) for rows in (result.rows, again[name].rows)]
        same_numbers(kept[0], kept[1].with_columns(back), ["value", "n"])
