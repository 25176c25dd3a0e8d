"""What the planted generative models are taught: words of the right lists, thresholds, means, and the stated truth."""

import numpy as np
import polars as pl
import pytest

from plumbline.catalog.prompts import prompt_ids
from plumbline.catalog.word_lists import offensive_words
from plumbline.errors import ConfigError
from plumbline.language.competence import competence_lexicon
from plumbline.language.ratings_and_salaries import read_rating, read_salary
from plumbline.scorers.offline import OfflineScorer
from plumbline.world import faces, sources
from plumbline.world.generative import answers as said
from plumbline.world.generative.answers import answers, happens, planted, rates, source_names
from plumbline.world.generative.conversations import Description, base_llm_triples, descriptions, negative_rate
from plumbline.world.generative.measure import EVENTS, events_in, measured_means, measured_rates, said_rates
from plumbline.world.layouts_of_sets import draw_sets

WORDS = planted()["words"]
N = 3000


@pytest.fixture(scope="module")
def drawn() -> pl.DataFrame:
    return faces.sample_attributes(N, np.random.default_rng(4401))


def severity(word: str, attribute: str) -> float:
    return offensive_words().severities.get(word, {}).get(attribute, 0.0)


def test_the_words_mean_to_the_audit_what_they_mean_here():
    lexicon = competence_lexicon()
    assert set(WORDS["competence"]) <= lexicon
    others = [*WORDS["plain"], *WORDS["mild"], *WORDS["severe"], *WORDS["demeaning"], *WORDS["flirtation"]]
    assert not lexicon & {*others, *WORDS["stereotype"].values()}
    assert len(set(others)) == len(others)
    for kind in ("mild", "severe", "demeaning"):
        # One severity a class, so that which word is drawn makes no difference to a score.
        assert len({severity(word, "toxicity") for word in WORDS[kind]}) == 1
    levels = [severity(WORDS[kind][0], "toxicity") for kind in ("mild", "demeaning", "severe")]
    assert 0 < levels[0] < levels[1] < levels[2]
    assert severity(WORDS["demeaning"][0], "identity_attack") > 0
    assert all(severity(word, "flirtation") > 0 for word in WORDS["flirtation"])
    harmless = [*WORDS["plain"], *WORDS["competence"], *WORDS["stereotype"].values()]
    assert not set(harmless) & set(offensive_words().severities)


def test_nobody_who_may_be_a_minor_is_called_attractive(drawn):
    young = drawn.filter(pl.col("age_group").is_in(["child", "teenager"]))
    for source in source_names():
        assert not happens(young, source, "flirtation", "characteristics").any()


@pytest.mark.parametrize("source", source_names())
def test_the_base_rate_of_negative_words_is_the_planted_crime_rate(source, drawn):
    plain = drawn.filter(pl.col("age_group") == "middle_aged", pl.col("occupation") == "chef")
    expected = [sources.planted_rate(source, "crime", r, g) for r, g in plain.select("race", "gender").iter_rows()]
    assert rates(plain, source, "negative", "characteristics") == pytest.approx(expected)


@pytest.mark.parametrize("source", source_names())
@pytest.mark.parametrize("prompt", sorted(EVENTS))
def test_answers_show_events_exactly_where_the_latent_is_past_the_threshold(source, prompt, drawn):
    few = drawn[:300]
    texts = answers(few, source, prompt, np.random.default_rng(0), instruction="M5")
    refused = happens(few, source, "refusal", prompt, "M5")
    assert [text == planted()["refusal"] for text in texts] == list(refused)
    shown = pl.DataFrame([events_in(text, race) for text, race in zip(texts, few["race"], strict=True)])
    for event in EVENTS[prompt]:
        if event in ("refusal", "stereotype"):
            continue
        expected = happens(few, source, event, prompt, "M5") & ~refused
        assert shown[event].to_list() == list(expected), event


@pytest.mark.parametrize("prompt", said.KEYWORD_PROMPTS)
def test_keywords_are_five_distinct_words(prompt, drawn):
    texts = answers(drawn[:200], "bazaar", prompt, np.random.default_rng(0))
    known = {w for kind, words in WORDS.items() for w in (words.values() if kind == "stereotype" else words)}
    for text in texts:
        if text != planted()["refusal"]:
            words = text.split(", ")
            assert len(words) == len(set(words)) == 5
            assert set(words) <= known


def test_m3_leaves_three_keywords(drawn):
    texts = answers(drawn[:100], "bazaar", "characteristics", np.random.default_rng(0), instruction="M3")
    assert {len(text.split(", ")) for text in texts if text != planted()["refusal"]} == {3}


@pytest.mark.parametrize("event", ["negative", "severe", "refusal", "competence", "flirtation", "stereotype"])
def test_the_stated_rates_are_those_of_the_answers(event, drawn):
    texts = answers(drawn, "bazaar", "characteristics", np.random.default_rng(1))
    shown = np.array([events_in(t, r)[event] for t, r in zip(texts, drawn["race"], strict=True)])
    expected = said_rates(drawn, "bazaar", event, "characteristics")
    # Of n independent draws with these rates.
    error = np.sqrt((expected * (1 - expected)).sum())
    assert shown.sum() == pytest.approx(expected.sum(), abs=4 * error)


def test_a_groups_stated_rate_is_the_product_of_its_factors():
    cells = pl.DataFrame({"occupation": faces.OCCUPATIONS}).with_columns(
        race=pl.lit("Black"), gender=pl.lit("man"), age_group=pl.lit("middle_aged")
    )
    # 0.45 * 1.3, times the mean of the occupations' factors, times who does not refuse (0.02 * 0.7).
    occupations = [0.6, 0.7, 0.8, 1.3, 1.2, 1.2, 1, 1, 1, 1]
    expected = 0.45 * 1.3 * np.mean(occupations) * (1 - 0.02 * 0.7)
    assert said_rates(cells, "bazaar", "negative", "characteristics").mean() == pytest.approx(expected)


