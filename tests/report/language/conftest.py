"""One synthetic audit of generative models, its report, and the parts of its chapters."""

import polars as pl
import pytest
from chapters_by_anchor import ANCHORS, CHAPTER
from synthetic_language import (
    FACES,
    HOSTILE,
    PATA,
    language_inputs,
    language_table,
    occupation_table,
    word_table,
)  # fmt: skip

from plumbline.report import render


@pytest.fixture(scope="session")
def table():
    """Return the metric table of two generative models on two datasets."""
    return language_table(pata=True)


@pytest.fixture(scope="session")
def tables():
    """Return the tables of words and of occupations."""
    words = pl.concat([word_table(words=("pleasant", *HOSTILE))])
    return {"word_associations": words, "occupation_scores": occupation_table()}


@pytest.fixture(scope="session")
def inputs(tables):
    """Return the summaries that go with `table`."""
    return language_inputs(datasets=(FACES, PATA), language=tables)


@pytest.fixture(scope="session")
def page(table, inputs, made_once):
    """Return the rendered report."""
    folder, _ = made_once(
        "language-report", lambda folder: (folder / "page.html").write_bytes(render(table, inputs).encode())
    )
    return (folder / "page.html").read_bytes().decode()


@pytest.fixture(scope="session")
def parts(table, inputs):
    """Return the parts of every chapter on generated texts, by anchor."""
    return {anchor: CHAPTER[anchor].parts(table, inputs) for anchor in ANCHORS}
