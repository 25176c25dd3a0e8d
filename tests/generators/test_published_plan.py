"""The plan of data that is not there: the studies' own totals come out of their sizes."""

import pytest
from published_designs import published_designs

from plumbline.catalog.prompts import typical_tokens
from plumbline.catalog.studies import DatasetSize, SubsetSize, published_sizes
from plumbline.config.entries import GenerateEntry
from plumbline.errors import ConfigError
from plumbline.generators.backend import Asked, Question, Subject
from plumbline.generators.plan import Plan, plan_slice, published_slices
from plumbline.http.settings import EndpointSettings

FACES = DatasetSize(100, "here", {"race_gender": SubsetSize(5, 12), "physical_gender": SubsetSize(4, 10)})


def planned(*entries, size=FACES, **changes):
    about = {"most_new_tokens": 512, **changes}
    asked = [GenerateEntry(datasets=("faces",), **entry) for entry in entries]
    return published_slices("model", "faces", asked, size, **about)


def rows(*entries, **changes):
    return {one.slice: one.rows for one in planned(*entries, **changes)}


def test_sizes_are_those_of_the_designs():
    sizes = published_sizes()
    analyses = {one.id: one for one in published_designs().analyses}
    subsets = sizes["socialcounterfactuals"].subsets
    assert {name: subset.images for name, subset in subsets.items()} == analyses["main"].images
    assert sizes["socialcounterfactuals"].images == sum(subset.images for subset in subsets.values())
    assert sizes["pata"].images == sum(analyses["pata"].images.values())


def test_every_analysis_of_the_study_has_its_printed_total():
    sizes = published_sizes()
    for analysis in published_designs().analyses:
        pata = set(analysis.images) == {"pata"}
        entry = GenerateEntry(
            datasets=("faces",),
            subsets="all" if pata else tuple(analysis.images),
            prompts=analysis.prompts,
            instructions=analysis.instructions,
            seeds=tuple(range(analysis.seeds)),
        )
        size = sizes["pata" if pata else "socialcounterfactuals"]
        found = published_slices("model", "faces", [entry], size, most_new_tokens=512)
        assert sum(one.rows for one in found) * len(analysis.models) == analysis.printed_total, analysis.id


def test_a_question_of_several_entries_is_counted_once():
    every = {"prompts": ("describe",), "seeds": (0, 1)}
    assert rows(every) == {"faces.race_gender": 120, "faces.physical_gender": 80}
    assert rows(every, every) == rows(every)
    more = {"prompts": ("describe", "story"), "subsets": ("race_gender",), "seeds": (1,)}
    assert rows(every, more) == {"faces.race_gender": 180, "faces.physical_gender": 80}


def test_chosen_sets_are_counted_by_occupation_and_never_above_the_subset():
    few = {"prompts": ("describe",), "seeds": (0,), "subsets": ("race_gender",), "sets_per_occupation": 1}
    chefs = {**few, "occupations": ("chef", "doctor")}
    assert rows(chefs) == {"faces.race_gender": 24}
    assert rows(chefs, {**few, "occupations": ("pilot",)}) == {"faces.race_gender": 36}
    assert rows({**chefs, "sets_per_occupation": 100}) == {"faces.race_gender": 60}
    # How many sets each occupation has is not published: all images, never too few.
    assert (
        rows(few) == rows({**few, "sets_per_occupation": None, "occupations": ("chef",)}) == {"faces.race_gender": 60}
    )


def test_a_language_model_is_asked_one_prompt_without_instructions():
    entry = {"prompts": ("main",), "instructions": ("none", "M1"), "seeds": (0,)}
    assert rows(entry, sees=False) == {"faces.race_gender": 60, "faces.physical_gender": 40}
    seen = planned({**entry, "prompts": ("characteristics",), "instructions": ("none",)})
    told = planned(entry, sees=False)
    assert told[0].prompt_tokens > seen[0].prompt_tokens, "who is pictured is said in words"


def test_prompts_that_name_an_occupation_are_refused_of_a_dataset_without_any():
    entry = {"prompts": ("describe", "hiring"), "seeds": (0,)}
    assert rows(entry) == {"faces.race_gender": 120, "faces.physical_gender": 80}
    with pytest.raises(ConfigError, match="the dataset has none") as refused:
        planned(entry, has_occupations=False)
    assert refused.value.found == "hiring"
    assert rows({**entry, "prompts": ("describe",)}, has_occupations=False)


def test_a_dataset_without_sets_is_one_slice_and_answers_end_at_the_most_tokens():
    (one,) = planned({"prompts": ("describe",), "seeds": (0,)}, size=DatasetSize(7, "here"), most_new_tokens=5)
    assert (one.slice, one.rows, one.new_tokens, one.to_do) == ("faces.all", 7, 35, 7)
    (whole,) = planned({"prompts": ("describe",), "seeds": (0,)}, size=DatasetSize(7, "here"))
    assert whole.new_tokens == 7 * typical_tokens("describe")


def test_images_count_where_it_is_known_what_one_is_in_tokens():
    entry, size = {"prompts": ("describe",), "seeds": (0, 1)}, DatasetSize(10, "here")
    (without,), (counted,) = planned(entry, size=size), planned(entry, size=size, image_tokens=576)
    assert counted.prompt_tokens == without.prompt_tokens + 10 * 2 * 576
    assert counted.counts_images and not without.counts_images


def test_costs_are_those_of_the_endpoint():
    entry, size = {"prompts": ("describe",), "seeds": (0,)}, DatasetSize(10, "here")
    about = {"urls": ["https://x.org/v1"], "model": "m"}
    priced = EndpointSettings(**about, price_input=1e6, price_output=2e6)
    (one,) = planned(entry, size=size, endpoint=priced)
    assert one.cost == one.prompt_tokens + 2 * one.new_tokens
    assert planned(entry, size=size, endpoint=EndpointSettings(**about))[0].cost is None
    assert planned(entry, size=size)[0].cost == 0


def test_time_and_disk_follow_from_tokens_rows_and_scores():
    plan = Plan(planned({"prompts": ("describe",), "seeds": (0,)}, size=DatasetSize(10, "here")))
    tokens = 10 * typical_tokens("describe")
    assert plan.hours is None and plan.seconds(100) == pytest.approx(tokens / 100)
    assert plan.bytes(scores=4) == 2 * (10 * (25 + 4 * 14) + 2 * tokens)


def test_a_slice_costs_what_is_not_there_yet():
    texts = {"a": "four", "b": "five.", "c": "x" * 9}
    asked = [
        Asked(Subject(key, None), Question("characteristics", "none", text, 0), key) for key, text in texts.items()
    ]
    prices = EndpointSettings(urls=("http://localhost:1/v1",), model="m", price_input=2.0, price_output=4.0)
    usual = typical_tokens("characteristics")
    one = plan_slice(
        "m", "faces.all", asked, {"b", "c"}, most_new_tokens=usual + 1, tokens_per_second=usual / 5, endpoint=prices
    )
    assert (one.rows, one.finished, one.to_do) == (3, 1, 2)
    assert (one.prompt_tokens, one.new_tokens) == (2 + 3, 2 * usual)
    assert one.seconds == pytest.approx(10) and one.cost == pytest.approx((5 * 2 + 2 * usual * 4) / 1e6)
    local = plan_slice("m", "faces.all", asked, {"a"}, most_new_tokens=usual - 1)
    assert (local.prompt_tokens, local.new_tokens, local.seconds, local.cost) == (1, usual - 1, None, 0.0)
