"""The page on limits says of every dataset what `plumbline fetch` says of it, and no more."""

import re

import pytest

from plumbline.datasets.registry import reader_names
from plumbline.datasets.sources import obtaining
from resources.checkout import PROJECT

PAGE = (PROJECT / "docs" / "limits.md").read_text("utf-8")
ROWS = {row[0]: row[1:] for row in re.findall(r"^\| `(\w+)` \| (.+) \| (.+) \| (.+) \| (.+) \|$", PAGE, re.MULTILINE)}
OWN = {"counts", "folder", "listing"}
"""Readers of data that only its owner knows."""


def test_every_dataset_is_on_the_page():
    assert set(ROWS) == set(reader_names()) - OWN, "docs/limits.md has a row of each published dataset"


@pytest.mark.parametrize("reader", ROWS)
def test_licence_and_place_are_those_that_are_printed(reader):
    about = obtaining(reader)
    title, licence, page, how = ROWS[reader]
    assert (title, licence) == (about.title, about.licence)
    assert page == (f"<{about.page}>" if about.page else "see the paper")
    assert how == ("`plumbline fetch`, from the hub" if about.hub else about.steps[0])
    assert licence in about.instructions(reader)
