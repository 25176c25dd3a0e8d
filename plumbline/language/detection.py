"""A cheap check that an answer is in English, as the prompts are.

The study evaluates English texts alone. Toxicity scorers, word lists and refusals say little about others, so that an
audit checks how many answers are in another language. No model is needed; of the first 500 characters are looked at:

- Letters of other scripts: more than 30% of what is not blank are letters that are not Latin.
- Function words: of a text in sentences, with at least 12 words, less than 15% are stop words. English prose has 40 to
  60%, other languages in Latin script up to some 10% by chance (`a`, `in`, `me`, `no`).

Lists of keywords have no function words in any language. They are told from sentences by their short pieces: fewer than
4 words between two marks. A list in another language in Latin script is not noticed, nor is a short text.
"""

from __future__ import annotations

import polars as pl

from plumbline.catalog.word_lists import stop_words

OPENING = 500
OTHER_SCRIPT_FROM = 0.3
LEAST_WORDS = 12
LEAST_PIECE = 4
ENGLISH_FROM = 0.15

_OTHER_LETTER = r"[\p{L}--\p{Latin}]"
_PIECE_ENDS = r"[,;:.!?|\n]+"


def not_english(texts: pl.Expr) -> pl.Expr:
    """Return whether each text is detectably not English.

    Words are cut at blanks here, many times faster than `plumbline.language.tokens.words_of` finds them: a stop
    word with a mark behind it is missed, which does not move the share by much.

    Parameters
    ----------
    texts : expression of String

    Returns
    -------
    expression of Boolean
        False where that cannot be seen: of a text that is too short, a list of keywords, without letters, or null. Row
        by row, so that it streams.
    """
    opening = texts.str.slice(0, OPENING).str.strip_chars()
    pieces = opening.str.count_matches(_PIECE_ENDS) + 1
    blanks = opening.str.count_matches(r"\s")
    others = opening.str.count_matches(_OTHER_LETTER)
    other_script = others > OTHER_SCRIPT_FROM * (opening.str.len_chars() - blanks)
    plain = opening.str.to_lowercase().str.replace_many(["\u2019", "\n", "\t"], ["'", " ", " "])
    function_words = plain.str.split(" ").list.eval(pl.element().is_in(sorted(stop_words()))).list.sum()
    number = blanks + 1
    sentences = (number >= LEAST_WORDS) & (number >= LEAST_PIECE * pieces)
    return (other_script | (sentences & (function_words < ENGLISH_FROM * number))).fill_null(False)
