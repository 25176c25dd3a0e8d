"""The texts that name a protected attribute."""

from importlib.resources import files
from itertools import combinations

import pytest
import yaml

from plumbline.catalog.word_lists import attribute_texts
from plumbline.digests import digest_json
from plumbline.errors import ConfigError

RACES = ("White", "Black", "Indian", "East Asian", "Southeast Asian", "Middle Eastern", "Latino")
FILE = files("plumbline.catalog") / "attribute_texts.yaml"


def test_the_data_file_says_what_it_is():
    content = yaml.safe_load(FILE.read_text("utf-8"))
    assert content["id"] == "attribute_texts"
    assert content["source"]
    # A change of the texts is a change of every projection: raise `version` with it.
    texts = {name: attribute_texts(name).texts for name in ("gender", "race", "age")}
    assert (content["version"], digest_json(texts)[:16]) == (1, "edb5852dcc3769bf")


def test_gender_is_a_man_and_a_woman_and_each_occupation_pairs_them():
    gender = attribute_texts("gender")
    assert gender.prompts == ("a photo of a man", "a photo of a woman", "a photo of a male", "a photo of a female")
    assert gender.contrast == ("a photo of a man", "a photo of a woman")
    assert ("a photo of a male doctor", "a photo of a female doctor") in gender.pairs


def test_race_is_the_seven_terms_and_every_two_of_them_pair():
    race = attribute_texts("race")
    articles = {"Indian": "an", "East Asian": "an"}
    named = {term: f"a photo of {articles.get(term, 'a')} {term}" for term in RACES}
    assert race.prompts == tuple(f"{text} person" for text in named.values())
    nurses = {pair for pair in race.pairs if pair[0].endswith(" nurse")}
    assert nurses == {(f"{named[a]} nurse", f"{named[b]} nurse") for a, b in combinations(RACES, 2)}


@pytest.mark.parametrize("attribute", ["gender", "race", "age"])
def test_pairs_differ_in_the_group_alone_and_no_text_comes_twice(attribute):
    about = attribute_texts(attribute)
    groups = [prompt.removesuffix(" person") for prompt in about.prompts]
    for one, other in about.pairs:
        prefixes = [max((g for g in groups if text.startswith(f"{g} ")), key=len) for text in (one, other)]
        assert one.removeprefix(prefixes[0]) == other.removeprefix(prefixes[1])
        assert prefixes[0] != prefixes[1]
    assert len(set(about.pairs)) == len(about.pairs)
    assert (
        len(set(about.texts))
        == len(about.texts)
        == len(about.prompts) + len({text for pair in about.pairs for text in pair})
    )
    assert set(about.contrast) <= set(about.prompts)


def test_another_attribute_is_refused_with_those_there_are():
    with pytest.raises(ConfigError, match=r"(?s)height.*gender, race, age"):
        attribute_texts("height")
