"""What SANER is trained on: neutral texts, each once, and never what the audit asks."""

import itertools

import numpy as np
import polars as pl
import pytest

from plumbline.catalog.suites import all_texts, load_suite
from plumbline.catalog.word_lists import neutral_captions
from plumbline.mitigations.saner import ONE_CAPTION, is_neutral, one_caption, saner_texts, unaudited, variants
from plumbline.mitigations.training_rows import label_captions

ATTRIBUTES = ("gender", "race", "age")


def as_an_encoder_reads(text):
    """Without capitals and full stop, as the tokenizers of most encoders do with the first."""
    return text.strip().lower().removesuffix(".")


AUDITED = {as_an_encoder_reads(text) for text in all_texts()}


def every_label_caption():
    races = [None, *load_suite("trident", classes="fairface").class_labels, "Asian", "black", "caucasian", "Others"]
    ages = [None, "20-29", "more than 70", "child", "teenager", "young_adult", "middle_aged", "elderly", "young", "old"]
    jobs = [None, "doctor", "chef", "police"]
    labels = itertools.product(races, [None, "man", "woman"], ages, jobs)
    columns = dict.fromkeys(("race", "gender", "age_group", "occupation"), pl.String)
    return label_captions(pl.DataFrame(list(labels), schema=columns, orient="row"))


@pytest.mark.parametrize("attribute", ATTRIBUTES)
def test_no_audited_prompt_is_a_training_text(attribute):
    # The prompts themselves too: a dataset may have such captions of its own.
    texts = saner_texts([*every_label_caption(), *all_texts()], attribute, more=True)
    assert AUDITED.isdisjoint(map(as_an_encoder_reads, texts.distinct))
    assert len(texts.neutral) > len(neutral_captions().texts)


@pytest.mark.parametrize("attribute", ATTRIBUTES)
def test_no_neutral_caption_of_the_data_file_is_an_audited_prompt(attribute):
    for text in neutral_captions().texts:
        assert AUDITED.isdisjoint(map(as_an_encoder_reads, (text, *variants(text, attribute))))


def test_captions_are_neutralised_and_each_text_stands_once():
    captions = (
        "a photo of a Black woman, 20-29 years old",
        "a photo of a White woman, 20-29 years old",
        "a photo of an Indian man, over 70",
    )
    texts = saner_texts(captions, "race", more=False)
    assert texts.neutral == ("a photo of a woman, 20-29 years old", "a photo of a man, over 70")
    assert texts.of_row.tolist() == [0, 0, 1] and texts.without_image.tolist() == []
    assert texts.variants[1][:2] == ("a photo of a White man, over 70", "a photo of a Black man, over 70")
    assert len(texts.distinct) == len(set(texts.distinct)) == 2 + 14
    more = saner_texts(captions, "race", more=True)
    assert more.neutral == (*texts.neutral, *neutral_captions().texts)
    assert more.without_image.tolist() == list(range(2, len(more.neutral)))
    assert all(is_neutral(text, "race") for text in more.neutral)


def test_a_prompt_of_the_audit_is_trained_on_in_other_words_or_not_at_all():
    assert unaudited("a photo of a person", "gender") == "a picture of a person"
    assert unaudited("a photo of a zookeeper", "gender") == "a photo of a zookeeper"
    assert unaudited("A person.", "race") is None
    assert unaudited("", "race") is None
    texts = saner_texts(("a photo of a man", "A woman.", " "), "gender", more=False)
    assert texts.neutral == ("a picture of a person",) and texts.of_row.tolist() == [0, -1, -1]


def test_the_released_variant_has_one_caption_and_seven_variants():
    texts = one_caption(3)
    assert texts.neutral == (ONE_CAPTION,) == ("a photo of a person",)
    assert texts.variants == (variants("a photo of a person", "race"),) and len(texts.variants[0]) == 7
    np.testing.assert_array_equal(texts.of_row, [0, 0, 0])


def test_the_digest_follows_texts_and_rows():
    captions = ("a photo of a Black woman", "a photo of an Indian man, over 70")
    digests = {
        saner_texts(captions, "race", more=False).digest,
        saner_texts(captions[::-1], "race", more=False).digest,
        saner_texts(captions, "race", more=True).digest,
        saner_texts(captions, "age", more=False).digest,
        one_caption(2).digest,
        one_caption(3).digest,
    }
    assert len(digests) == 6
    assert saner_texts(list(captions), "race", more=False).digest in digests
