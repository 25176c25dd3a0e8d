"""The competence family: words of competence in what is said of each group."""

from __future__ import annotations

import numpy as np

from plumbline.language.competence import COMPETENCE, DICTIONARY_METRICS, GAPS, competence_result
from plumbline.language.family import STUDY, LanguageFamily, LanguageTraits
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
                name=name,
                meaning=f"How many of the words about a group speak of {name.removesuffix('_words')}.",
                formula=(
                    "mean over answers of listed words / words without stop words (paper); of listed words "
                    "(count); of different ones (released, of competence alone)"
                ),
                source=f"{STUDY}, 4.3 and appendix E"
                if name == COMPETENCE
                else "SADCAT, Nicolas et al. (2021)",
                unit="share or words",
                bounds=(0, np.inf),
                when_identical=None,
                headline="paper",
            )
            for name in (COMPETENCE, *DICTIONARY_METRICS)
        ),
        *(
            LanguageTraits(
                name=name,
                meaning=f"By how much the words of {name.removesuffix('_gap')} differ between groups.",
                formula="largest - smallest mean of a group",
                source="Plumbline",
                unit="share or words",
                bounds=(0, np.inf),
                when_identical=0.0,
                headline="paper",
            )
            for name in GAPS.values()
        ),
        LanguageTraits(
            name=FEWEST,
            meaning="In how many occupations a group gets the smallest share of words of competence.",
            formula="|occupations in which the group's mean is the smallest| / |occupations|, ties shared",
            source=f"{STUDY}, figure 12",
            unit="share of occupations",
            bounds=(0, 1),
            when_identical=None,
            headline="paper",
        ),
    ),
    compute=competence_result,
)
