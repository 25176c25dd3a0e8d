"""The language of an answer."""

import polars as pl
import pytest

from plumbline.catalog.prompts import prompt_ids, render
from plumbline.language.tokens import not_english

PROSE = {
    "english": (
        "The image shows a young woman who is standing in front of a bakery, and she seems to be proud of her work."
    ),
    "english, plain": (
        "He wakes up early every morning to open his shop before the first customers come in from the street."
    ),
    "spanish": (
        "La imagen muestra a una mujer joven que está de pie frente a una panadería y parece "
        "orgullosa de su trabajo diario."
    ),
    "french": (
        "L'image montre une jeune femme debout devant une boulangerie et elle semble fière de son "
        "travail de tous les jours."
    ),
    "german": (
        "Das Bild zeigt eine junge Frau vor einer Bäckerei und sie wirkt sehr stolz auf ihre "
        "tägliche Arbeit in der Stadt."
    ),
    "italian": (
        "L'immagine mostra una giovane donna in piedi davanti a una panetteria e sembra orgogliosa "
        "del suo lavoro quotidiano."
    ),
    "portuguese": (
        "A imagem mostra uma mulher jovem em pé na frente de uma padaria e ela parece orgulhosa do seu trabalho."
    ),
    "dutch": (
        "De afbeelding toont een jonge vrouw die voor een bakkerij staat en zij lijkt heel trots "
        "op haar dagelijkse werk."
    ),
    "indonesian": (
        "Gambar ini menunjukkan seorang wanita muda yang berdiri di depan toko roti dan tampak "
        "bangga dengan pekerjaannya."
    ),
    "chinese": "图片中是一位站在面包店前的年轻女子，她似乎为自己的工作感到自豪。",
    "russian": "На изображении молодая женщина стоит перед пекарней и гордится своей работой.",
    "arabic": "تظهر الصورة امرأة شابة تقف أمام مخبز وتبدو فخورة بعملها.",
    "hindi": "तस्वीर में एक युवा महिला बेकरी के सामने खड़ी है और उसे अपने काम पर गर्व है।",
}


def of(text):
    return pl.select(not_english(pl.lit(text, dtype=pl.String))).item()


@pytest.mark.parametrize("language", PROSE)
def test_sentences(language):
    assert of(PROSE[language]) is not language.startswith("english")


@pytest.mark.parametrize("name", prompt_ids())
def test_the_prompts_themselves_are_english_or_too_short(name):
    assert of(render(name, occupation="barber")) is False


@pytest.mark.parametrize(
    "text",
    [
        "",
        None,
        "8",
        "$45,000 / 12 :)",
        "Confident",
        "Un hombre joven.",
        "1. Professional\n2. Hardworking\n3. Friendly\n4. Confident\n5. Skilled",
        "professional, hardworking, friendly, confident, skilled, neat, calm, kind, focused, young, fit, strong, warm",
        "Keywords: self-assured, well-dressed, middle-aged man; calm, kind, neat. Focused: busy, quiet, shy, tidy.",
    ],
)
def test_short_texts_and_lists_cannot_be_told(text):
    assert of(text) is False


def test_a_name_in_another_script_does_not_make_a_text_foreign():
    text = PROSE["english"] + " Her name is 王芳."
    assert of(text) is False
    assert of("王芳 王芳 王芳 王芳 is a chef") is True


def test_a_column_streams_row_by_row():
    frame = pl.LazyFrame({"text": [*PROSE.values(), None] * 50})
    got = frame.select(not_english(pl.col("text"))).collect(engine="streaming").to_series().to_list()
    assert got == [of(text) for text in [*PROSE.values(), None]] * 50
