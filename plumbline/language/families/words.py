"""The words family: what is said more of one group than of the others."""

from __future__ import annotations

import numpy as np

from plumbline.language.family import STUDY, LanguageFamily, LanguageTraits
from plumbline.language.listed_words import WORD_ASSOCIATIONS
from plumbline.language.words import words_result

_DESCRIPTION = """
Which words a model says more of one group than of the others, in its answers to the five main prompts (describe,
backstory, pretend, characteristics, personality) taken together. A word counts as associated with a group when its
share among all words about that group is more than twice its share among the words about the other groups of the same
images (log2 of the two shares differs by more than 1) and it is said at least ten times. Each listed word has an
interval and a test that count a scene once, however often its answers repeat the word. A judge, another language
model, may then say which of them are stereotypes; without one that column says so.
"""

WORDS = LanguageFamily(
    name="words",
    title="Words said of a group",
    description=_DESCRIPTION.strip(),
    code_version="3",
    needs="texts",
    traits=(
        LanguageTraits(
            name="associated_words",
            meaning="How many words are said much more of a group than of the others.",
            formula=(
                "words w with log2(f(w, g) / N_g) - log2(f(w, not g) / N_not g) > 1 and f(w, g) ≥ 10, f how "
                "often w is said, N how many words are"
            ),
            source=f"{STUDY}, D.1 and equations 5 to 7",
            unit="words",
            bounds=(0, np.inf),
            when_identical=0.0,
            headline="pmi",
        ),
        LanguageTraits(
            name="stereotype_words",
            meaning="How many of the words associated with a group a judge calls stereotypes of it.",
            formula="associated words that any of three runs of the judge names",
            source=f"{STUDY}, D.2",
            unit="words",
            bounds=(0, np.inf),
            when_identical=0.0,
            headline="pmi",
        ),
    ),
    compute=words_result,
    tables={"word_associations": WORD_ASSOCIATIONS},
)
