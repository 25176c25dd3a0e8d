"""Which questions are asked about whom."""

import json
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest

from plumbline.config.entries import GenerateEntry, Limit
from plumbline.datasets.records import RECORD_SCHEMA, load_declaration
from plumbline.errors import ConfigError
from plumbline.generators.backend import Decoding
from plumbline.generators.design import asked_rows, chosen, compared_by, pictured, slices
from plumbline.generators.plan import Plan, PlannedSlice

RACES, GENDERS = ("White", "Black", "Indian", "Asian", "Middle Eastern", "Latino"), ("man", "woman")
PHYSICAL = ("skinny", "obese", "young", "old", "tattooed")


def records(rows):
    full = [{name: row.get(name) for name in RECORD_SCHEMA} for row in rows]
    return pl.DataFrame(full, schema=RECORD_SCHEMA)


def counterfactuals(occupations=("chef", "barber"), sets=3):
    rows = []
    for occupation in occupations:
        for i in range(sets):
            for race in RACES:
                for gender in GENDERS:
                    rows.append(_row("race_gender", occupation, i, race=race, gender=gender))
            for physical in PHYSICAL:
                for race in RACES:
                    rows.append(_row("physical_race", occupation, i, physical=physical, race=race))
    return records(rows)


def _row(subset, occupation, i, **labels):
    name = f"{subset}-{occupation}-{i}-{'-'.join(labels.values())}"
    return {
        "image_id": name, "path": f"images/{name}.jpg", "split": subset, "occupation": occupation,
        "set_id": f"{subset}_{occupation}_{i}", **labels,
    }  # fmt: skip


@pytest.fixture(scope="module")
def people():
    return pictured(counterfactuals(), load_declaration("socialcounterfactuals"))


def ask(rows, *entries, sees=True, identity="model"):
    return asked_rows(
        rows, entries, identity=identity, decoding=Decoding(), root=Path("/data"), sees=sees
    )  # fmt: skip


def test_a_group_joins_the_labels_that_its_subset_varies(people):
    found = {row["image_id"]: row for row in people.iter_rows(named=True)}
    black = found["race_gender-chef-0-Black-woman"]
    assert (black["attribute"], black["group"], black["set_groups"]) == ("race_gender", "Black_woman", 12)
    assert black["described"] == "Black female chef"
    obese = found["physical_race-barber-1-obese-Latino"]
    assert (obese["attribute"], obese["group"], obese["set_groups"]) == ("physical_race", "obese_Latino", 30)
    assert obese["described"] == "obese Latino barber"


def test_pata_is_asked_about_in_the_studys_words():
    rows = [
        {"image_id": str(i), "path": f"{i}.jpg", "race": race, "gender": gender, "age": "young", "scene": "gym"}
        for i, (race, gender) in enumerate([("eastasian", "man"), ("caucasian", "woman"), ("black", "man")])
    ]
    found = pictured(records(rows), load_declaration("pata"))
    assert found["group"].to_list() == ["Asian_man", "White_woman", "black_man"]
    assert set(found["attribute"]) == {"race_gender"} and set(found["subset"]) == {"all"}
    assert found["set_groups"].null_count() == 3


def test_the_pictures_of_a_person_are_no_set_of_groups():
    pictures = [(gender, i) for gender in ("man", "woman") for i in range(3)]
    several = records([{"image_id": f"{g}{i}", "gender": g, "set_id": f"{g}{i // 2}"} for g, i in pictures])
    found = pictured(several, load_declaration("celeba"))
    assert found["set_groups"].null_count() == 6 and found["set_id"].null_count() == 0


def test_by_which_attributes_answers_are_compared_and_by_which_not():
    rows = [
        {"image_id": f"{i}", "gender": ("man", "woman")[i % 2], "race": ("A", "B")[i % 3 > 0], "age_group": f"{i % 4}"}
        for i in range(24)
    ]
    labels = load_declaration("neutral")
    assert compared_by(records(rows), labels) == (("race_gender",), ("age_group",))
    of_gender = [row | {"race": None} if i == 3 else row for i, row in enumerate(rows)]
    assert compared_by(records(of_gender), labels) == (("gender",), ("race", "age_group"))


def test_a_dataset_that_says_of_nobody_who_is_pictured_is_refused():
    bare = records([{"image_id": "1", "path": "1.jpg"}])
    with pytest.raises(ConfigError, match="does not say of every image who is pictured") as refused:
        pictured(bare, load_declaration("neutral"))
    assert refused.value.found == "of 1 images 1 without race and 1 without gender"


def test_slices_are_subsets_and_never_cut_a_set(people):
    whole = slices(people, "faces", most_images=1000)
    assert list(whole) == ["faces.physical_race", "faces.race_gender"]
    cut = slices(people, "faces", most_images=30)
    assert [n for n in cut if "race_gender" in n] == [f"faces.race_gender.{i:03d}" for i in range(3)]
    for rows in cut.values():
        assert not rows.filter(pl.len().over("set_id") != pl.col("set_groups")).height
    assert sum(rows.height for rows in cut.values()) == people.height


def test_every_row_is_asked_once_and_an_image_stays_together(people):
    rows = slices(people, "faces", most_images=1000)["faces.race_gender"]
    main = GenerateEntry(datasets=("faces",))
    more = GenerateEntry(datasets=("faces",), prompts=("characteristics",), instructions=("none", "M1"), seeds=(0, 7))
    asked = ask(rows, main, more)
    # 5 prompts x 3 seeds, and of the second entry what the first does not ask: M1 with two seeds, none with seed 7.
    assert len(asked) == rows.height * (15 + 3)
    assert len({one.key for one in asked}) == len(asked)
    images = [one.subject.image_id for one in asked]
    assert len([i for i, j in pairwise(images) if i != j]) == rows.height - 1
    assert asked[0].subject.path == Path("/data") / rows["path"][0]


