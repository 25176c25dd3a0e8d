"""Words that carry no content of their own, left out of shares and of the lists of associated words."""

from __future__ import annotations

from functools import cache

from plumbline.tables.data_files import data_text


@cache
def stop_words() -> frozenset[str]:
    """Return the English stop words of `plumbline/tables/stop_words.txt`, as `plumbline.text.words_of` writes words.

    The paper does not say which list it used; this is one of function words alone.
    """
    text = data_text("stop_words.txt")
    return frozenset(word for line in text.splitlines() if not line.startswith("#") for word in line.split())