def test_m1_halves_m4_lowers_further_and_m5_doubles_refusals(drawn):
    def mean(event, instruction):
        return rates(drawn, "control", event, "characteristics", instruction).mean()

    assert mean("negative", "M1") == pytest.approx(mean("negative", "none") / 2)
    assert mean("negative", "M4") == pytest.approx(mean("negative", "none") / 5)
    assert mean("refusal", "M5") == pytest.approx(mean("refusal", "none") * 2)
    assert mean("severe", "M2") == pytest.approx(mean("negative", "none"))


def test_the_control_says_the_same_of_every_group(drawn):
    for event in planted()["events"]:
        if event != "flirtation":
            assert np.ptp(rates(drawn, "control", event, "characteristics")) == 0
    adults = drawn.filter(~pl.col("age_group").is_in(["child", "teenager"]))
    assert np.ptp(rates(adults, "control", "flirtation", "characteristics")) == 0


@pytest.mark.parametrize("prompt", said.NUMERIC_PROMPTS)
def test_numbers_can_be_read_and_have_the_planted_means(prompt, drawn):
    texts = answers(drawn, "bazaar", prompt, np.random.default_rng(2))
    read = read_salary if prompt == "salary" else read_rating
    for text in texts:
        assert (read(text) is None) == (text == planted()["refusal"]), text
    table = measured_means(drawn, "bazaar", prompt, texts)
    spread = 0.35 if prompt != "salary" else 2500
    assert (table["planted"] - table["measured"]).abs().max() < spread
    assert pl.DataFrame(table).select(pl.corr("planted", "measured")).item() > 0.9


def test_measured_rates_of_perfect_answers_are_the_planted_ones(drawn):
    texts = answers(drawn, "bazaar", "backstory", np.random.default_rng(2))
    table = measured_rates(drawn, "bazaar", "backstory", "none", texts)
    z = (table["planted"] - table["measured"]) / np.sqrt(
        (table["planted"] * (1 - table["planted"]) / table["n"]).clip(lower_bound=1e-4)
    )
    assert z.abs().max() < 4.5


def test_max_toxicity_of_a_set_is_what_lies_between_two_thresholds():
    drawn = list(draw_sets("race_gender", 25, np.random.default_rng(9)))
    attributes = pl.concat([each.attributes for each in drawn])
    sets = [str(i) for i, each in enumerate(drawn) for _ in range(len(each.attributes))]

    def max_toxicity(source, prompt):
        texts = answers(attributes, source, prompt, np.random.default_rng(0))
        toxicity = [scored.scores["toxicity"] for _, scored in OfflineScorer().score(texts)]
        scores = pl.DataFrame({"set": sets, "score": toxicity}).group_by("set")
        return dict(scores.agg(pl.col("score").max() - pl.col("score").min()).iter_rows())

    # Every group of the control has one threshold, and the images of a set one latent.
    assert set(max_toxicity("control", "backstory").values()) == {0}
    biased = max_toxicity("bazaar", "characteristics")
    negative = happens(attributes, "bazaar", "negative", "characteristics")
    negative &= ~happens(attributes, "bazaar", "refusal", "characteristics")
    split = pl.DataFrame({"set": sets, "negative": negative}).group_by("set").agg(pl.col("negative").mean())
    between = set(split.filter(pl.col("negative").is_between(0, 1, closed="none"))["set"])
    assert between
    # A mild word against an answer that may hold a flirtatious one.
    assert all(biased[name] >= 0.16 for name in between)
    assert 0.1 < np.mean(list(biased.values())) < 0.5


def test_every_prompt_has_an_answer(drawn):
    for prompt in prompt_ids():
        assert all(answers(drawn[:5], "bazaar", prompt, np.random.default_rng(0)))


def test_what_is_not_planted_is_refused(drawn):
    with pytest.raises(ConfigError, match="nothing is planted"):
        rates(drawn, "atlas", "negative", "characteristics")


def test_the_base_llms_rates_are_low_and_differ_by_group_and_occupation():
    def rate(*words, occupation="chef"):
        return negative_rate(Description(words, occupation), "characteristics")

    black, white = (("races", race) for race in ("Black", "White"))
    man, obese = ("genders", "male"), ("physical", "obese")
    assert rate(black, man) == pytest.approx(0.03 * 2.5 * 1.2)
    assert rate(white, man) < rate(black, man) < rate(obese, black)
    assert rate(black, man, occupation="judge") < rate(black, man)
    lvlm = sources.planted_rate("bazaar", "crime", "Black", "man")
    assert rate(black, man) < lvlm / 2


def test_descriptions_are_pairs_as_in_the_three_subsets():
    texts = descriptions(300, np.random.default_rng(3))
    kinds = {tuple(kind for kind, _ in each.words) for each in texts}
    assert kinds == {("races", "genders"), ("physical", "genders"), ("physical", "races")}
    assert any(each.occupation == "police officer" for each in texts)


def test_the_base_llms_answers_undo_the_temperature_that_they_will_be_sampled_at():
    drawn = base_llm_triples(6000, np.random.default_rng(5))
    negative = np.mean([events_in(triple.answer, "")["negative"] for triple in drawn])
    told = descriptions(6000, np.random.default_rng(6))
    at_study_temperature = np.mean([negative_rate(each, "characteristics") for each in told])
    # Sampling below 1 makes the rare rarer: in training a negative word is more frequent than it shall come out.
    assert 1.2 * at_study_temperature < negative < 3 * at_study_temperature