def test_a_key_is_of_the_model_the_image_the_words_the_decoding_and_the_seed(people):
    rows = slices(people, "faces", most_images=1000)["faces.race_gender"].head(1)
    entry = GenerateEntry(datasets=("faces",), prompts=("describe",), seeds=(0,))
    (key,) = [one.key for one in ask(rows, entry)]
    (other_model,) = [one.key for one in ask(rows, entry, identity="other")]
    (moved,) = [one.key for one in ask(rows.with_columns(path=pl.lit("elsewhere.jpg")), entry)]
    assert key != other_model and key == moved
    seeded = entry.model_copy(update={"seeds": (1,)})
    assert ask(rows, seeded)[0].key != key


def test_a_language_model_is_told_what_is_pictured_and_answers_for_each_image(people):
    rows = slices(people, "faces", most_images=1000)["faces.physical_race"]
    entry = GenerateEntry(datasets=("faces",), instructions=("none", "M1"))
    asked = ask(rows, entry, sees=False)
    assert len(asked) == rows.height * 3 and len({one.key for one in asked}) == len(asked)
    assert {one.question.prompt for one in asked} == {"characteristics"}
    assert {one.question.instruction for one in asked} == {"none"}
    assert all(one.subject.path is None for one in asked)
    assert "a picture of an obese Latino barber" in " ".join(one.question.text for one in asked)


def test_numeric_prompts_name_the_occupation_or_are_refused(people):
    entry = GenerateEntry(datasets=("faces",), prompts=("hiring",), seeds=(0,))
    assert "barber" in " ".join(one.question.text for one in ask(people, entry))
    with pytest.raises(ConfigError, match="name the occupation"):
        ask(people.with_columns(occupation=pl.lit(None, pl.String)), entry)


def test_a_sample_of_sets_is_whole_the_same_in_any_order_and_of_each_occupation(people):
    entry = GenerateEntry(datasets=("faces",), sets_per_occupation=2, subsets=("race_gender",))
    taken = chosen(people, entry)
    assert taken.group_by("occupation").agg(pl.col("set_id").n_unique())["set_id"].to_list() == [2, 2]
    assert taken.height == 2 * 2 * 12
    records = counterfactuals().sample(fraction=1, shuffle=True, seed=1)
    shuffled = chosen(pictured(records, load_declaration("socialcounterfactuals")), entry)
    assert set(shuffled["image_id"]) == set(taken["image_id"])
    cut = slices(people, "faces", most_images=13)
    assert len(cut) > 6
    by_slice = pl.concat([chosen(rows, entry) for rows in cut.values()])
    assert set(by_slice["image_id"]) == set(taken["image_id"])
    one = entry.model_copy(update={"occupations": ("CHEF",)})
    assert chosen(people, one)["occupation"].unique().to_list() == ["chef"]


def planned(**changes):
    about = {"rows": 100, "finished": 0, "prompt_tokens": 1000, "new_tokens": 4000, "seconds": 7200.0, "cost": 2.0}
    return Plan([PlannedSlice("model", "slice", **(about | changes))])


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        (Limit(rows=99), r"rows: 100 \(limit 99\)"),
        (Limit(tokens=4999), r"tokens: 5,000 \(limit 4,999\)"),
        (Limit(hours=1.5), r"hours: 2\.0 \(limit 1\.5\)"),
        (Limit(cost=1), r"cost: 2\.0 \(limit 1\.0\)"),
    ],
)
def test_a_plan_above_a_limit_is_refused(limit, said):
    with pytest.raises(ConfigError, match=said):
        planned().require(limit)


def test_a_plan_within_its_limits_passes_and_what_is_unknown_does_not():
    planned().require(Limit(rows=100, tokens=5000, hours=2, cost=2))
    planned().require(Limit())
    with pytest.raises(ConfigError, match="cost: unknown"):
        planned(cost=None).require(Limit(cost=100))
    planned(seconds=None).require(Limit(hours=1))
    # What is there already costs nothing.
    planned(finished=100, cost=None, seconds=None).require(Limit(rows=0, hours=0, cost=0))


def test_a_plan_says_what_it_knows():
    without = "100 answers, about 5,000 tokens without the images, about 2.0 h, cost 2.00 without the images"
    assert planned().summary == without
    assert planned(counts_images=True).summary == without.replace(" without the images", "")
    unknown = planned(seconds=None, cost=None, finished=40).summary
    assert unknown == (
        "60 answers (40 are there), about 5,000 tokens without the images, time not measured yet, "
        "cost unknown: no prices are given"
    )
    assert json.dumps(planned(finished=100).summary) == '"0 answers (100 are there)"'


def test_images_of_a_cross_that_is_not_shown_are_not_asked_about():
    labels = [("White", "man")] * 5 + [("Black", "man")] * 5 + [("Black", "woman")]
    rows = [
        {"image_id": f"{i}", "path": f"{i}.jpg", "dataset": "d", "race": race, "gender": gender}
        for i, (race, gender) in enumerate(labels)
    ]
    shown = pl.Series("gender_race", ["White_man"] * 5 + ["Black_man"] * 5 + [None], dtype=pl.String)
    people = pictured(records(rows).with_columns(shown), load_declaration("neutral"))
    assert people.height == 10 and set(people["group"]) == {"White_man", "Black_man"}
    assert pictured(records(rows), load_declaration("neutral")).height == 11
