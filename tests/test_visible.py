"""Unseen characters are shown, and links that run something are not links."""

import pytest

from plumbline.visible import safe_link, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\u202egnp.exe", "a\\u202egnp.exe"),
        ("line\nnext\tcell\r", "line\\nnext\\tcell\\r"),
        ("zero\u200bwidth\ufeff", "zero\\u200bwidth\\ufeff"),
        ("bell\x07", "bell\\u0007"),
        ("\U000e0041tag", "\\U000e0041tag"),
        ("lone\udc80", "lone\\udc80"),
        ("Zoë 東京", "Zoë 東京"),
    ],
)
def test_hidden_characters_become_escapes(text, shown):
    assert visible(text) == shown
    assert visible(visible(text)) == shown


def test_endless_text_is_shortened_and_says_so():
    assert visible("x" * 1000, longest=10) == "x" * 10 + "… (990 more characters)"


@pytest.mark.parametrize(
    "address", ["data_docs/index.html", "../a b.html", "https://example.org/x", "file:///a/b.html"]
)
def test_links_that_can_be_followed(address):
    assert safe_link(address) == address


@pytest.mark.parametrize(
    "address", ["javascript:alert(1)", " JaVaScRiPt:alert(1)", "java\nscript:x", "data:text/html,x", None, ""]
)
def test_links_that_cannot(address):
    assert safe_link(address) is None
