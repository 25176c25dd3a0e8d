"""The competence family: words of competence in what is said of each group."""

from __future__ import annotations

import numpy as np

from plumbline.language.competence import COMPETENCE, DICTIONARY_METRICS, GAPS, competence_result
from plumbline.language.family import LanguageFamily, LanguageTraits
from plumbline.language.fewest import FEWEST

_DESCRIPTION = """
How many of the words that a model says of a person speak of competence (`skilled`, `diligent`), in its answers to the
prompts that ask for five keywords. Counted are 861 words that were published with the study; the number is the mean
share of an answer's words, with function words such as `the` left out. Compared between groups over all images and
within every occupation that has enough counterfactual sets, where it is also counted which group gets the fewest.
Words of incompetence, warmth and coldness are counted likewise where their dictionaries are configured. Intervals and
tests count a set of counterfactual images once.
"""

COMPETENCE_FAMILY = LanguageFamily(
    name="competence",
    title="Words of competence",
    description=_DESCRIPTION.strip(),
    code_version="2",
    needs="texts",
    # Bounds are those of every definition: a share is within [0, 1], a count of words above 0.
    traits=(
        *(
            LanguageTraits(
                name=name, unit="share or words", bounds=(0, np.inf), when_identical=None, headline="paper"
            )
            for name in (COMPETENCE, *DICTIONARY_METRICS)
        ),
        *(
            LanguageTraits(
                name=name, unit="share or words", bounds=(0, np.inf), when_identical=0.0, headline="paper"
            )
            for name in GAPS.values()
        ),
        LanguageTraits(
            name=FEWEST, unit="share of occupations", bounds=(0, 1), when_identical=None, headline="paper"
        ),
    ),
    compute=competence_result,
)
