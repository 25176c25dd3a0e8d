"""The report tells which words were asked, of the suites as they are and not as they once were."""

from dataclasses import replace

import pytest

from plumbline.catalog.suites import Candidate, all_suites, load_suite
from plumbline.report import render
from plumbline.report.data import LONGEST_WORDS, suite_listing
from plumbline.report.page import LONGEST_CELL
from plumbline.report.vocabulary import suite_title

CRIME = load_suite("crime")


def with_burglar(suite):
    more = Candidate(id="burglar", text="a photo of a burglar", category="crime")
    return replace(suite, candidates=(*suite.candidates, more))


def test_labels_are_counted(monkeypatch):
    assert suite_title("crime") == "crime and non-human, top-1 of 21 labels"
    more = with_burglar(CRIME)
    monkeypatch.setattr("plumbline.report.vocabulary.load_suite", lambda name: more)
    assert suite_title("crime") == "crime and non-human, top-1 of 22 labels"


def test_words_stand_by_category_with_name_version_source_and_digest():
    rows = suite_listing([with_burglar(CRIME)]).rows
    assert rows[0][:4] == ("crime", "1", CRIME.source, "22")
    assert rows[0][-1] == with_burglar(CRIME).hash[:12] != CRIME.hash[:12]
    assert [row[4:6] for row in rows[1:]] == [
        ("crime", "thief, criminal, suspicious person, burglar"),
        ("non human", "animal, gorilla, chimpanzee, orangutan"),
    ]
    assert "middle eastern woman" in rows[0][5]


def test_many_words_are_counted():
    told = {row[4]: row[5] for row in suite_listing([load_suite("perception")]).rows}
    assert told["warmth"] == "6 words in 4 templates" and len(told) == 8
    ((*_, category, words, _),) = suite_listing([load_suite("pata_captions")]).rows
    assert (category, words) == ("all", "233 texts in 112 categories")
    long = load_suite("trident_composite", classes="idenprof")
    assert suite_listing([long]).rows[0][5].endswith("pilot man and 5 more")


@pytest.mark.parametrize("suite", all_suites(), ids=lambda suite: f"{suite.id}-{suite.hash[:6]}")
def test_every_suite_fits_the_cells_of_the_page(suite):
    rows = suite_listing([suite]).rows
    assert rows and all(len(cell) <= LONGEST_CELL for row in rows for cell in row)
    assert all(row[5] for row in rows) and LONGEST_WORDS < LONGEST_CELL


def test_the_page_has_them_folded(narrow, inputs, page):
    assert "Which words were asked" not in page
    asked = render(narrow, replace(inputs, suites=(CRIME, load_suite("communion"))))
    (chapter,) = (part for part in asked.split("<section>") if 'id="audited"' in part)
    folded = chapter.split("<summary>Which words were asked</summary>")[1]
    assert "thief, criminal, suspicious person" in folded and CRIME.hash[:12] in folded
